"""Rules bite where they should, speak clearly, and name values that really are legal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from search_spaces.batch import accumulated
from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.knobs import FRAMEWORKS
from search_spaces.legality import RULES, Case, Violation, check, notes
from search_spaces.legality.passthrough import check_passthrough

GPU: dict[str, Any] = {"device": "cuda", "compute_capability": (9, 0)}


def names(found: tuple[Violation, ...]) -> set[str]:
    return {violation.rule for violation in found}


def checked(resources: Resources | None = None, **values: Any) -> tuple[Violation, ...]:
    return check(Configuration(values), resources or Resources())


def test_four_l20_with_one_given_to_vllm() -> None:
    found = checked(
        Resources(gpus=4, framework="open_r1", device="cuda", compute_capability=(8, 9)),
        rollout_engine="vllm",
        rollout_mode="server",
        rollout_gpus=1,
        micro_batch_size=1,
        num_generations=8,
    )
    assert [v.sentence for v in found] == [
        "3 training GPUs × micro-batch 1 = 3 is not divisible by num_generations 8; "
        "nearest legal: micro_batch_size 8, or num_generations 3."
    ]
    assert found[0].nearest == (("micro_batch_size", 8), ("num_generations", 3))


def test_the_nearest_values_are_computed() -> None:
    found = checked(Resources(gpus=5, **GPU), micro_batch_size=6, num_generations=7)
    assert found[0].sentence == (
        "5 training GPUs × micro-batch 6 = 30 is not divisible by num_generations 7; "
        "nearest legal: micro_batch_size 7, or num_generations 6."
    )


def server(gpus: int, rows: int, **values: Any) -> tuple[Configuration, Resources]:
    resources = Resources(gpus=gpus, rows_per_update=rows, **GPU)
    every = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1, **values}
    return Configuration(accumulated(every, resources)), resources


def test_seven_gpus_make_504_rows_of_512_and_it_is_said() -> None:
    configuration, resources = server(8, 512, micro_batch_size=8, num_generations=8)
    assert configuration["gradient_accumulation_steps"] == 9
    assert check(configuration, resources) == ()
    assert notes(configuration, resources) == (
        "504 rows per update instead of 512 (-1.6 %), because 7 training GPUs cannot share 512.",
    )


def test_rows_that_fit_need_no_note() -> None:
    configuration, resources = server(9, 512, micro_batch_size=8, num_generations=8)
    assert check(configuration, resources) == ()
    assert notes(configuration, resources) == ()


def test_more_than_five_per_cent_is_too_much() -> None:
    configuration, resources = server(8, 512, micro_batch_size=16, num_generations=8)
    found = check(configuration, resources)
    assert names(found) == {"rows_per_update"}
    assert "is 9.4 % off 512, more than 5 %" in found[0].sentence


def test_a_deviation_is_only_for_a_split_that_does_not_divide() -> None:
    """64 rows can be made on one process; 65 would be another workload for no reason."""
    resources = Resources(rows_per_update=64)
    found = checked(resources, micro_batch_size=5, gradient_accumulation_steps=13, num_generations=5)
    assert "rows_per_update" in names(found)


def test_steps_per_generation_beyond_the_update_is_off_policy() -> None:
    found = checked(micro_batch_size=8, gradient_accumulation_steps=2, steps_per_generation=4)
    assert names(found) == {"fresh_completions"}
    assert "steps_per_generation 2" in found[0].sentence


def test_steps_per_generation_divides_the_update() -> None:
    found = checked(micro_batch_size=8, gradient_accumulation_steps=6, steps_per_generation=4)
    assert names(found) == {"fresh_completions"}
    assert ("steps_per_generation", 3) in found[0].nearest


def test_an_off_policy_baseline_keeps_its_reuse() -> None:
    baseline = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_generation": 4})
    assert check(baseline, Resources(), baseline) == ()
    fresher = baseline.with_(steps_per_generation=2)
    assert names(check(fresher, Resources(), baseline)) == {"fresh_completions"}


def test_no_fewer_than_half_of_the_prompts() -> None:
    baseline = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 4, "num_generations": 4})
    resources = Resources(rows_per_update=32)
    assert check(baseline.with_(num_generations=8), resources, baseline) == ()
    found = check(baseline.with_(num_generations=16), resources, baseline)
    assert names(found) == {"prompts_per_update"}
    assert "leaves 2 prompts per update, fewer than half of the baseline's 8" in found[0].sentence


def test_a_loss_averaged_over_each_micro_batch_ties_its_size() -> None:
    baseline = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 2, "num_generations": 4})
    other = baseline.with_(micro_batch_size=4, gradient_accumulation_steps=4)
    assert check(other, Resources(), baseline) == ()
    tied = Resources(per_micro_batch="loss_type bnpo")
    found = check(other, tied, baseline)
    assert names(found) == {"micro_batch_average"}
    assert "loss_type bnpo is averaged over each micro-batch" in found[0].sentence
    assert ("micro_batch_size", 8) in found[0].nearest
    assert check(baseline, tied, baseline) == ()
    assert check(other, tied) == (), "without a baseline there is nothing to keep"


BARE: dict[str, KnobValue] = {"micro_batch_size": 8, "num_generations": 8}
BARE_OF = {"verl": {"micro_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 4}}
OWNERS = {"verl": "verl", "swift": "ms_swift", "openr1": "open_r1"}
ROWS = yaml.safe_load((Path(__file__).parents[2] / "fixtures" / "rules.yaml").read_text("utf-8"))
ELSEWHERE = ("megatron", "swift_megatron")
"""Beginnings of rules whose rows are published scripts with a change (``tests/unit/trainer``)."""
HERE = {
    "cache_share", "fresh_completions", "micro_batch_average", "prompts_per_update", "rows_per_update",
    "tensor_parallel_heads", "training_split",
}  # fmt: skip
"""Rules that the other tests of this room are about."""


def machine_of(on: Mapping[str, Any]) -> Resources:
    found = {"device": "cuda" if on.get("gpus") else "cpu", **on}
    if "compute_capability" in found:
        found["compute_capability"] = tuple(found["compute_capability"])
    if "model" in found:
        found["model"] = ModelFacts(**found["model"])
    return Resources(**found)


def knobs_of(on: Mapping[str, Any], values: Mapping[str, KnobValue]) -> Configuration:
    return Configuration({**BARE, **BARE_OF.get(on.get("framework", ""), {}), **values})


@pytest.mark.parametrize("row", ROWS["refused"], ids=str)
def test_a_rule_bites_and_its_nearest_values_are_legal(row: list[Any]) -> None:
    rule, on, values, *words = row
    configuration, machine = knobs_of(on, values), machine_of(on)
    found = {violation.rule: violation for violation in check(configuration, machine)}
    assert rule in found
    sentence = found[rule].sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert [word for word in words if word not in sentence] == []
    for knob, value in found[rule].nearest:
        moved = Case(configuration, machine).with_knob(knob, value).values
        mended = check(Configuration(moved), machine)
        assert names(mended) <= set(found) - {rule}, (knob, value)
        left = [n for n in configuration if moved.get(n) not in (configuration[n], value)]
        assert all(n in sentence.partition("nearest legal")[2] for n in left), left
    if knob_values := dict(found[rule].nearest):
        assert "nearest legal: " in sentence
        assert next(iter(knob_values)) in sentence
    if owner := OWNERS.get(rule.split("_")[0]):
        others = (machine_of({**on, "framework": framework}) for framework in FRAMEWORKS if framework != owner)
        assert not any(rule in names(check(configuration, other)) for other in others)


@pytest.mark.parametrize(("rule", "on", "values"), ROWS["taken"], ids=str)
def test_what_is_not_known_or_does_no_harm_is_not_ruled_out(
    rule: str, on: dict[str, Any], values: dict[str, KnobValue]
) -> None:
    found = names(check(knobs_of(on, values), machine_of(on)))
    assert rule not in found if rule else found == set()


def test_every_rule_has_a_row() -> None:
    tried = {row[0] for row in ROWS["refused"]} | HERE
    assert {rule.name for rule in RULES if not rule.name.startswith(ELSEWHERE)} - tried == set()


@pytest.mark.parametrize("row", ROWS["own_keys"], ids=str)
def test_the_users_own_keys_are_refused_where_the_framework_would_refuse_them_late(row: list[Any]) -> None:
    on, own, values, rule, *words = row
    found = check_passthrough(own, {**BARE, **values}, machine_of(on))
    assert names(found) == ({rule} if rule else set())
    assert all(word in violation.sentence for word in words for violation in found)
    assert all(violation.sentence.endswith(".") for violation in found)
    if rule and on.get("framework") != "verl":
        assert check_passthrough(own, {**BARE, **values}, machine_of({**on, "framework": "verl"})) == ()
