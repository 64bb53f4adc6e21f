"""What a running attempt keeps of its memory: bounded, written down in time, and with the peak that is reported."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from autotune.documents.memory_timeline import MOST_POINTS, MemoryTimeline, Point, peak, read, stretch, thinned
from autotune.domain import FailureReason
from autotune.ports import Assignment, RunReport
from autotune.running.watchdog import SAVE_S, Timeline
from tests.contracts.runner_suite import Seen, tagged
from tests.support.fakes import FakeClock, FakeStop
from tests.support.not_none import not_none
from tests.support.scripted import assignment, keeper, local_runner, searched
from trainer.child.contract import CurrentPhase, RunPaths

HOME = f"timeline-{os.getpid()}"
MIB = 1 << 20


class Bench:
    """A timeline whose clock and phase tests move."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.phase: CurrentPhase | None = None
        self.clock.advance(1000.0)
        self.began = self.clock.now()
        self.timeline = Timeline(path, self.clock, lambda: self.phase)

    def host(self, *used: int, every: float = 0.1) -> None:
        for size in used:
            self.timeline.host(size)
            self.clock.advance(every)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "memory.json")


@examples(deadline=None)
@given(used=st.lists(st.integers(0, 100), min_size=1, max_size=60), times=st.integers(1, 60))
def test_however_long_it_is_bounded_and_the_same_as_thinned_at_its_end(used: list[int], times: int) -> None:
    bench = Bench(Path("nowhere"))
    bench.host(*used * times)
    assert len(bench.timeline._host) < 2 * MOST_POINTS
    assert bench.timeline.timeline().host == thinned([Point(round(0.1 * n, 2), u) for n, u in enumerate(used * times)])


def test_a_long_attempt_keeps_its_resolution_from_beginning_to_end(bench: Bench) -> None:
    bench.host(*(n * 7919 % 1000 for n in range(20_000)))
    host = bench.timeline.timeline().host
    width = stretch(2000.0, MOST_POINTS)
    assert len(host) == 2000.0 / width
    assert [int(point.seconds / width) for point in host] == list(range(len(host)))


def test_a_point_has_the_phase_it_was_seen_in(bench: Bench) -> None:
    bench.host(1, every=0.2)
    bench.phase = CurrentPhase("load", -1, "")
    bench.host(2, every=0.2)
    bench.phase = CurrentPhase("update", 3, "recorded")
    bench.host(3, every=0.2)
    bench.timeline.device(4)
    bench.timeline.device(None)
    taken = bench.timeline.timeline()
    assert [(p.seconds, p.used, p.phase, p.cycle) for p in taken.host] == [
        (0.0, 1, "", -1),
        (0.2, 2, "load", -1),
        (0.4, 3, "update", 3),
    ]
    assert [(p.used, p.phase) for p in taken.device] == [(4, "update")]
    assert taken.began_at == bench.began


def test_a_killed_tuner_leaves_what_it_wrote_last_whole(bench: Bench) -> None:
    bench.timeline.save()
    assert not bench.path.exists(), "nothing was seen"
    bench.host(5)
    bench.clock.advance(SAVE_S)
    bench.timeline.save()
    first = read(bench.path)
    assert first == bench.timeline.timeline()
    bench.host(6)
    bench.timeline.save()
    assert read(bench.path) == first, "not with every look: a measurement may be going on"
    bench.clock.advance(SAVE_S)
    bench.timeline.save()
    assert read(bench.path) == bench.timeline.timeline() != first
    assert [path.name for path in bench.path.parent.iterdir()] == ["memory.json"]


def test_the_end_is_always_written(bench: Bench) -> None:
    bench.host(5, 6)
    bench.timeline.finish()
    assert read(bench.path) == bench.timeline.timeline()


def test_a_place_that_cannot_be_written_is_no_reason_to_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    bench = Bench(tmp_path / "file" / "memory.json")
    bench.host(5)
    bench.clock.advance(SAVE_S)
    bench.timeline.save()
    bench.timeline.finish()
    assert (tmp_path / "file").read_text() == "in the way"


def test_it_may_be_taken_while_the_watchdog_looks(bench: Bench) -> None:
    count = 20_000
    watchdog = threading.Thread(target=lambda: bench.host(*range(count), every=0.01))
    watchdog.start()
    while watchdog.is_alive():
        taken = bench.timeline.timeline()
        assert len(taken.host) <= MOST_POINTS
        assert [p.used for p in taken.host] == sorted(p.used for p in taken.host)
    watchdog.join()
    top = not_none(peak(bench.timeline.timeline().host))
    assert top.used == count - 1


def run(given: Assignment, **options: Any) -> tuple[RunReport, MemoryTimeline]:
    report = local_runner(HOME, **options).run(given, Seen(), FakeStop())
    found = not_none(read(RunPaths(given.directory).memory))
    return report, found


def test_an_attempt_leaves_its_memory_with_the_peak_it_reports(tmp_path: Path) -> None:
    began = time.time()
    acts = [{"do": "allocate", "at": 1, "bytes": 96 * MIB}, {"do": "sleep", "at": 1, "seconds": 0.5}]
    report, found = run(assignment(tmp_path / "attempt", {"acts": acts}))
    assert report.outcome.ok, report.outcome.sentence()
    top = not_none(peak(found.host))
    assert top.used == report.host_peak
    assert top.used > 96 * MIB
    assert top.cycle >= 0, "it was taken in a cycle"
    assert top.phase
    assert 0 <= found.began_at - began <= time.time() - began - found.host[-1].seconds
    assert found.host[-1].seconds <= report.seconds
    assert len(found.host) >= 4
    assert found.device == ()
    assert tagged(HOME) == []


def test_what_was_killed_for_its_memory_shows_it_above_the_limit(tmp_path: Path) -> None:
    acts = [{"do": "allocate", "at": 2, "bytes": 1500 * MIB, "pause": 0.01}]
    given = assignment(tmp_path / "attempt", {"acts": acts})
    limit = 700 * MIB  # the scripted model itself refuses less
    given = replace(given, study=replace(given.study, spec=replace(given.study.spec, memory_limit=limit)))
    report, found = run(given)
    assert report.outcome.reason is FailureReason.OOM
    top = not_none(peak(found.host))
    assert top.used == report.host_peak
    assert top.used > limit


def test_each_trial_of_a_worker_has_its_own(tmp_path: Path) -> None:
    kept = keeper(tmp_path / "workers")
    found = []
    for number in (1, 2):
        given = searched(assignment(tmp_path / str(number), {"sleep": 0.1}), number)
        report, timeline = run(given, keeper=kept)
        assert report.outcome.ok
        assert 0 <= timeline.host[0].seconds <= timeline.host[-1].seconds <= report.seconds
        found.append(timeline)
    assert kept.end() == ()
    assert found[1].began_at > found[0].began_at + found[0].host[-1].seconds - 0.1
