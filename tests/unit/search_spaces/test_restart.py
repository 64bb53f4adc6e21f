"""What has to be started anew between two configurations."""

from __future__ import annotations

import pytest

from search_spaces.knobs import RESTART, defaults, restart_between
from search_spaces.knobs.model import Restart


@pytest.mark.parametrize(
    ("knob", "expected"),
    [
        *((name, Restart.PROCESS) for name in ("zero_stage", "offload_optimizer", "precision", "attn_implementation")),
        *((name, Restart.PROCESS) for name in ("expandable_segments", "host_allocator", "rollout_gpus")),
        *((name, Restart.ENGINE) for name in ("gpu_memory_utilization", "max_model_len", "max_num_seqs")),
        *((name, Restart.ENGINE) for name in ("max_num_batched_tokens", "enforce_eager", "kv_cache_dtype")),
        *((name, Restart.ENGINE) for name in ("rollout_quantization", "tensor_parallel_size", "sleep_level")),
        *((name, Restart.NONE) for name in ("micro_batch_size", "gradient_accumulation_steps", "logprob_token_chunk")),
        *((name, Restart.NONE) for name in ("gradient_checkpointing", "num_generations", "steps_per_generation")),
        ("optimizer", Restart.NONE),
    ],
)
def test_what_the_issue_names_is_classified_as_it_names_it(knob: str, expected: Restart) -> None:
    assert RESTART[knob] is expected
    assert restart_between({knob: 1}, {knob: 2}) is expected


def test_the_costliest_of_the_changes_counts() -> None:
    before = {"micro_batch_size": 1, "max_num_seqs": 8, "precision": "bf16"}
    assert restart_between(before, before) is Restart.NONE
    assert restart_between(before, {**before, "micro_batch_size": 2}) is Restart.NONE
    assert restart_between(before, {**before, "micro_batch_size": 2, "max_num_seqs": 16}) is Restart.ENGINE
    assert restart_between(before, {**before, "precision": "fp32", "max_num_seqs": 16}) is Restart.PROCESS


def test_a_knob_that_is_not_set_has_the_frameworks_default() -> None:
    assert restart_between({}, {"rollout_engine": "transformers"}) is Restart.NONE
    assert restart_between({}, {"rollout_engine": "vllm"}) is Restart.PROCESS
    assert restart_between({"rollout_engine": "vllm"}, {}) is Restart.PROCESS
    assert "max_num_seqs" not in defaults("trl")
    assert restart_between({}, {"max_num_seqs": 8}) is Restart.ENGINE


def test_an_unknown_knob_costs_the_process() -> None:
    assert restart_between({"of_tomorrow": 1}, {"of_tomorrow": 2}) is Restart.PROCESS
    assert restart_between({}, {"of_tomorrow": 2}) is Restart.PROCESS
