"""A TRL trial on the device: its clock, its peaks, its ranks, and what it does when memory runs out."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.machine import gpu_choice
from autotune.running import launch as launching
from tests.gpu.device import BOTH, GPUS, require, synchronised, watched
from tests.support.not_none import not_none
from tests.support.trl_trials import LENGTHS, PLAIN, START, Ran, end, reward_file, tiny_spec, training_python
from tests.support.trl_trials import write_spec as written
from trainer.child.contract import CycleKind, FailureReason, Phase, Pool, Protocol

pytestmark = pytest.mark.trl

MIB = 1 << 20
WEIGHTS = 4 * 1_500_000
"""Bytes of the tiny model in fp32, at the least."""
PROTOCOL = Protocol(warmup=1, natural=0, recorded=2, maximum=1, lengths=LENGTHS, outside_cpu_limit=9.0)


@pytest.fixture(scope="module", params=BOTH)
def ran(request: pytest.FixtureRequest, tiny: Path) -> Ran:
    if request.param == "cuda":
        require()
    spec = tiny_spec(tiny, reward_file(tiny / request.param, f"time.sleep(0.1); {PLAIN}"), PROTOCOL)
    found = watched(tiny / request.param / "run", replace(spec, device=request.param))
    assert found.result.ok, found.result.detail
    return found


def on_cuda(ran: Ran) -> bool:
    return ran.paths.root.parent.name == "cuda"


def test_phases_sum_to_the_cycle(ran: Ran) -> None:
    """On CUDA they are times between events on the stream, the cycle is a clock's: both must tell of the same time."""
    assert len(ran.cycles) == 4
    for cycle in ran.cycles:
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds, rel=2e-3)
        assert all(seconds >= 0 for seconds in cycle.phases.values())
        assert {"generate", "reward", "update"} <= {name for name, seconds in cycle.phases.items() if seconds > 0}


def test_what_the_host_does_is_in_its_phase_though_the_device_waits(ran: Ran) -> None:
    """A reward that sleeps puts no work on the stream; its time is the reward's all the same."""
    for cycle in ran.cycles:
        assert 0.095 <= cycle.phases["reward"] <= cycle.seconds


def test_nothing_of_ours_waits_for_the_device_inside_a_cycle(ran: Ran) -> None:
    """A wait inside would make every trial slower than the user's own run."""
    counts = synchronised(ran)
    assert counts["cycles"] == len(ran.cycles)
    assert counts["outside"] >= 2 * len(ran.cycles), "the observer itself sees nothing"
    assert counts["inside"] == []


def test_lengths_are_exact_on_the_device(ran: Ran) -> None:
    for cycle in ran.of(CycleKind.RECORDED):
        assert Counter(cycle.lengths) == Counter(LENGTHS)


def test_peaks_are_those_of_the_device(ran: Ran) -> None:
    """Allocated is within reserved, and reserved within what the driver sees in use."""
    for cycle in ran.cycles:
        assert {"generate", "update", "cycle"} <= set(cycle.peaks)
        for peaks in cycle.peaks.values():
            assert peaks.host > 0
            if not on_cuda(ran):
                assert (peaks.device_allocated, peaks.device_reserved, peaks.device_used) == (None, None, None)
                continue
            allocated, reserved, used = peaks.device_allocated, peaks.device_reserved, peaks.device_used
            assert WEIGHTS < allocated <= reserved <= used <= GPUS[0].memory
    if on_cuda(ran):
        update = not_none(ran.of(CycleKind.RECORDED)[-1].peaks["update"].device_allocated)
        assert update > 4 * WEIGHTS, "weights, gradients and two moments are there in the update"


def test_the_worst_case_was_tried(ran: Ran) -> None:
    assert (ran.worst_case.prompt_tokens, ran.worst_case.completion_tokens) == (48, 16)


@pytest.mark.gpu
def test_running_out_in_the_update_is_told_so(tiny: Path) -> None:
    """The allocator's own error, met in the backward pass of 16 long rows with whole attention matrices."""
    require()
    spec = tiny_spec(
        tiny,
        reward_file(tiny / "oom-update", PLAIN),
        Protocol(warmup=1, recorded=1, lengths=(64,)),
        max_completion_length=1536,
        knobs={"micro_batch_size": 16, "attn_implementation": "eager"},
    )
    found = watched(tiny / "oom-update" / "run", replace(spec, device="cuda"), 1024 * MIB)
    assert (found.result.reason, found.result.pool) == (FailureReason.OOM, Pool.DEVICE), found.result.detail
    assert found.result.phase is Phase.UPDATE
    assert "out of memory" in found.result.message
    assert not found.cycles


@pytest.mark.gpu
def test_running_out_in_generation_is_told_so(tiny: Path) -> None:
    """The KV cache of 16 rows of 4,000 tokens needs 134 MB, and twice a layer's while it grows."""
    require()
    spec = tiny_spec(
        tiny,
        reward_file(tiny / "oom-generate", PLAIN),
        Protocol(warmup=1, recorded=1, lengths=(64,)),
        max_completion_length=4000,
    )
    found = watched(tiny / "oom-generate" / "run", replace(spec, device="cuda"), 160 * MIB)
    assert (found.result.reason, found.result.pool) == (FailureReason.OOM, Pool.DEVICE), found.result.detail
    assert found.result.phase is Phase.GENERATE


@pytest.mark.gpu
def test_ranks_that_wait_for_each_other_are_seen_waiting(tiny: Path) -> None:
    """One reward in two sleeps, so the other rank waits for it: that is no time of its own phases."""
    require(gpus=2)
    reward = reward_file(tiny / "ranks", f"import os; time.sleep(0.5 * (os.environ['RANK'] == '1')); {PLAIN}")
    spec = replace(tiny_spec(tiny, reward, PROTOCOL, knobs={"gradient_accumulation_steps": 2}), device="cuda")
    paths = written(tiny / "ranks" / "run", replace(spec, world_size=2))
    command = launching.command(training_python(), START, paths, replace(spec, world_size=2))
    environment = {**os.environ, **gpu_choice.environment(GPUS[:2])}
    with paths.log.open("wb") as log:
        process = subprocess.Popen(command, cwd=paths.scratch, stdout=log, stderr=log, env=environment)
    end(process)
    assert paths.result.exists(), paths.log.read_text()[-3000:]
    found = Ran(paths.root)
    assert found.result.ok, found.result.detail
    waited = [cycle.phases.get("wait", 0.0) for cycle in found.cycles if cycle.rank == 0]
    assert waited
    assert all(seconds > 0.3 for seconds in waited)
