"""Open-R1's rules: they refuse what TRL 0.18 refuses, before it does, and what it would do without a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import KnobValue, Resources
from search_spaces.legality import check
from search_spaces.legality.openr1_rules import REWARDS, SERVER_OPTIONS, unknown_rewards
from search_spaces.legality.passthrough import check_passthrough
from tests.support.properties import examples

BATCH: dict[str, KnobValue] = {"micro_batch_size": 16, "gradient_accumulation_steps": 4, "num_generations": 16}


def machine(gpus: int = 8, framework: str = "open_r1") -> Resources:
    return Resources(gpus=gpus, device="cuda", framework=framework, compute_capability=(9, 0))


def said(configuration: dict[str, KnobValue], gpus: int = 8) -> list[str]:
    return [violation.sentence for violation in check(configuration, machine(gpus))]


def trl_post_init(micro: int, world: int, accumulation: int, steps: int | None, group: int) -> None:
    """``GRPOConfig.__post_init__`` of TRL 0.18.0, the batch part, as it is written."""
    steps = accumulation if steps is None else steps
    rows = micro * world * steps
    if rows % micro * world != 0:
        raise ValueError("must be divisible by the global batch size")
    if group < 2:
        raise ValueError("GRPO requires at least 2 generations")
    if group not in [n for n in range(2, rows + 1) if rows % n == 0]:
        raise ValueError("must be evenly divisible by the number of generations per prompt")


@examples(100, 300)
@given(
    micro=st.integers(1, 20),
    world=st.integers(1, 9),
    accumulation=st.integers(1, 12),
    steps=st.none() | st.integers(1, 12),
    group=st.integers(1, 20),
)
def test_batches_are_refused_exactly_when_trl_refuses_them(
    micro: int, world: int, accumulation: int, steps: int | None, group: int
) -> None:
    values: dict[str, KnobValue] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "num_generations": group,
    }
    if steps is not None:
        values["steps_per_generation"] = steps
    ours = {violation.rule for violation in check(values, machine(world))} & {"group_size", "whole_groups"}
    try:
        trl_post_init(micro, world, accumulation, steps, group)
    except ValueError:
        assert ours
    else:
        assert not ours


def test_a_group_of_fourteen_needs_seven_ranks() -> None:
    """The recipe ``config_demo_code.yaml``: 64 rows a rank."""
    values: dict[str, KnobValue] = {**BATCH, "num_generations": 14}
    assert said(values, 7) == []
    assert any("not divisible by num_generations 14" in sentence for sentence in said(values, 8))


@pytest.mark.parametrize("name", sorted(SERVER_OPTIONS))
def test_the_servers_options_are_for_the_server(name: str) -> None:
    values: dict[str, KnobValue] = {
        "gpu_memory_utilization": 0.5,
        "max_model_len": 4096,
        "prefix_caching": False,
        "enforce_eager": True,
        "kv_cache_dtype": "fp8",
        "rollout_dtype": "bf16",
    }
    served: dict[str, KnobValue] = {"rollout_mode": "server", "rollout_gpus": 1, "rollout_data_parallel_size": 1}
    engine: dict[str, KnobValue] = {**BATCH, "rollout_engine": "vllm", name: values[name]}
    assert said({**engine, **served, "num_generations": 14}) == []
    colocated = said({**engine, "rollout_mode": "colocate"})
    if name == "gpu_memory_utilization":
        assert colocated == []
    else:
        assert any(f"no key for {name}" in text and "rollout server takes it" in text for text in colocated)


def test_only_open_r1_is_refused_what_only_it_lacks() -> None:
    values: dict[str, KnobValue] = {**BATCH, "rollout_engine": "vllm", "rollout_mode": "colocate", "max_num_seqs": 64}
    assert any("Open-R1 has no key for max_num_seqs 64" in text for text in said(values))
    assert check(values, machine(framework="trl")) == ()


def test_what_it_does_anyway_is_no_request() -> None:
    engine: dict[str, KnobValue] = {"rollout_engine": "vllm", "rollout_mode": "colocate"}
    assert said({**BATCH, **engine, "chunked_prefill": True, "logprob_rows": 16, "sleep_level": 0}) == []


@pytest.mark.parametrize(
    ("settings_", "rule"),
    [
        ({"generation_batch_size": 100}, "openr1_generation_rows"),
        ({"generation_batch_size": 128, "steps_per_generation": 1}, "openr1_generation_size"),
        ({"eval_strategy": "steps", "per_device_eval_batch_size": 3}, "openr1_evaluation"),
        ({"model_init_kwargs": {"a": 1}}, "openr1_model_arguments"),
        ({"delta": 2.0, "use_liger_loss": True}, "openr1_liger_loss"),
        ({"sync_ref_model": True, "beta": 0.0}, "openr1_reference_model"),
    ],
)
def test_a_setting_is_refused_by_its_own_rule(settings_: dict[str, Any], rule: str) -> None:
    found = check_passthrough(settings_, BATCH, machine())
    assert [violation.rule for violation in found] == [rule]
    assert all(violation.sentence.endswith(".") for violation in found)


@examples(60, 200)
@given(rows=st.integers(1, 600), micro=st.integers(1, 16), world=st.integers(1, 8))
def test_rows_that_trl_would_round_down_are_refused(rows: int, micro: int, world: int) -> None:
    """TRL 0.18 tests ``rows % micro * world``, so it lets through what it then makes fewer rows of."""
    found = check_passthrough({"generation_batch_size": rows}, {**BATCH, "micro_batch_size": micro}, machine(world))
    generated = rows // (micro * world) * micro * world
    assert bool(found) == (generated != rows)


def test_settings_that_are_its_own_defaults_pass() -> None:
    own = {"generation_batch_size": 512, "eval_strategy": "no", "sync_ref_model": False, "beta": 0.04, "delta": None}
    assert check_passthrough(own, BATCH, machine()) == ()


def test_rewards_are_those_of_the_registry() -> None:
    assert unknown_rewards(REWARDS) == []
    assert unknown_rewards(["accuracy", "acuracy"]) == ["acuracy"]
