"""What ms-swift refuses, our rules refuse first, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.baseline import complete
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.knobs import FRAMEWORKS, KNOBS
from search_spaces.legality import RULES, Case, Reference, check
from search_spaces.legality.passthrough import check_passthrough
from search_spaces.own_keys import per_micro_batch
from tests.support.properties import examples

GPU: dict[str, Any] = {"device": "cuda", "compute_capability": (9, 0)}


def broken(resources: Resources, values: dict[str, KnobValue]) -> set[str]:
    case = Case(values, resources, Reference.of(None, resources))
    return {rule.name for rule in RULES if rule.judge(case) is not None}


def swift_batch(pd: int, world: int, accumulation: int, spg: int | None, group: int) -> None:
    """``RolloutTrainerArgumentsMixin._init_generation_batch_params`` and ``_check_teacher`` of ms-swift 4.6.0."""
    if group == 1:
        raise ValueError("num_generations must be greater than 1 for GRPO")
    spg = accumulation if spg is None else spg
    if spg <= 0:
        raise ValueError("steps_per_generation must be > 0")
    if pd * world * spg % group != 0:
        raise ValueError("must be evenly divisible by num_generations")


@examples(100, 300)
@given(
    pd=st.integers(1, 20),
    world=st.integers(1, 9),
    accumulation=st.integers(1, 12),
    spg=st.none() | st.integers(1, 12),
    group=st.integers(1, 20),
)
def test_batches_are_refused_exactly_when_ms_swift_refuses_them(
    pd: int, world: int, accumulation: int, spg: int | None, group: int
) -> None:
    values: dict[str, KnobValue] = {
        "micro_batch_size": pd,
        "gradient_accumulation_steps": accumulation,
        "num_generations": group,
        **({} if spg is None else {"steps_per_generation": spg}),
    }
    machine = Resources(gpus=world, framework="ms_swift", **GPU)
    refused = broken(machine, values) & {"group_size", "whole_groups"}
    try:
        swift_batch(pd, world, accumulation, spg, group)
    except ValueError:
        assert refused
    else:
        assert not refused


CASES = yaml.safe_load((Path(__file__).parents[2] / "fixtures" / "swift_rules.yaml").read_text())


@pytest.mark.parametrize(("rule", "values", "legal"), [tuple(row.values()) for row in CASES])
def test_a_rule_bites_where_it_should_and_for_ms_swift_alone(
    rule: str, values: dict[str, KnobValue], legal: dict[str, KnobValue]
) -> None:
    machine = Resources(gpus=4, framework="ms_swift", **GPU)
    assert rule in broken(machine, values)
    assert rule not in broken(machine, legal)
    for framework in FRAMEWORKS:
        if framework != "ms_swift":
            assert rule not in broken(Resources(gpus=4, framework=framework, **GPU), values)


@pytest.mark.parametrize("framework", ["ms_swift", "open_r1"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_is_not_tried_where_accelerate_refuses_it(framework: str, stage: int) -> None:
    """On a CPU; TRL trials are the ones that go round that."""
    values: dict[str, KnobValue] = {"zero_stage": stage}
    assert "zero_device" in broken(Resources(cpu_ranks=2, framework=framework), values)
    assert "zero_device" not in broken(Resources(gpus=2, framework=framework, **GPU), values)
    assert "zero_device" not in broken(Resources(cpu_ranks=2, framework="trl"), values)
    assert "zero_device" not in broken(Resources(cpu_ranks=2, framework=framework), {"zero_stage": 0})


def test_ligers_kernels_are_looked_for_where_the_environment_is_known() -> None:
    for software, refused in (({"torch": "2.13"}, True), ({"liger_kernel": "0.8"}, False), ({}, False)):
        machine = Resources(gpus=1, framework="ms_swift", software=software, **GPU)
        assert ("swift_liger_installed" in broken(machine, {"hub_kernels": True})) is refused


def test_the_nearest_sequence_steps_are_legal() -> None:
    machine = Resources(gpus=4, framework="ms_swift", **GPU)
    values: dict[str, KnobValue] = {"sequence_parallel_size": 2, "gradient_accumulation_steps": 3}
    found = next(v for v in check(Configuration(values), machine) if v.rule == "swift_sequence_steps")
    assert ("sequence_parallel_size", 1) in found.nearest


@pytest.mark.parametrize("name", ["rollout_dtype", "zero_prefetch_bucket", "fp8_emulate", "logprob_token_chunk"])
def test_what_ms_swift_cannot_be_told_is_no_knob_of_it(name: str) -> None:
    assert "ms_swift" not in KNOBS[name].frameworks


def test_log_probs_are_computed_by_micro_batches() -> None:
    machine = Resources(gpus=1, framework="ms_swift", **GPU)
    values: dict[str, KnobValue] = {"micro_batch_size": 4, "gradient_accumulation_steps": 8, "logprob_rows": 16}
    assert complete(values, machine)["logprob_rows"] == 4
    assert complete(values, Resources(gpus=1, framework="trl", **GPU))["logprob_rows"] == 16


@pytest.mark.parametrize(
    "settings_",
    [
        {"eval_strategy": "steps"},
        {"val_dataset": ["v"], "eval_strategy": "no"},
        {"split_dataset_ratio": 0.1, "save_strategy": "no"},
        {"val_dataset": ["v"], "per_device_eval_batch_size": 8},
        {"val_dataset": ["v"], "num_generations_eval": 1},
    ],
)
def test_what_ms_swift_does_not_evaluate_is_not_refused(settings_: dict[str, Any]) -> None:
    """Without data it sets ``eval_strategy`` no; where it is not said it follows ``save_strategy`` (S5)."""
    assert not check_passthrough(settings_, {}, Resources(framework="ms_swift"))


@pytest.mark.parametrize(
    ("settings_", "knobs", "rule", "words"),
    [
        ({"val_dataset": ["v"], "per_device_eval_batch_size": 3}, {}, "evaluation", "not divisible by the 8"),
        ({"split_dataset_ratio": 0.01}, {}, "evaluation", "per_device_eval_batch_size 1 × 1 = 1"),
        ({"eval_dataset": ["v"], "eval_strategy": "epoch"}, {}, "evaluation", "not divisible by the 8"),
        ({"val_dataset": ["v"], "save_strategy": "no", "eval_strategy": "steps"}, {}, "evaluation", "not divisible"),
        ({"delta": 2.0}, {"hub_kernels": True}, "liger_loss", "delta 2.0"),
        ({"log_entropy": True}, {"hub_kernels": True}, "liger_loss", "log_entropy true"),
        ({"importance_sampling_level": "sequence_token"}, {"hub_kernels": True}, "liger_loss", "sequence_token"),
        ({"advantage_estimator": "rloo"}, {"hub_kernels": True}, "liger_loss", "advantage_estimator rloo"),
        ({"cached_dataset": ["x"]}, {}, "cached_dataset", "cached_dataset cannot"),
        ({"truncation_strategy": "right"}, {}, "truncation", "use left or delete"),
        ({"warmup_ratio": 0.1, "warmup_steps": 5}, {}, "warmup", "remove one of them"),
        ({"num_infer_workers": 2}, {}, "unknown_key", "vllm_data_parallel_size"),
        ({"use_lmdeploy": False}, {}, "unknown_key", "LMDeploy was removed in 3.5"),
        ({"tensor_model_parallel_size": 2}, {}, "unknown_key", "Megatron-SWIFT"),
    ],
)
def test_arguments_ms_swift_would_refuse_are_refused_first(
    settings_: dict[str, Any], knobs: dict[str, KnobValue], rule: str, words: str
) -> None:
    found = check_passthrough(settings_, knobs, Resources(framework="ms_swift"))
    assert [violation.rule for violation in found] == [rule]
    assert words in found[0].sentence
    assert check_passthrough(settings_, knobs, Resources(framework="verl")) == ()


def test_arguments_ms_swift_takes_are_taken() -> None:
    taken = {"beta": 0.04, "truncation_strategy": "delete", "eval_strategy": "no", "delta": 2.0, "warmup_steps": 3}
    assert check_passthrough(taken, {}, Resources(framework="ms_swift")) == ()


@pytest.mark.parametrize(("loss", "said"), [("grpo", ""), ("bnpo", "loss_type bnpo"), ("real", "loss_type real")])
def test_what_is_averaged_over_each_micro_batch(loss: str, said: str) -> None:
    assert per_micro_batch("ms_swift", {"loss_type": loss}) == said
