"""verl's own rules bite exactly where verl 0.9.1 refuses, or would fill up in silence."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.legality import Case, Reference, check, gpu_rules, verl_rules
from tests.support.properties import examples
from tests.support.verl_cases import some

BARE: dict[str, KnobValue] = {
    "micro_batch_size": 4, "gradient_accumulation_steps": 4, "num_generations": 8, "steps_per_generation": 4,
}  # fmt: skip


APART: dict[str, KnobValue] = {
    "rollout_mode": "server", "async_generation": True, "rollout_gpus": 2, "weight_sync_every": 1,
    "weight_sync_backend": "nccl", "tensor_parallel_size": 1,
}  # fmt: skip
"""On other GPUs, with older weights."""


def on(gpus: int = 4, **changes: Any) -> Resources:
    return Resources(gpus=gpus, device="cuda" if gpus else "cpu", framework=changes.pop("framework", "verl"), **changes)


def broken(resources: Resources, **values: KnobValue) -> set[str]:
    case = Case({**BARE, **values}, resources, Reference())
    return {rule.name for rule in verl_rules.RULES if rule.judge(case) is not None}


def test_what_verl_takes_is_legal() -> None:
    assert check(Configuration({**BARE, "tensor_parallel_size": 1}), on()) == ()
    whole = {"remove_padding": True, "sequence_parallel_size": 2, "dynamic_batching": True, "fsdp": "fsdp2"}
    assert broken(on(model=ModelFacts(attention_heads=16, key_value_heads=1)), **whole) == set()
    assert broken(on(6), **APART) == set()
    assert check(Configuration({**BARE, **APART}), on(6)) == ()
    assert check(Configuration({**BARE, "tensor_parallel_size": 1, "async_generation": True}), on()) == ()


@pytest.mark.parametrize(
    ("rule", "values", "resources"),
    [
        ("verl_device", {}, on(0)),
        (
            "verl_guessed_deltas",
            {**APART, "weight_sync_backend": "delta_sharded", "speculative_decoding": "ngram"},
            on(6),
        ),
        ("verl_colocated", {"rollout_mode": "server", "rollout_gpus": 1}, on()),
        ("verl_sync_every", {**APART, "weight_sync_every": 3}, on(6)),
        ("verl_sync_backend", {**APART, "weight_sync_backend": "naive"}, on(6)),
        ("verl_hybrid_engine", {**APART, "tensor_parallel_size": 2, "rollout_gpus": 2}, on(5)),
        (
            "verl_rollout_rows",
            {"sequence_parallel_size": 4, "micro_batch_size": 2, "gradient_accumulation_steps": 1,
             "steps_per_generation": 1, "num_generations": 2},
            on(),
        ),
        ("verl_rollout_covers_update", {"steps_per_generation": 2}, on()),
        ("verl_whole_updates", {"steps_per_generation": 6}, on()),
        (
            "verl_whole_prompts",
            {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "num_generations": 32},
            on(),
        ),
        ("verl_logprob_rows", {"logprob_rows": 3}, on()),
        ("verl_ulysses_heads", {"sequence_parallel_size": 4}, on(model=ModelFacts(attention_heads=14))),
        (
            "verl_ulysses_heads",
            {"sequence_parallel_size": 4},
            on(model=ModelFacts(attention_heads=12, key_value_heads=3)),
        ),
        ("verl_fixed_shape", {"pad_to_multiple": 64, "remove_padding": False}, on()),
        ("fsdp_version", {"fsdp": "none"}, on()),
        ("fsdp_version", {"fsdp": "fsdp1"}, on(framework="ms_swift")),
        ("verl_dynamic_sampling", {"dynamic_sampling": True}, on()),
        ("verl_offload", {"fsdp": "fsdp2", "fsdp_offload": True, "rollout_offload_model": True}, on()),
        ("verl_sleep", {"sleep_level": 1}, on()),
        ("verl_optimizer", {"optimizer": "lion_8bit"}, on()),
    ],
)  # fmt: skip
def test_a_rule_bites_says_so_in_one_sentence_and_names_what_mends_it(
    rule: str, values: dict[str, KnobValue], resources: Resources
) -> None:
    configuration = Configuration({**BARE, **values})
    found = {violation.rule: violation for violation in check(configuration, resources)}
    assert rule in found
    assert found[rule].sentence.endswith(".")
    assert "\n" not in found[rule].sentence
    for knob, value in found[rule].nearest:
        assert rule not in {v.rule for v in check(configuration.with_(**{knob: value}), resources)}


def test_sglang_is_legal_and_what_it_does_not_read_does_not_act() -> None:
    sglang: dict[str, KnobValue] = {"rollout_engine": "sglang", "tensor_parallel_size": 1}
    assert check(Configuration({**BARE, **sglang, "gpu_memory_utilization": 0.6, "enforce_eager": True}), on()) == ()
    assert check(Configuration({**BARE, **sglang, **APART, "tensor_parallel_size": 2}), on(6)) == ()
    (silent,) = check(Configuration({**BARE, **sglang, "prefix_caching": False}), on())
    assert silent.sentence.startswith("prefix_caching false acts only with rollout_engine vllm, not sglang")
    (missing,) = check(
        Configuration({**BARE, **sglang}), on(software={"torch": "2", "vllm": "0.24", "flash_attn": "2"})
    )
    assert missing.sentence.startswith("rollout_engine sglang needs the package sglang in the training environment")
    uneven = check(Configuration({**BARE, **sglang, "tensor_parallel_size": 3}), on())
    assert {violation.rule for violation in uneven} == {"tensor_parallel_world"}


def test_every_rule_has_a_case_above() -> None:
    marks = test_a_rule_bites_says_so_in_one_sentence_and_names_what_mends_it.pytestmark  # type: ignore[attr-defined]
    tried = {case[0] for mark in marks for case in mark.args[1]}
    assert tried == {rule.name for rule in verl_rules.RULES}


@pytest.mark.parametrize("framework", ["trl", "open_r1", "ms_swift"])
def test_other_frameworks_know_nothing_of_them(framework: str) -> None:
    values: dict[str, KnobValue] = {"steps_per_generation": 2, "logprob_rows": 3, "optimizer": "lion_8bit"}
    assert broken(on(0, framework=framework), **values) == set()


def verl_itself(train_prompts: int, mini_prompts: int, n: int, gpus: int, dynamic: bool) -> str:
    """``validate_config`` and ``ActorConfig.validate`` of verl 0.9.1, the batch part."""
    if dynamic:
        return ""
    if train_prompts * n % gpus != 0:
        return "V1"
    return "V4" if train_prompts < mini_prompts else ""


@examples(100, 300)
@given(
    micro=st.integers(1, 6), steps=st.integers(1, 8), accumulation=st.integers(1, 8), group=st.integers(2, 8),
    sharing=st.sampled_from([1, 2, 4]), dynamic=st.booleans(),
)  # fmt: skip
def test_batches_are_refused_where_verl_refuses_them(
    micro: int, steps: int, accumulation: int, group: int, sharing: int, dynamic: bool
) -> None:
    gpus = 4
    ranks = gpus // sharing
    refused = broken(
        on(gpus), micro_batch_size=micro, steps_per_generation=steps, gradient_accumulation_steps=accumulation,
        num_generations=group, sequence_parallel_size=sharing, dynamic_batching=dynamic,
    )  # fmt: skip
    rollout, update = ranks * micro * steps, ranks * micro * accumulation
    if rollout % group or update % group:
        return  # verl has no words for it: whole_groups and verl_whole_prompts refuse it
    said = verl_itself(rollout // group, update // group, group, gpus, dynamic)
    if said == "V1":
        assert "verl_rollout_rows" in refused
    if said == "V4":
        assert "verl_rollout_covers_update" in refused
    if not said:
        assert "verl_rollout_rows" not in refused
    assert ("verl_whole_updates" in refused) == (steps > accumulation and steps % accumulation != 0)


def test_a_budget_of_ranks_that_share_a_sequence_counts_together() -> None:
    machine = on(max_prompt_length=512, max_completion_length=1024)
    values = {"dynamic_batching": True, "update_tokens": 1024, "logprob_tokens": 1024, "remove_padding": True}
    assert "token_budget" in {v.rule for v in check(Configuration({**BARE, **values}), machine)}
    together = Configuration({**BARE, **values, "sequence_parallel_size": 2})
    assert "token_budget" not in {v.rule for v in check(together, machine)}


@examples(40, 100)
@given(seed=st.integers(0, 10**9))
def test_a_rule_reads_what_it_declares_and_no_more(seed: int) -> None:
    combination = some(Random(seed))
    case = Case(combination.configuration, combination.resources, Reference())
    for rule in verl_rules.RULES:
        read = {name: value for name, value in case.values.items() if name in rule.reads}
        assert rule.judge(Case(read, case.resources, case.reference)) == rule.judge(case), rule.name


@pytest.mark.parametrize(("size", "legal"), [(4, True), (8, True), (16, True), (32, True), (12, False), (3, False)])
def test_an_engine_takes_part_of_a_machine_or_whole_ones(size: int, legal: bool) -> None:
    """``world_size % min(gpus_per_node, world_size)`` of verl's ``RolloutReplica``; the others stay in one machine."""
    for framework, spans in (("verl", True), ("trl", False)):
        case = Case({**BARE, "rollout_engine": "vllm", "tensor_parallel_size": size},
                    on(8, nodes=4, framework=framework), Reference())  # fmt: skip
        found = {rule.name for rule in gpu_rules.RULES if rule.judge(case) is not None}
        assert ("tensor_parallel_node" not in found) is (legal and (spans or size <= 8)), framework
