"""Rules bite where they should, speak clearly, and name values that really are legal."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.batch import accumulated
from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.legality import Case, Violation, check, notes

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


@pytest.mark.parametrize(
    ("rule", "resources", "values"),
    [
        ("group_size", {}, {"num_generations": 1}),
        ("precision_hardware", {}, {"precision": "fp8"}),
        ("precision_hardware", {}, {"precision": "fp16"}),
        ("precision_hardware", {"gpus": 1, "compute_capability": (8, 6)}, {"precision": "fp8"}),
        ("precision_hardware", {"gpus": 1, "compute_capability": (7, 5)}, {"precision": "bf16"}),
        ("precision_hardware", {"gpus": 1, "framework": "verl"}, {"precision": "fp8"}),
        ("precision_hardware", {"software": {"torch": "2.13"}}, {"precision": "fp8", "fp8_emulate": True}),
        ("master_weights", {}, {"precision": "fp32", "master_weights": "bf16"}),
        ("master_weights", {"gpus": 1}, {"precision": "fp16", "master_weights": "bf16"}),
        ("attention_kernel", {}, {"attn_implementation": "flash_attention_2"}),
        ("attention_kernel", {"gpus": 1}, {"attn_implementation": "flash_attention_2", "precision": "fp32"}),
        ("attention_kernel", {"gpus": 1, "compute_capability": (8, 9)}, {"attn_implementation": "flash_attention_3"}),
        ("attention_kernel", {"gpus": 1, "software": {"torch": "2"}}, {"attn_implementation": "flash_attention_2"}),
        ("optimizer_kernel", {}, {"optimizer": "paged_adamw_8bit"}),
        ("optimizer_kernel", {"gpus": 1, "software": {"torch": "2"}}, {"optimizer": "adamw_8bit"}),
        ("optimizer_kernel", {"gpus": 1, "software": {"torch": "2"}}, {"optimizer": "adamw_torch_4bit"}),
        ("tf32_hardware", {}, {"tf32": True}),
        ("gpu_kernels", {}, {"hub_kernels": True}),
        ("expandable_segments", {}, {"expandable_segments": True}),
        (
            "expandable_segments",
            {"gpus": 1, "software": {"vllm": "0.19.1"}},
            {"expandable_segments": True, "rollout_engine": "vllm", "sleep_level": 2},
        ),
        ("host_allocator", {"gpus": 1}, {"host_allocator": "keep"}),
        ("batched_weights", {}, {"continuous_batching": True, "precision": "bf16", "master_weights": "fp32"}),
        ("batched_weights", {"gpus": 1}, {"continuous_batching": True, "precision": "fp16"}),
        ("knob_acts", {}, {"continuous_batching_memory": 0.3}),
        ("knob_acts", {"gpus": 1}, {"rollout_engine": "vllm", "continuous_batching": True}),
        ("sleep_mode", {}, {"rollout_engine": "vllm", "sleep_level": 1}),
        (
            "one_cache_size",
            {"gpus": 1},
            {"rollout_engine": "vllm", "kv_cache_memory_bytes": 1 << 30, "gpu_memory_utilization": 0.5},
        ),
        ("knob_acts", {"gpus": 1}, {"gpu_memory_utilization": 0.5}),
        ("knob_acts", {"gpus": 1}, {"zero_stage": 1, "offload_optimizer": "cpu"}),
        ("knob_acts", {"gpus": 1}, {"zero_stage": 2, "offload_parameters": "cpu"}),
        ("knob_acts", {"gpus": 1}, {"fsdp_offload": True}),
        ("knob_acts", {"gpus": 2}, {"rollout_engine": "vllm", "rollout_gpus": 1}),
        ("framework_has_knob", {"framework": "verl", "gpus": 1}, {"zero_stage": 2}),
        ("framework_has_knob", {"framework": "open_r1"}, {"remove_padding": True}),
        ("known_framework", {"framework": "another"}, {}),
        ("zero_or_fsdp", {"gpus": 2}, {"zero_stage": 2, "fsdp": "fsdp2"}),
        ("deepspeed_installed", {"gpus": 2, "software": {"torch": "2"}}, {"zero_stage": 2}),
        (
            "offloaded_optimizer",
            {"gpus": 2},
            {"zero_stage": 2, "offload_optimizer": "cpu", "optimizer": "paged_adamw_8bit"},
        ),
        (
            "gathered_for_vllm",
            {"gpus": 2},
            {"zero_stage": 3, "zero3_gather_for_generation": False, "rollout_engine": "vllm"},
        ),
        ("gpu_split", {"gpus": 1}, {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1}),
        ("gpu_split", {"gpus": 2}, {"rollout_engine": "vllm", "rollout_mode": "server"}),
        ("gpu_split", {}, {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1}),
        (
            "server_gpus",
            {"gpus": 8},
            {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 3, "tensor_parallel_size": 2},
        ),
        (
            "server_gpus",
            {"gpus": 8},
            {
                "rollout_engine": "vllm",
                "rollout_mode": "server",
                "rollout_gpus": 4,
                "tensor_parallel_size": 2,
                "rollout_data_parallel_size": 1,
            },
        ),
        ("tensor_parallel_node", {"gpus": 4, "nodes": 2}, {"rollout_engine": "vllm", "tensor_parallel_size": 8}),
        ("rollout_engine", {"gpus": 1}, {"rollout_engine": "sglang"}),
        ("guessed_tokens", {"gpus": 1}, {"rollout_engine": "vllm", "speculative_decoding": "ngram"}),
        ("engine_installed", {"gpus": 1, "software": {"torch": "2"}}, {"rollout_engine": "vllm"}),
        (
            "compiler_installed",
            {"software": {"vllm": "1", "c++": ""}},
            {"rollout_engine": "vllm", "enforce_eager": False},
        ),
        ("batched_tokens", {"gpus": 1}, {"rollout_engine": "vllm", "max_num_seqs": 512, "max_num_batched_tokens": 256}),
        ("whole_prefill", {"gpus": 1}, {"rollout_engine": "vllm", "chunked_prefill": False, "max_model_len": 8192}),
        (
            "model_length",
            {"gpus": 1, "max_prompt_length": 512, "max_completion_length": 1024},
            {"rollout_engine": "vllm", "max_model_len": 1024},
        ),
        (
            "model_length",
            {"gpus": 1, "model": ModelFacts(max_positions=2048)},
            {"rollout_engine": "vllm", "max_model_len": 4096},
        ),
        ("engine_fp8", {"gpus": 1, "compute_capability": (8, 0)}, {"rollout_engine": "vllm", "kv_cache_dtype": "fp8"}),
        (
            "token_budget",
            {"gpus": 1, "framework": "verl", "max_prompt_length": 512, "max_completion_length": 1024},
            {"dynamic_batching": True, "update_tokens": 1024},
        ),
        ("sequence_parallel", {"gpus": 4, "framework": "ms_swift"}, {"sequence_parallel_size": 3}),
        ("packed_rows", {"gpus": 1, "framework": "ms_swift"}, {"remove_padding": True}),
    ],
)
def test_a_rule_bites_and_its_nearest_values_are_legal(
    rule: str, resources: dict[str, Any], values: dict[str, KnobValue]
) -> None:
    machine = Resources(**{"device": "cuda" if resources.get("gpus") else "cpu", **resources})
    configuration = Configuration({**BARE, **values})
    found = {violation.rule: violation for violation in check(configuration, machine)}
    assert rule in found
    assert found[rule].sentence.endswith(".")
    assert "\n" not in found[rule].sentence
    for knob, value in found[rule].nearest:
        moved = Case(configuration, machine).with_knob(knob, value).values
        mended = check(Configuration(moved), machine)
        assert names(mended) < set(found), (knob, value)
        left = [n for n in configuration if moved.get(n) not in (configuration[n], value)]
        assert all(n in found[rule].sentence.partition("nearest legal")[2] for n in left), left
    if knob_values := dict(found[rule].nearest):
        assert "nearest legal: " in found[rule].sentence
        assert next(iter(knob_values)) in found[rule].sentence


@pytest.mark.parametrize(
    ("resources", "values"),
    [
        ({}, {}),
        ({}, {"precision": "fp8", "fp8_emulate": True}),
        ({"gpus": 1, "compute_capability": (8, 9)}, {"precision": "fp8"}),
        ({"gpus": 1, "compute_capability": (8, 0)}, {"attn_implementation": "flash_attention_2"}),
        ({"gpus": 1, "software": {"flash-attn": "2.8"}}, {"attn_implementation": "flash_attention_2"}),
        ({"gpus": 1}, {"attn_implementation": "flash_attention_3"}),
        ({"gpus": 1}, {"rollout_engine": "vllm", "expandable_segments": True, "sleep_level": 0}),
        ({"gpus": 1}, {"gpu_memory_utilization": 0.3}),
        ({"gpus": 1}, {"rollout_engine": "vllm", "gpu_memory_utilization": 0.5}),
        ({"gpus": 1}, {"rollout_engine": "vllm", "kv_cache_memory_bytes": 1 << 30}),
        ({"gpus": 1}, {"rollout_engine": "vllm", "kv_cache_memory_bytes": 1 << 30, "gpu_memory_utilization": 0.3}),
        ({"gpus": 1}, {"kv_cache_memory_bytes": 1 << 30, "gpu_memory_utilization": 0.3}),
        ({"gpus": 2}, {"zero_stage": 2, "offload_optimizer": "cpu"}),
        ({}, {"zero_stage": 2}),
        ({"software": {"vllm": "1", "c++": ""}}, {"rollout_engine": "vllm"}),
        ({"software": {"vllm": "1", "c++": ""}}, {"rollout_engine": "vllm", "enforce_eager": True}),
        ({"software": {"vllm": "1"}}, {"rollout_engine": "vllm", "enforce_eager": False, "torch_compile": True}),
        ({"gpus": 1, "software": {"vllm": "1", "c++": ""}}, {"rollout_engine": "vllm", "enforce_eager": False}),
        ({"gpus": 8}, {"rollout_engine": "vllm", "tensor_parallel_size": 4}),
        ({}, {"precision": "bf16", "master_weights": "bf16", "optimizer": "adamw_torch_fused"}),
        ({}, {"precision": "fp32", "continuous_batching": True, "continuous_batching_memory": 0.01}),
        ({"gpus": 1}, {"master_weights": "bf16", "continuous_batching": True, "continuous_batching_memory": 0.3}),
    ],
)
def test_what_is_not_known_or_does_no_harm_is_not_ruled_out(
    resources: dict[str, Any], values: dict[str, KnobValue]
) -> None:
    machine = Resources(**{"device": "cuda" if resources.get("gpus") else "cpu", **resources})
    assert check(Configuration({**BARE, **values}), machine) == ()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mirco_batch_size": 2}, "mirco_batch_size is not a known knob; did you mean micro_batch_size."),
        ({"beta": 0.1}, "beta is not a knob: the objective stays as in your own configuration."),
        ({"micro_batch_size": 0}, "micro_batch_size: expected a whole number from 1 to 65536, got 0."),
        ({"precision": "fp4"}, "precision: expected one of bf16, fp16, fp32, fp8, got fp4."),
    ],
)
def test_names_and_values_that_do_not_exist(values: dict[str, KnobValue], sentence: str) -> None:
    assert [v.sentence for v in check(values, Resources())] == [sentence]
