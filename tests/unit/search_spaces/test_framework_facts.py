"""The table of what one framework does and another does not."""

from __future__ import annotations

from dataclasses import fields

import pytest

from search_spaces.baseline import complete
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.frameworks import FACTS, Facts, facts_of
from search_spaces.knobs import FRAMEWORKS, KNOBS
from search_spaces.legality import check


def test_every_framework_of_the_catalogue_is_in_it() -> None:
    assert tuple(FACTS) == FRAMEWORKS


@pytest.mark.parametrize("fact", [each.name for each in fields(Facts)])
def test_a_fact_tells_some_frameworks_from_others(fact: str) -> None:
    assert len({getattr(facts, fact) for facts in FACTS.values()}) > 1


def test_of_a_framework_nobody_knows_nothing_in_particular_is_said() -> None:
    assert facts_of("megatron") == Facts()


def test_who_has_deepspeed_has_its_knobs() -> None:
    assert {name for name, facts in FACTS.items() if facts.has_deepspeed} == set(KNOBS["zero_stage"].frameworks)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_rules_of_one_framework_are_broken_by_no_other(framework: str) -> None:
    """A rule whose name says whose it is."""
    values = {"sleep_level": 1, "hub_kernels": True, "sequence_parallel_size": 2, "fused_loss": True, "max_num_seqs": 8}
    machine = Resources(gpus=2, device="cuda", framework=framework, compute_capability=(9, 0))
    configuration = Configuration({"rollout_engine": "vllm", "rollout_mode": "colocate", **values})
    own = {"trl": "trl", "open_r1": "openr1", "ms_swift": "swift", "verl": "verl"}
    broken = {each.rule.split("_")[0] for each in check(configuration, machine)} & set(own.values())
    assert broken <= {own[framework]}
    assert broken or framework == "trl"


@pytest.mark.parametrize("name", ["rollout_dtype", "zero_prefetch_bucket", "fp8_emulate", "logprob_token_chunk"])
def test_what_ms_swift_cannot_be_told_is_no_knob_of_it(name: str) -> None:
    assert "ms_swift" not in KNOBS[name].frameworks


def test_log_probs_of_ms_swift_are_computed_by_micro_batches() -> None:
    values: dict[str, KnobValue] = {"micro_batch_size": 4, "gradient_accumulation_steps": 8, "logprob_rows": 16}
    for framework, rows in (("ms_swift", 4), ("trl", 16)):
        assert complete(values, Resources(gpus=1, device="cuda", framework=framework))["logprob_rows"] == rows
