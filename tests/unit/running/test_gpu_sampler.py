"""The thread that reads GPUs beside a trial: it opens and closes the driver, follows the mark, and ends when told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
        self.reads = 0
        self.closed = threading.Event()
        self.enough = threading.Event()

    def read(self) -> tuple[GpuReading, ...]:
        self.reads += 1
        if self.reads >= 3:
            self.enough.set()
        return (GpuReading(busy=self.busy),)

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
    told = [here.add_to(record) for record in records]
    assert [told[n].gpu["generate"].busy for n in (0, 1)] == pytest.approx([0.2, 0.7])
    assert [told[n].gpu["update"].samples for n in (0, 1)] == [5, 5]
    assert here.add_to(make.cycle(1, rank=1)).gpu == {}, "one record has the figures of all GPUs"
    assert len(here._samples) <= 12, "what lies before a cycle that was told is forgotten"


def test_the_thread_reads_until_it_is_told_to_end_and_closes_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_sampler, "PERIOD_S", 0.0)
    reader = Reader()
    here = sampler(lambda: reader, tmp_path)
    here.start()
    assert reader.enough.wait(30)
    assert not reader.closed.is_set()
    here.finish()
    assert reader.closed.is_set()
    assert not here.is_alive()


def test_without_a_driver_it_ends_by_itself_and_adds_nothing(tmp_path: Path) -> None:
    here = sampler(lambda: None, tmp_path)
    here.start()
    here.join(30)
    assert not here.is_alive()
    here.finish()
    assert here.add_to(make.cycle()).gpu == {}


def test_one_that_was_never_started_may_be_finished(tmp_path: Path) -> None:
    sampler(lambda: None, tmp_path).finish()


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
