"""The thread that reads GPUs beside a trial: it opens and closes the driver, follows the mark, and ends when told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import GpuReading
from autotune.running import gpu_sampler
from autotune.running.gpu_sampler import GpuSampler
from tests.support import factories as make
from tests.support.fakes import FakeClock
from trainer.child.contract import PhaseMark


class Reader:
    """A reader of one GPU whose figures tests choose; knows on which thread it is used."""

    def __init__(self) -> None:
        self.busy = 0.5
        self.mhz, self.hot = 1980.0, 0.0
        self.reads = 0
        self.faulty: list[GpuFault] = []
        self.closed = threading.Event()
        self.enough = threading.Event()

    def read(self) -> tuple[GpuReading, ...]:
        self.reads += 1
        if self.reads >= 3:
            self.enough.set()
        return (GpuReading(busy=self.busy, sm_mhz=self.mhz, sm_mhz_max=1980.0, hot=self.hot),)

    def faults(self) -> tuple[GpuFault, ...]:
        return tuple(self.faulty.pop() for _ in range(len(self.faulty)))

    def close(self) -> None:
        self.closed.set()


def sampler(open_reader: Callable[[], Any], folder: Path, clock: FakeClock | None = None) -> GpuSampler:
    return GpuSampler(open_reader, folder / "phase", clock or FakeClock())


def test_a_cycle_gets_what_was_read_in_it(tmp_path: Path) -> None:
    clock, reader, mark = FakeClock(), Reader(), PhaseMark(tmp_path / "phase")
    here = sampler(lambda: reader, tmp_path, clock)
    here.look(reader)  # type: ignore[arg-type]
    started = clock.now()
    for cycle in (0, 1):
        for phase, busy in (("generate", 0.2 + cycle / 2), ("update", 0.4)):
            mark.set(phase, cycle, "recorded")
            reader.busy = busy
            for _ in range(5):
                clock.advance(0.2)
                here.look(reader)  # type: ignore[arg-type]
    records = [
        make.cycle(n, seconds=2.0, phases={"generate": 1.0, "update": 1.0}, started=started + 2.0 * n) for n in (0, 1)
    ]
    cycles = [here.add_to(record) for record in records]
    assert [cycles[n].gpu["generate"].busy for n in (0, 1)] == pytest.approx([0.2, 0.7])
    assert [cycles[n].gpu["update"].samples for n in (0, 1)] == [5, 5]
    assert here.add_to(make.cycle(1, rank=1)).gpu == {}, "one record has the figures of all GPUs"
    assert len(here._samples) <= 12, "what lies before a cycle that was told is forgotten"


def test_without_a_driver_it_ends_by_itself_and_adds_nothing(tmp_path: Path) -> None:
    here = sampler(lambda: None, tmp_path)
    here.start()
    here.join(30)
    assert not here.is_alive()
    here.finish()
    assert here.add_to(make.cycle()).gpu == {}
    sampler(lambda: None, tmp_path).finish()  # one that was never started


def test_where_a_reading_costs_much_there_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the share of a core it takes stays below the limit, however slow the driver is."""
    reader, waits, ticks = Reader(), list[float](), iter(range(1000))
    here = sampler(lambda: reader, tmp_path)
    monkeypatch.setattr(gpu_sampler.time, "thread_time", lambda: 0.05 * next(ticks))

    def wait(pause: float) -> bool:
        waits.append(pause)
        return len(waits) > 3

    monkeypatch.setattr(here._done, "wait", wait)
    here.run()
    assert waits[0] == 0.0
    assert waits[1:] == pytest.approx([0.05 / gpu_sampler.DUTY] * 3)


def test_it_is_bounded_in_a_cycle_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sampler, "MOST_SAMPLES", 10)
    reader: Any = Reader()
    here = sampler(lambda: reader, tmp_path)
    for _ in range(50):
        here.look(reader)
    assert len(here._samples) == 10


def test_the_thread_reads_until_it_is_told_to_end_and_a_fault_of_the_last_moment_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver tells of it while the trial's process dies of it."""
    monkeypatch.setattr(gpu_sampler, "PERIOD_S", 0.0)
    reader, clock = Reader(), FakeClock()
    here = sampler(lambda: reader, tmp_path, clock)
    here.start()
    assert reader.enough.wait(30)
    assert here.faults == ()
    fault = GpuFault("GPU-a", 0, "it has fallen off the bus (XID 79)")
    reader.faulty.append(fault)
    assert not reader.closed.is_set()
    here.finish()
    assert here.faults == (fault,)
    assert reader.closed.is_set()
    assert not here.is_alive()


def test_a_driver_that_never_answers_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sampler, "END_S", 0.05)
    answers = threading.Event()
    here = sampler(lambda: answers.wait(60) and None, tmp_path)
    here.start()
    here.finish()
    assert here.is_alive()
    answers.set()
    here.join(30)
    assert not here.is_alive()


def clocked(tmp_path: Path, clocks: list[tuple[float, float]], **changes: Any) -> list[tuple[bool, float | None]]:
    """(marked, drift) of cycles in which the GPU had this clock and was held down by heat this share of the time."""
    clock, reader, mark = FakeClock(), Reader(), PhaseMark(tmp_path / "phase")
    here, verdicts = sampler(lambda: reader, tmp_path, clock), []
    for index, (mhz, hot) in enumerate(clocks):
        started = clock.now()
        mark.set("update", index, "recorded")
        reader.mhz, reader.hot = mhz, hot
        for _ in range(5):
            clock.advance(0.2)
            here.look(reader)  # type: ignore[arg-type]
        record = make.cycle(index, seconds=1.0, phases={"update": 1.0}, started=started, drift=0.01, **changes)
        found = here.add_to(record)
        verdicts.append((found.noisy, found.drift))
    return verdicts


def test_a_cycle_whose_clock_fell_is_marked_with_what_it_lost(tmp_path: Path) -> None:
    marked = clocked(tmp_path, [(1980, 0), (1930, 0), (1584, 0), (1980, 0)])
    assert [noisy for noisy, _ in marked] == [False, False, True, False]
    assert [drift for _, drift in marked] == pytest.approx([0.01, 0.01, 0.2, 0.01])


def test_heat_is_seen_in_the_first_cycle_too(tmp_path: Path) -> None:
    ((noisy, drift),) = clocked(tmp_path, [(990, 1.0)])
    assert noisy
    assert drift == pytest.approx(0.5)
    assert clocked(tmp_path, [(990, 0.0)]) == [(False, 0.01)], "a power limit that was always there is the machine's"


def test_a_cycle_that_was_not_accepted_stays_as_it_is(tmp_path: Path) -> None:
    assert clocked(tmp_path, [(990, 1.0)], accepted=False) == [(False, 0.01)]
