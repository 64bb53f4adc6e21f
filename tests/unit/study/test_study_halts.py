"""What only the machine can mend stops a study and uses none of it up; every change of a trial is told, or not made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.domain import Budget, Event, FailureReason, Outcome, StudyStatus, Trial, TrialState
from autotune.errors import MachineError
from autotune.ports import Assignment, RunReport, StopToken, Watcher
from autotune.study.crews import ENOUGH, ENOUGH_ABSENT
from autotune.study.protocols import retry_draft
from tests.support.fakes import FakeStop
from tests.support.simulated import SimulatedRunner
from tests.unit.study.test_study import House, Killed

AWAY = Outcome(FailureReason.INFRA, message="the model folder /models/small is not there")


class Away(SimulatedRunner):
    """The model goes away in attempt ``since`` and is back for attempt ``until``, both counted over all trials."""

    def __init__(self, house: House, since: int, until: int) -> None:
        self.attempts, self._between = 0, range(since, until)
        super().__init__(house.clock, tamper=lambda _: AWAY if self.attempts - 1 in self._between else None)

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        self.attempts += 1
        report = super().run(assignment, watcher, stop)
        return replace(report, absent=report.outcome == AWAY)


@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_model_that_is_away_stops_the_study_and_uses_up_nothing(since: int) -> None:
    house = House()
    result = house.run(Budget(max_trials=4), runner=Away(house, since, 99))
    assert result.halted
    assert result.stopped
    assert "the model folder /models/small is not there" in result.ended_by
    assert "the same command goes on" in result.ended_by
    assert house.runner.attempts == since + ENOUGH_ABSENT
    assert [t.state for t in result.trials if t.state is TrialState.FAIL] == []
    assert house.store.study(1).status is StudyStatus.OPEN
    again = house.run(Budget(max_trials=4))
    assert not again.halted
    assert all(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in again.trials)
    assert again.recommendation is not None
    assert len({t.configuration for t in again.trials if t.kind.is_searched}) == 4


def test_a_model_that_is_away_for_one_attempt_costs_that_attempt_alone() -> None:
    house = House()
    result = house.run(Budget(max_trials=4), runner=Away(house, 2, 3))
    assert not result.halted
    assert [t.attempt for t in result.trials if t.attempt != 1] == [2]
    assert all(t.state is not TrialState.FAIL for t in result.trials)


def test_a_machine_that_breaks_every_trial_stops_the_study_and_the_same_command_goes_on() -> None:
    house = House()
    broken = SimulatedRunner(house.clock, tamper=lambda _: Outcome(FailureReason.INFRA, message="GPU taken"))
    for _ in range(3):
        before = len(broken.ran)
        result = house.run(Budget(max_trials=99), runner=broken)
        assert result.halted
        assert len(broken.ran) - before == ENOUGH
    assert house.store.study(1).status is StudyStatus.OPEN
    assert house.run(Budget(max_trials=13)).recommendation is not None


def test_a_retry_of_what_cannot_run_waits_for_the_next_command() -> None:
    house = House()
    house.run(Budget(max_trials=2))
    asked = house.store.trials(1)[1]
    with pytest.raises(MachineError, match="is not there"):
        house.loop(Budget(), FakeStop(), Away(house, 0, 99)).retry(retry_draft(house.study, (), asked.configuration))
    assert house.store.trials(1)[-1].state is TrialState.WAITING


class KilledAt:
    """A store that the tuner dies in, before or after its ``count``-th write."""

    WRITES = ("start_attempt", "requeue", "finish_trial", "add_event", "add_trial", "set_lengths", "add_cycle")

    def __init__(self, store: Any, count: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, count, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in self.WRITES:
            return found

        def write(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            result = found(*given, **named)
            if self._left == 0:
                raise Killed
            return result

        return write


def _count_events(events: tuple[Event, ...], kind: str, number: int) -> int:
    return sum(e.kind == kind and e.trial == number for e in events)


def _every_change_is_told(house: House) -> None:
    events = house.store.events(1, limit=10_000)
    for trial in house.store.trials(1):
        assert _count_events(events, "trial_started", trial.number) == trial.attempt
        assert _count_events(events, "trial_finished", trial.number) == int(trial.state.is_finished)
        over = trial.attempt - int(trial.state in (TrialState.RUNNING,) or trial.state.is_finished)
        assert _count_events(events, "trial_repeated", trial.number) == over


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_leaves_no_change_of_a_trial_untold(after: bool) -> None:
    house = House()
    real, kills = house.store, 0
    for count in range(1, 60):
        house.store = KilledAt(real, 1 + count % 23, after=after)
        try:
            house.run(Budget(max_trials=6))
        except Killed:
            kills += 1
        house.store = real
        _every_change_is_told(house)
        if real.study(1).status is StudyStatus.DONE:
            break
    assert kills >= 10


@pytest.mark.parametrize(("number", "reason"), [(0, FailureReason.CANCELLED), (1, FailureReason.CRASH)])
def test_a_trial_given_up_after_three_deaths_is_told_as_finished(number: int, reason: FailureReason) -> None:
    house = House()

    def die(running: Trial, _: int) -> None:
        if running.number == number:
            raise Killed

    for _ in range(3):
        with pytest.raises(Killed):
            house.run(Budget(max_trials=3), runner=SimulatedRunner(house.clock, on_cycle=die))
    house.observer.events.clear()
    house.run(Budget(max_trials=3))
    given_up = house.store.trial(1, number)
    assert (given_up.state, given_up.outcome.reason) == (TrialState.FAIL, reason)
    _every_change_is_told(house)
    shown = [e for e in house.observer.events if e.trial == number]
    assert [e.kind for e in shown] == ["trial_finished"]
    assert "the tuner died 3 times" in shown[0].message
    assert shown[0].id == [e.id for e in house.store.events(1) if e.kind == "trial_finished"][number]
    assert [t.number for t in house.observer.trials if t.state is TrialState.FAIL][:1] == [number]


def test_what_is_shown_has_the_number_it_is_stored_under() -> None:
    house = House()
    house.run(Budget(max_trials=3))
    assert house.observer.events == list(house.store.events(1, limit=10_000))


def test_each_cause_of_a_repeat_has_its_own_count() -> None:
    """A kill of a trial is no death of the tuner, and neither uses up the second try that a judge may answer."""
    house = House()
    met = {1: FailureReason.INFRA, 4: FailureReason.REWARD_ERROR}

    def tamper(trial: Trial) -> Outcome | None:
        return Outcome(met[trial.attempt]) if trial.number == 1 and trial.attempt in met else None

    def die(running: Trial, _: int) -> None:
        if running.number == 1 and running.attempt in (2, 3):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            house.run(Budget(max_trials=3), runner=SimulatedRunner(house.clock, tamper=tamper, on_cycle=die))
    result = house.run(Budget(max_trials=3), runner=SimulatedRunner(house.clock, tamper=tamper, on_cycle=die))
    assert [(t.number, t.attempt) for t in result.trials if t.attempt > 1] == [(1, 5)]
    assert result.trials[1].state is not TrialState.FAIL
    _every_change_is_told(house)
