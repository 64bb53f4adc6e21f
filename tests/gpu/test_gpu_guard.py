"""Whose GPU it is, by the driver's own word: refused while a process holds memory, free again after it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from autotune.machine import hardware
from autotune.machine.clock import SystemClock
from autotune.running.gpu_guard import FREE_BYTES, GpuGuard
from tests.gpu.device import require
from tests.support.not_none import not_none
from tests.support.trl_trials import training_python

pytestmark = pytest.mark.gpu

HOLD = f"""
import sys, torch
held = torch.empty({2 * FREE_BYTES}, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.readline()
"""


def guard() -> GpuGuard:
    ours = hardware.driver_process_ids_are_ours()
    return GpuGuard(hardware.visible_gpus, pids_are_ours=ours, patience_s=3)


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """A process of somebody else's that holds twice what a free GPU may."""
    require()
    assert guard().before(SystemClock()) is None, "the GPU is not free, so nothing can be shown"
    process = subprocess.Popen(
        [training_python(), "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert not_none(process.stdout).readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_gpu_somebody_uses_is_refused(holder: subprocess.Popen[str]) -> None:
    refusal = not_none(guard().before(SystemClock()))
    assert "is in use" in refusal
    assert "GiB taken" in refusal


def test_it_is_free_again_when_they_are_gone(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert guard().before(SystemClock()) is None


def test_somebody_who_comes_during_a_trial_is_seen(holder: subprocess.Popen[str]) -> None:
    """By process ids, which tell something only where the driver's are this system's."""
    if not hardware.driver_process_ids_are_ours():
        pytest.skip("the driver reports process ids of another system here (a container)")
    if holder.pid not in {process.pid for gpu in hardware.visible_gpus() for process in gpu.processes}:
        pytest.skip("the driver does not list this system's processes by their ids here (a virtual machine)")
    watching = GpuGuard(hardware.visible_gpus, pids_are_ours=True, computes=hardware.has_gpu_open)
    assert watching.during(set()) is None
    said = not_none(watching.during(set()))
    assert str(holder.pid) in said


def test_memory_nobody_owns_after_a_trial_is_told(holder: subprocess.Popen[str]) -> None:
    own = GpuGuard(hardware.visible_gpus, pids_are_ours=False, patience_s=1)
    said = not_none(own.after(SystemClock()))
    assert "still holds" in said
