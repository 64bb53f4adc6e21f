"""What every ``ports.TrialRunner`` must do, whatever it runs.

Subclass ``TrialRunnerSuite`` with a ``runner`` fixture (``make_runner(**changes)``) and an ``assign``
fixture (``assign(**changes)`` gives an ``Assignment`` whose trial ends OK if it is left alone).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import FailureReason, Pool
from autotune.ports import Assignment, TrialRunner
from tests.support.fakes import FakeStop
from trainer.child.contract import (
    TAG_VARIABLE,
    CurrentPhase,
    CycleKind,
    CycleRecord,
    Record,
    RunPaths,
    StartupRecord,
    WorstCaseRecord,
)

MakeRunner = Callable[..., TrialRunner]
Assign = Callable[..., Assignment]


class RealClock:
    """Runners deal with real processes, which take real time."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class Seen:
    """A watcher that keeps what it is told; ``react`` is called with each record."""

    react: Callable[[Record], None] = lambda record: None
    on_tick: Callable[[], None] = lambda: None
    records: list[Record] = field(default_factory=list)
    phases: list[CurrentPhase] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    enough: bool | None = None

    def record(self, record: Record) -> None:
        self.records.append(record)
        self.react(record)

    def phase(self, phase: CurrentPhase) -> None:
        self.phases.append(phase)

    def tick(self) -> None:
        self.ticks.append(time.monotonic())
        self.on_tick()

    def cycles(self) -> list[CycleRecord]:
        return [r for r in self.records if isinstance(r, CycleRecord)]


def looked(assignment: Assignment) -> Assignment:
    """The same with a trial that may be ended early."""
    protocol = replace(assignment.trial.protocol, recorded=6, looks=(1, 3, 6))
    return replace(assignment, trial=assignment.trial.with_(protocol=protocol))


def tagged(home: str) -> list[int]:
    """Living processes carrying a tag of ``home``, found without the code under test."""
    found = []
    for process in psutil.process_iter():
        try:
            tag = process.environ().get(TAG_VARIABLE, "")
            if tag.startswith(f"autotune:{home}:") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


class TrialRunnerSuite:
    """Run on every implementation."""

    home = f"suite-{os.getpid()}"
    """Not another test process's, whose leftovers are not ours to end."""

    @pytest.fixture(autouse=True)
    def _leave_nothing(self) -> Iterator[None]:
        """A worker a test left idle would be another test's leftover."""
        yield
        for pid in tagged(self.home):
            psutil.Process(pid).kill()

    def test_a_trial_reports_its_cycles_in_the_order_of_the_protocol(
        self, make_runner: MakeRunner, assign: Assign
    ) -> None:
        assignment, seen = assign(), Seen()
        report = make_runner().run(assignment, seen, FakeStop())
        assert report.outcome.ok, report.outcome.sentence()
        protocol = assignment.trial.protocol
        kinds = [c.cycle_kind for c in seen.cycles() if c.accepted]
        assert kinds.count(CycleKind.RECORDED) == protocol.recorded
        assert kinds.index(CycleKind.RECORDED) >= protocol.warmup + protocol.natural
        assert [c.index for c in seen.cycles()] == sorted(c.index for c in seen.cycles())
        assert any(isinstance(r, StartupRecord) for r in seen.records)
        assert any(isinstance(r, WorstCaseRecord) for r in seen.records)
        assert report.bad_lines == 0
        assert report.quarantined == ()

    @pytest.mark.parametrize("enough_after", [1, 3])
    def test_a_trial_ends_ok_when_its_watcher_has_enough(
        self, make_runner: MakeRunner, assign: Assign, enough_after: int
    ) -> None:
        assignment, seen = looked(assign()), Seen(enough=False)

        def react(record: Record) -> None:
            seen.enough = sum(c.cycle_kind is CycleKind.RECORDED for c in seen.cycles()) >= enough_after

        seen.react = react
        runner = make_runner()
        report = runner.run(assignment, seen, FakeStop())
        assert report.outcome.ok, report.outcome.sentence()
        assert sum(c.cycle_kind is CycleKind.RECORDED for c in seen.cycles()) == enough_after
        assert runner.close() == ()
        assert tagged(self.home) == []

    def test_a_trial_whose_watcher_never_has_enough_makes_all_its_cycles(
        self, make_runner: MakeRunner, assign: Assign
    ) -> None:
        assignment, seen = looked(assign()), Seen(enough=False)
        report = make_runner().run(assignment, seen, FakeStop())
        assert report.outcome.ok, report.outcome.sentence()
        assert sum(c.cycle_kind is CycleKind.RECORDED for c in seen.cycles()) == assignment.trial.protocol.recorded

    def test_an_ended_trial_leaves_no_process_and_a_log(self, make_runner: MakeRunner, assign: Assign) -> None:
        runner = make_runner()
        report = runner.run(assign(), Seen(), FakeStop())
        assert runner.close() == ()
        assert tagged(self.home) == []
        assert runner.close() == ()
        assert Path(report.outcome.log_path).is_file()

    def test_what_an_attempt_left_can_be_recovered_whole(self, make_runner: MakeRunner, assign: Assign) -> None:
        assignment, seen, runner = assign(), Seen(), make_runner()
        runner.run(assignment, seen, FakeStop())
        records, result = runner.recover(assignment.directory)
        assert list(records) == seen.records
        assert result.ok

    def test_nothing_can_be_recovered_from_where_nothing_ran(self, make_runner: MakeRunner, tmp_path: Path) -> None:
        assert make_runner().recover(tmp_path / "never") == ((), None)

    def test_stop_now_cancels(self, make_runner: MakeRunner, assign: Assign) -> None:
        stop = FakeStop()
        seen = Seen(on_tick=lambda: setattr(stop, "level", 2))
        report = make_runner().run(assign(slow=True), seen, stop)
        assert report.outcome.reason is FailureReason.CANCELLED
        assert tagged(self.home) == []

    def test_stop_after_this_trial_lets_it_finish(self, make_runner: MakeRunner, assign: Assign) -> None:
        assert make_runner().run(assign(), Seen(), FakeStop(1)).outcome.ok

    def test_the_deadline_ends_a_trial_as_timeout(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = make_runner().run(assign(slow=True, deadline_s=0.4), Seen(), FakeStop())
        assert report.outcome.reason is FailureReason.TIMEOUT
        assert tagged(self.home) == []

    def test_more_memory_than_the_limit_is_an_oom_of_the_host(self, make_runner: MakeRunner, assign: Assign) -> None:
        assignment = assign(slow=True)
        study = replace(assignment.study, spec=replace(assignment.study.spec, memory_limit=1 << 20))
        report = make_runner().run(replace(assignment, study=study), Seen(), FakeStop())
        assert report.outcome.reason is FailureReason.OOM
        assert report.outcome.pool is Pool.HOST
        assert tagged(self.home) == []

    def test_a_watcher_that_fails_is_heard_and_no_process_is_left(
        self, make_runner: MakeRunner, assign: Assign
    ) -> None:
        def fail(_: Record) -> None:
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            make_runner().run(assign(slow=True), Seen(react=fail), FakeStop())
        assert tagged(self.home) == []

    def test_a_directory_with_another_attempts_files_is_refused(self, make_runner: MakeRunner, assign: Assign) -> None:
        assignment = assign()
        assignment.directory.mkdir(parents=True)
        RunPaths(assignment.directory).result.write_text('{"ok": true}')
        with pytest.raises(ValueError, match="not empty"):
            make_runner().run(assignment, Seen(), FakeStop())

    def test_an_interpreter_that_is_not_there_is_an_outcome(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = make_runner(python="/nowhere/bin/python").run(assign(), Seen(), FakeStop())
        assert report.outcome.reason is FailureReason.INFRA
        assert "/nowhere/bin/python" in report.outcome.message

    def test_sweeping_when_nothing_is_left_kills_nothing(self, make_runner: MakeRunner) -> None:
        assert make_runner().sweep(1) == ()


def changed(assignment: Assignment, **changes: Any) -> Assignment:
    """The assignment with parts of its trial changed."""
    return replace(assignment, trial=replace(assignment.trial, **changes))
