from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import MachineError
from autotune.machine.nvml import Gpu, GpuProcess
from autotune.running.gpu_guard import GpuGuard
from tests.support.fakes import FakeClock
from tests.support.not_none import not_none

GIB = 1 << 30
FREE = Gpu(0, "GPU-a", "Example", 80 * GIB, 10 << 20, (9, 0), "580.1")


class Bench:
    """GPUs that tests change, and a clock; ``later`` happens once the clock has moved."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.gpus: tuple[Gpu, ...] = (FREE,)
        self.later: tuple[float, tuple[Gpu, ...]] | None = None

    def look(self) -> tuple[Gpu, ...]:
        if self.later and self.clock.monotonic() >= self.later[0]:
            self.gpus = self.later[1]
        return self.gpus

    def guard(self, *, pids_are_ours: bool = True, allow_busy: bool = False, here: set[int] | None = None) -> GpuGuard:
        computes = (lambda _: True) if here is None else here.__contains__
        return GpuGuard(self.look, pids_are_ours=pids_are_ours, allow_busy=allow_busy, computes=computes)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def holding(size: int, *pids: int) -> tuple[Gpu, ...]:
    return (replace(FREE, memory_used=size, processes=tuple(GpuProcess(p, None) for p in pids)),)


@pytest.mark.parametrize("gpus", [holding(10 << 20, 77), holding(20 * GIB), holding(20 * GIB, 77)])
def test_a_gpu_in_use_is_refused_after_a_bounded_wait(bench: Bench, gpus: tuple[Gpu, ...]) -> None:
    bench.gpus = gpus
    refusal = not_none(bench.guard().before(bench.clock))
    assert "GPU 0 is in use" in refusal
    assert 0 < bench.clock.monotonic() < 60


def test_memory_that_is_freed_in_time_is_waited_for(bench: Bench) -> None:
    bench.gpus, bench.later = holding(20 * GIB), (4.0, (FREE,))
    assert bench.guard().before(bench.clock) is None


def test_a_busy_gpu_is_accepted_and_remembered_if_allowed(bench: Bench) -> None:
    bench.gpus = holding(20 * GIB, 77)
    guard = bench.guard(allow_busy=True)
    assert guard.before(bench.clock) is None
    assert guard.busy is not None
    assert bench.clock.monotonic() == 0
    assert [guard.during({5}) for _ in range(3)] == [None, None, None]
    assert guard.after(bench.clock) is None, "the neighbour's memory is not held by us"


def test_a_stranger_is_named_the_second_time_it_is_seen(bench: Bench) -> None:
    guard = bench.guard()
    guard.before(bench.clock)
    bench.gpus = holding(30 * GIB, 5, 88)
    assert guard.during({5}) is None
    found = not_none(guard.during({5}))
    assert "88" in found
    assert "5" not in found


def test_a_process_of_ours_seen_late_is_no_stranger(bench: Bench) -> None:
    guard = bench.guard()
    guard.before(bench.clock)
    bench.gpus = holding(30 * GIB, 5, 6)
    assert guard.during({5}) is None
    assert guard.during({5, 6}) is None


@pytest.mark.parametrize("given", [{"pids_are_ours": False}, {"here": {5}}])
def test_ids_of_another_system_or_nobodys_here_accuse_nobody(bench: Bench, given: Any) -> None:
    """A virtual machine has the initial process namespace, and its driver may report the host's ids all the same."""
    guard = bench.guard(**given)
    guard.before(bench.clock)
    bench.gpus = holding(30 * GIB, 40_005)
    assert [guard.during({5}) for _ in range(3)] == [None, None, None]
    bench.gpus = holding(30 * GIB, 5, 6)
    guard = bench.guard(here={5, 6})
    assert [guard.during({5}), "(6)" in str(guard.during({5}))] == [None, True]


def test_a_gpu_is_not_in_use_by_an_id_that_is_nobodys_here(bench: Bench) -> None:
    bench.gpus = holding(10 << 20, 40_005)
    assert bench.guard(here=set()).before(bench.clock) is None
    bench.gpus = holding(20 * GIB, 40_005)
    refusal = not_none(bench.guard(here=set()).before(bench.clock))
    assert "40005" not in refusal
    assert "20.0 GiB taken" in refusal


def test_every_gpu_is_watched_whichever_side_of_a_split_it_is_on(bench: Bench) -> None:
    """A stranger on the rollout server's GPU spoils a trial as much as one beside the training."""
    four = tuple(replace(FREE, index=n, uuid=f"GPU-{n}") for n in range(4))
    last = (*four[:3], replace(four[3], memory_used=20 * GIB, processes=(GpuProcess(88, None),)))
    bench.gpus = last
    assert "GPU 3 is in use by process 88" in str(bench.guard().before(bench.clock))
    bench.gpus = four
    guard = bench.guard()
    assert guard.before(bench.clock) is None
    bench.gpus = last
    assert guard.during({5}) is None
    assert "88" in str(guard.during({5}))
    bench.gpus = (*four[:3], replace(four[3], memory_used=5 * GIB))
    assert "GPU 3 still holds 5.0 GiB" in str(guard.after(bench.clock))


def test_a_gpu_that_does_not_answer_is_a_reason_not_an_exception(bench: Bench) -> None:
    def lost() -> tuple[Gpu, ...]:
        raise MachineError("GPU is lost")

    guard = GpuGuard(lost, pids_are_ours=True, allow_busy=False)
    assert guard.before(bench.clock) == "GPU is lost"
    assert guard.during(set()) == "GPU is lost"
    assert guard.after(bench.clock) == "GPU is lost"


def test_the_next_trial_of_the_same_processes_is_not_refused_for_their_own_memory(bench: Bench) -> None:
    guard = bench.guard()
    assert guard.before(bench.clock) is None
    bench.gpus = holding(60 * GIB, 5)
    assert guard.during({5}) is None
    assert guard.again() is None
    assert bench.clock.monotonic() == 0.0
    assert guard.peaks == {}
    assert guard.during({5}) is None
    assert list(guard.peaks.values()) == [60 * GIB]
    bench.gpus = holding(60 * GIB, 5, 99)
    assert guard.during({5}) is None
    assert "99" in (guard.during({5}) or "")


def test_the_fullest_gpu_is_told_as_it_was_seen_last_and_the_most_is_kept_for_each(bench: Bench) -> None:
    """Whoever the process ids are of: of a rollout server's GPUs no process of the trainer can tell."""
    two = tuple(replace(FREE, index=n, uuid=f"GPU-{n}") for n in (2, 5))
    bench.gpus = two
    guard = bench.guard(pids_are_ours=False)
    guard.before(bench.clock)
    assert guard.used is None, "before the trial nothing is its own"
    for sizes in ((10, 30), (20, 25), (5, 1)):
        bench.gpus = tuple(replace(gpu, memory_used=size * GIB) for gpu, size in zip(two, sizes, strict=True))
        guard.during({5})
        assert guard.used == max(sizes) * GIB
    assert guard.peaks == {"2": 20 * GIB, "5": 30 * GIB}


def test_of_a_gpu_that_is_lost_nothing_is_told() -> None:
    seen = [(FREE,), (FREE,), (FREE,)]

    def look() -> tuple[Gpu, ...]:
        if not seen:
            raise MachineError("GPU is lost")
        return seen.pop()

    guard = GpuGuard(look, pids_are_ours=False)
    assert guard.before(FakeClock()) is None
    assert guard.during(set()) is None
    assert guard.used == FREE.memory_used
    assert guard.during(set()) == "GPU is lost"
    assert guard.used is None
