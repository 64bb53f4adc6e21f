"""vLLM beside the trainer on one GPU: lengths, weights that arrive, sleep, and FP8."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.configuration import KnobValue
from tests.gpu.device import require
from tests.support.trl_trials import LENGTHS, PLAIN, Ran, reward_file, run_trial, tiny_spec
from trainer.child.contract import CycleKind, FailureReason, NoteRecord, Pool, Protocol

pytestmark = [pytest.mark.gpu, pytest.mark.trl]

ENGINE: dict[str, KnobValue] = {
    "rollout_engine": "vllm",
    "gpu_memory_utilization": 0.1,
    "max_model_len": 1024,
    "enforce_eager": True,
    "precision": "bf16",
}
PROTOCOL = Protocol(warmup=1, natural=1, recorded=3, maximum=1, lengths=LENGTHS, outside_cpu_limit=9.0)
LEARNING = {"learning_rate": 1e-3, "lr_scheduler_type": "constant"}
"""Steps large enough that an engine left with old weights would be seen at once."""
FP8 = (8, 9)


def trial(tiny: Path, name: str, **knobs: KnobValue) -> Ran:
    spec = tiny_spec(tiny, reward_file(tiny / name, PLAIN), PROTOCOL, knobs=knobs, passthrough=LEARNING)
    return run_trial(tiny / name / "run", replace(spec, device="cuda"))


@pytest.fixture(scope="module")
def colocated(tiny: Path) -> Ran:
    require("vllm")
    return trial(tiny, "colocated", **ENGINE)


@pytest.fixture(scope="module")
def asleep(tiny: Path) -> Ran:
    require("vllm")
    return trial(tiny, "asleep", **{**ENGINE, "sleep_level": 2})


def agrees(ran: Ran, limit: float) -> bool:
    seen = [cycle.logp_mismatch for cycle in ran.cycles]
    return len(seen) >= 5 and all(value is not None and 1.0 <= value < limit for value in seen)


def test_lengths_are_exact(colocated: Ran) -> None:
    assert colocated.result.ok, colocated.result.detail
    for cycle in colocated.of(CycleKind.RECORDED):
        assert Counter(cycle.lengths) == Counter(LENGTHS)


def test_the_engine_has_the_weights_the_trainer_has(colocated: Ran) -> None:
    """After every update: an engine left with older ones drifts away from cycle to cycle."""
    assert agrees(colocated, 1.05), [cycle.logp_mismatch for cycle in colocated.cycles]
    assert all(cycle.phases["sync"] > 0 for cycle in colocated.of(CycleKind.RECORDED))


def test_what_the_engine_holds_is_told(colocated: Ran) -> None:
    for cycle in colocated.of(CycleKind.RECORDED):
        assert cycle.engine_bytes > 0
        assert 0 < cycle.cache_usage <= 1


def test_an_engine_that_sleeps_leaves_its_memory_to_the_update(colocated: Ran, asleep: Ran) -> None:
    assert asleep.result.ok, asleep.result.detail
    assert agrees(asleep, 1.05), "weights that were dropped must come back"

    def used(ran: Ran, phase: str) -> int:
        return max(cycle.peaks[phase].device_used or 0 for cycle in ran.of(CycleKind.RECORDED))

    assert used(asleep, "update") < 0.8 * used(colocated, "update")
    assert used(asleep, "generate") > 0.9 * used(colocated, "generate"), "it was awake then, whatever came after"


def test_the_share_is_what_the_engine_takes(tiny: Path, colocated: Ran) -> None:
    wide = trial(tiny, "wide", **{**ENGINE, "gpu_memory_utilization": 0.2})
    assert wide.result.ok, wide.result.detail
    took = [ran.of(CycleKind.RECORDED)[0].engine_bytes or 0 for ran in (colocated, wide)]
    assert 1.6 * took[0] < took[1] < 2.5 * took[0]


def test_graphs_are_captured_up_to_the_size_asked_for(tiny: Path) -> None:
    """vLLM cuts a size it does not have to one it has; what it made of ours would be noted."""
    require("vllm")
    ran = trial(tiny, "graphs", **{**ENGINE, "enforce_eager": False, "cuda_graph_max_batch": 8, "max_num_seqs": 16})
    assert ran.result.ok, ran.result.detail
    assert agrees(ran, 1.05), [cycle.logp_mismatch for cycle in ran.cycles]
    assert [record.name for record in ran.records if isinstance(record, NoteRecord)].count("engine_has") == 0


def test_a_cache_too_small_for_one_sequence_is_the_caches_failure(tiny: Path) -> None:
    """1 MiB is room for about 1,000 tokens of the tiny model, and one sequence may have 4,096."""
    require("vllm")
    ran = trial(tiny, "small", **{**ENGINE, "kv_cache_memory_bytes": 1 << 20, "max_model_len": 4096})
    assert not ran.result.ok
    assert (ran.result.reason, ran.result.pool) == (FailureReason.OOM, Pool.ROLLOUT_CACHE), ran.result.detail


def test_an_fp8_engine_is_close_to_the_trainer(tiny: Path) -> None:
    """NeMo-RL's limit for going on with a run is 1.1."""
    require("vllm", capability=FP8)
    ran = trial(tiny, "fp8-engine", **{**ENGINE, "rollout_quantization": "fp8"})
    assert ran.result.ok, ran.result.detail
    assert agrees(ran, 1.1), [cycle.logp_mismatch for cycle in ran.cycles]


def test_an_fp8_engine_that_slept_has_its_weights_again(tiny: Path) -> None:
    """Sleep drops them, and the sync quantises them anew: legal together, so both at once have to work."""
    require("vllm", capability=FP8)
    ran = trial(tiny, "fp8-asleep", **{**ENGINE, "rollout_quantization": "fp8", "sleep_level": 2})
    assert ran.result.ok, ran.result.detail
    assert agrees(ran, 1.1), [cycle.logp_mismatch for cycle in ran.cycles]


def test_a_cache_in_fp8_is_close_to_the_trainer_or_refused(tiny: Path) -> None:
    """Not every attention backend has it; one that has not must not measure a cache in bf16 under that name."""
    require("vllm", capability=FP8)
    ran = trial(tiny, "fp8-cache", **{**ENGINE, "kv_cache_dtype": "fp8"})
    if not ran.result.ok:
        assert ran.result.reason is FailureReason.ILLEGAL, ran.result.detail
        return
    assert agrees(ran, 1.1), [cycle.logp_mismatch for cycle in ran.cycles]


def test_fp8_training_runs_and_is_not_obviously_broken(tiny: Path) -> None:
    require("torchao", capability=FP8)
    ran = trial(tiny, "fp8", precision="fp8", master_weights="bf16")
    assert ran.result.ok, ran.result.detail
    for cycle in ran.cycles:
        assert cycle.loss is not None
        assert cycle.grad_norm < 1e3
