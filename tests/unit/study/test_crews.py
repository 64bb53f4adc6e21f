"""Several runners on threads of their own: what they tell is told on the loop's thread, and none is left behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Outcome
from autotune.ports import Assignment, RunReport, StopToken, Watcher
from autotune.study.crews import Alone, ClosedError, SideBySide
from tests.support import factories as f
from tests.support.fakes import FakeStop
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import NoteRecord


def _assignment(number: int) -> Assignment:
    return Assignment(f.study(), f.trial(number, attempt=1), Path(str(number)), 60.0)


@dataclass
class Meeting:
    """A runner that tells one record, waits until all of ``barrier`` have, and then goes on until it may end."""

    barrier: threading.Barrier
    may_end: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    ended_by: BaseException | None = None
    closed: int = 0

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        try:
            watcher.record(NoteRecord("began", {"trial": assignment.trial.number}))
            self.barrier.wait(PATIENCE_S)
            if self.error is not None:
                raise self.error
            while not self.may_end.wait(0.01):
                watcher.tick()
                if stop.level >= 2:
                    return RunReport(Outcome(), 2.0)
            assert watcher.enough is True
        except BaseException as error:
            self.ended_by = error
            raise
        return RunReport(Outcome(), 1.0)

    def close(self) -> tuple[int, ...]:
        self.closed += 1
        return ()

    def sweep(self, study_id: int) -> tuple[int, ...]:
        return (study_id,)

    def recover(self, directory: Path) -> Any:
        return (), None


@dataclass
class Heard:
    """A watcher that notes on which thread it was told."""

    threads: set[int] = field(default_factory=set)
    notes: list[int] = field(default_factory=list)
    fails: BaseException | None = None

    @property
    def enough(self) -> bool | None:
        self.threads.add(threading.get_ident())
        return True

    def record(self, record: Any) -> None:
        self.threads.add(threading.get_ident())
        self.notes.append(record.data["trial"])
        if self.fails is not None:
            raise self.fails

    def phase(self, phase: Any) -> None: ...

    def tick(self) -> None:
        self.threads.add(threading.get_ident())


def _crew(count: int, stop: FakeStop | None = None) -> tuple[SideBySide, list[Meeting]]:
    barrier = threading.Barrier(count)
    runners = [Meeting(barrier) for _ in range(count)]
    return SideBySide([(f"GPU {n}", runner) for n, runner in enumerate(runners)], stop or FakeStop()), runners


def _wait(crew: SideBySide) -> tuple[tuple[int, RunReport], ...]:
    for _ in range(int(PATIENCE_S / 0.2)):
        if ended := crew.wait(0.2):
            return ended
    raise AssertionError("no attempt ended")


def test_all_run_at_once_and_every_watcher_is_told_on_the_thread_that_waits() -> None:
    crew, runners = _crew(3)
    heard = [Heard() for _ in runners]
    for place, watcher in enumerate(heard):
        crew.start(place, _assignment(place), watcher)
    assert crew.wait(0.5) == (), "the barrier opens only if all three run"
    for runner in runners:
        runner.may_end.set()
    ended = [_wait(crew) for _ in runners]
    assert {place for ((place, _),) in ended} == {0, 1, 2}
    assert all(watcher.threads == {threading.get_ident()} for watcher in heard)
    assert [watcher.notes for watcher in heard] == [[0], [1], [2]]
    assert crew.close() == ()
    assert [runner.closed for runner in runners] == [1, 1, 1]


def test_an_error_of_one_runner_is_the_loops_and_the_others_are_ended() -> None:
    crew, runners = _crew(2)
    runners[0].error = OSError("disk full")
    for place in range(2):
        crew.start(place, _assignment(place), Heard())
    with pytest.raises(OSError, match="disk full"):
        _wait(crew)
    crew.close()
    assert runners[1].ended_by is None or isinstance(runners[1].ended_by, ClosedError)
    assert not [t for t in threading.enumerate() if t.name.startswith("trial ")]


def test_what_a_watcher_raises_ends_its_attempt_and_is_raised() -> None:
    crew, runners = _crew(1)
    crew.start(0, _assignment(0), Heard(fails=RuntimeError("database gone")))
    with pytest.raises(RuntimeError, match="database gone"):
        _wait(crew)
    assert isinstance(runners[0].ended_by, RuntimeError), "so that it ended its processes"
    crew.close()


def test_the_users_second_stop_reaches_every_runner() -> None:
    stop = FakeStop()
    crew, runners = _crew(2, stop)
    for place in range(2):
        crew.start(place, _assignment(place), Heard())
    stop.level = 2
    reports = [_wait(crew)[0][1].seconds for _ in runners]
    assert reports == [2.0, 2.0]
    crew.close()


def test_closing_while_attempts_run_leaves_no_thread() -> None:
    crew, runners = _crew(2)
    for place in range(2):
        crew.start(place, _assignment(place), Heard())
    crew.wait(0.2)
    crew.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("trial ")]
    assert [runner.closed for runner in runners] == [1, 1]


def test_one_runner_is_run_on_the_thread_that_waits() -> None:
    runner = Meeting(threading.Barrier(1))
    runner.may_end.set()
    heard = Heard()
    crew = Alone(runner, FakeStop())
    assert crew.wait(1.0) == ()
    crew.start(0, _assignment(0), heard)
    assert [place for place, _ in crew.wait(1.0)] == [0]
    assert heard.threads == {threading.get_ident()}
    assert crew.sweep(7) == (7,)
