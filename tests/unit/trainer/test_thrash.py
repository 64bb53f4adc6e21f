"""A device's allocator that frees its cache and tries again in every cycle: out of memory, only slower."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import FailureReason, Outcome, Pool
from autotune.frameworks import framework_named
from autotune.running.ending import Ending, outcome_of
from trainer.child.contract import CurrentPhase, CycleKind, Phase, RunPaths
from trainer.child.failures import ThrashError, classify
from trainer.child.journal import Journal
from trainer.child.memory import MemoryWatch, ThrashWatch, thrashing, worst_phase
from trainer.child.meter import Meter

COUNTS = st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=12)


@pytest.mark.parametrize(
    ("retries", "said"),
    [
        ([], False),
        ([9], False),
        ([3, 0], False),
        ([0, 4], False),
        ([3, 0, 4], False),
        ([3, 4], True),
        ([0, 0, 1, 1], True),
        ([None, None], False),
        ([None, 4], False),
    ],
)
def test_two_cycles_on_end(retries: list[int | None], said: bool) -> None:
    assert bool(thrashing(retries)) is said


@given(COUNTS)
def test_it_ends_at_the_first_pair_and_not_before(retries: list[int | None]) -> None:
    watch, pairs = ThrashWatch(), [bool(a) and bool(b) for a, b in itertools.pairwise(retries)]
    first = pairs.index(True) + 1 if True in pairs else None
    for number, count in enumerate(retries):
        by_phase = None if count is None else {"generate": 0, "update": count}
        if number == first:
            with pytest.raises(ThrashError) as raised:
                watch.cycle(CycleKind.RECORDED, by_phase)
            assert raised.value.phase is Phase.UPDATE
            return
        watch.cycle(CycleKind.RECORDED, by_phase)
    assert first is None


def test_the_warm_up_fills_the_cache_and_does_not_count() -> None:
    watch = ThrashWatch()
    for _ in range(3):
        watch.cycle(CycleKind.WARMUP, {"update": 9})
    watch.cycle(CycleKind.NATURAL, {"update": 1})
    with pytest.raises(ThrashError):
        watch.cycle(CycleKind.MAXIMUM, {"update": 1})


def test_the_place_is_where_it_retried_most() -> None:
    assert worst_phase({"generate": 1, "update": 4, "sync": 4}) is Phase.UPDATE
    assert worst_phase({"generate": 0}) is None
    assert worst_phase({}) is None


def test_it_ends_as_out_of_device_memory_with_a_knob_to_turn() -> None:
    error = ThrashError(thrashing([7, 2, 3]) or "", Phase.LOGPROB)
    result = classify(error, Phase.IDLE)
    got: Outcome = outcome_of(
        Ending(1, 9.0, result=result, phase=CurrentPhase("idle", 4, "recorded")), framework_named("trl"), ""
    )
    assert (got.reason, got.pool, got.phase) == (FailureReason.OOM, Pool.DEVICE, "logprob")
    assert got.message == "allocator retried 2 and 3 times in two consecutive cycles"
    assert "lower logprob_rows" in got.suggestion


class Cuda:
    """CUDA's allocator as far as the watch asks it."""

    def __init__(self) -> None:
        self.retries = self.peak = 0
        self.free = 60

    def mem_get_info(self) -> tuple[int, int]:
        return self.free, 100

    def memory_stats(self) -> dict[str, Any]:
        return {
            "num_alloc_retries": self.retries,
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.peak": self.peak + 8,
        }

    def reset_peak_memory_stats(self) -> None:
        self.peak = 0


def test_retries_and_peaks_belong_to_the_phase_and_the_cycle_they_happened_in() -> None:
    watch, cuda = MemoryWatch(), Cuda()
    watch._cuda = cuda
    cuda.retries, cuda.peak = 5, 77  # before the cycle
    watch.begin()
    cuda.peak = 30
    watch.close(Phase.GENERATE)
    cuda.retries, cuda.peak = 7, 50
    watch.close(Phase.UPDATE)
    cuda.retries = 8
    watch.close(Phase.GENERATE)
    assert watch.retries() == {"generate": 1, "update": 2}
    peaks = watch.peaks()
    assert (peaks["generate"].device_allocated, peaks["update"].device_allocated) == (30, 50)
    assert (peaks["cycle"].device_reserved, peaks["cycle"].device_used) == (58, 40)
    watch.begin()
    watch.close(Phase.UPDATE)
    assert watch.retries() == {"update": 0}


def test_what_an_engine_gives_back_when_it_goes_to_sleep_was_in_use_while_it_generated(tmp_path: Path) -> None:
    """The phase ends when the engine is asleep: read only then, its weights and cache would never have been there."""
    watch, cuda = MemoryWatch(), Cuda()
    watch._cuda = cuda
    meter = Meter(Journal(RunPaths(tmp_path)), watch)
    meter.begin(0, "recorded")
    with meter.phase(Phase.GENERATE):
        cuda.free = 10
        meter.look()
        cuda.free = 70
    with meter.phase(Phase.UPDATE):
        cuda.free = 40
    meter.end()
    peaks = meter.peaks()
    assert [peaks[name].device_used for name in ("generate", "update", "cycle")] == [90, 60, 90]


def test_a_cpu_has_no_such_allocator() -> None:
    watch = MemoryWatch()
    watch.begin()
    watch.close(Phase.UPDATE)
    assert watch.retries() is None
