"""What others ask of a running tuner: understood in order, done once, and at no cost to the budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Budget, StudyStatus, TrialKind, TrialState
from autotune.errors import StoreError
from autotune.ports import Store
from autotune.recommendation.reading import read_study
from autotune.study.control import LOOK_S, Action, Control, PendingRequests, fold
from autotune.study.loop import StudyResult
from tests.support import factories
from tests.support.fakes import FakeClock, FakeStop
from tests.support.simulated import SimulatedRunner, study_loop
from tests.unit.study.test_study import House

KINDS = [*(action.event_kind for action in Action), "trial_finished", "stop", "_requested"]


def asked(*said: tuple[str, int | None]) -> PendingRequests:
    events = [factories.event(kind, trial=trial, id=number) for number, (kind, trial) in enumerate(said, 1)]
    return fold(PendingRequests(), events)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.none() | st.integers(0, 3)), max_size=12), st.integers(0, 12))
def test_it_does_not_matter_how_the_events_are_cut(said: list[tuple[str, int | None]], cut: int) -> None:
    events = [factories.event(kind, trial=trial, id=number) for number, (kind, trial) in enumerate(said, 1)]
    assert fold(fold(PendingRequests(), events[:cut]), events[cut:]) == fold(PendingRequests(), events)


def test_each_word_means_what_it_says() -> None:
    assert asked(("stop_requested", None)).level == 1
    assert asked(("cancel_requested", None), ("stop_requested", None)).level == 2, "a stop takes nothing back"
    assert asked(("pause_requested", None)).paused
    assert not asked(("pause_requested", None), ("resume_requested", None)).paused
    assert [event.trial for event in asked(("retry_requested", 3), ("retry_requested", 0)).todo] == [3, 0]
    assert [event.kind for event in asked(("extend_requested", None)).todo] == ["extend_requested"]
    assert asked(("retry_requested", None), ("trial_finished", 4)) == PendingRequests(last=2)


@pytest.fixture
def house() -> House:
    return House()


def control(house: House, stop: FakeStop | None = None) -> Control:
    return Control(house.store, house.study.id, stop or FakeStop(), house.clock)


def say(store: Store, action: Action, trial: int | None = None) -> None:
    store.add_event(1, factories.event(action.event_kind, trial=trial))


def test_what_was_asked_of_an_earlier_tuner_is_not_done(house: House) -> None:
    say(house.store, Action.CANCEL)
    made = control(house)
    house.clock.advance(10 * LOOK_S)
    assert made.level == 0


def test_the_stronger_of_terminal_and_request_counts(house: House) -> None:
    stop = FakeStop()
    made = control(house, stop)
    say(house.store, Action.STOP)
    house.clock.advance(LOOK_S)
    assert made.level == 1
    stop.level = 2
    assert made.level == 2


def test_the_database_is_asked_once_a_second_however_often_the_level_is(house: House) -> None:
    class Counting:
        looks = 0

        def events(self, *arguments: Any) -> Any:
            self.looks += 1
            return ()

        def last_event_id(self, study: int) -> int:
            return 0

    store = Counting()
    made = Control(store, 1, FakeStop(), house.clock)  # type: ignore[arg-type]
    for _ in range(100):
        house.clock.advance(LOOK_S / 20)
        assert made.level == 0
    assert 4 <= store.looks <= 5


def test_a_database_that_is_away_asks_for_nothing(house: House) -> None:
    made = control(house)

    def away(*_: Any) -> Any:
        raise StoreError("away")

    made._store = type("Away", (), {"events": staticmethod(away)})()  # type: ignore[assignment]
    house.clock.advance(LOOK_S)
    assert made.level == 0


class Visitor(SimulatedRunner):
    """While trial ``at`` runs, somebody asks for something."""

    def __init__(self, house: House, at: int, *actions: tuple[Action, int | None]) -> None:
        super().__init__(house.clock)
        self._house, self._at, self._actions = house, at, actions

    def run(self, assignment: Any, watcher: Any, stop: Any) -> Any:
        if assignment.trial.number == self._at:
            for action, trial in self._actions:
                say(self._house.store, action, trial)
            self._house.clock.advance(2 * LOOK_S)
        return super().run(assignment, watcher, stop)


def run(house: House, runner: SimulatedRunner, budget: Budget, clock: FakeClock | None = None) -> StudyResult:
    made = Control(house.store, house.study.id, FakeStop(), clock or house.clock)
    return study_loop(house.store, 1, clock or house.clock, budget, runner=runner, stop=made, requests=made).run()


def test_a_stop_finishes_the_running_trial_and_recommends(house: House) -> None:
    result = run(house, Visitor(house, 2, (Action.STOP, None)), Budget(max_trials=20))
    assert [t.state.is_finished for t in result.trials] == [True] * 3
    assert result.trials[2].state in (TrialState.COMPLETE, TrialState.FAIL)
    assert (result.stopped, result.ended_by) == (True, "stopped by the user")
    assert result.recommendation is not None
    assert house.store.study(1).status is StudyStatus.OPEN, "more budget continues it"


def test_a_retry_is_run_next_and_counts_against_no_limit(house: House) -> None:
    result = run(house, Visitor(house, 2, (Action.RETRY, 1)), Budget(max_trials=5))
    again = result.trials[3]
    assert (again.kind, again.configuration) == (TrialKind.VERIFY, result.trials[1].configuration)
    assert again.state.is_finished
    searched = [t for t in result.trials if t.kind in (TrialKind.BASELINE, TrialKind.SEARCH)]
    assert len(searched) == 5


def test_an_extension_lets_a_study_go_on_beyond_its_limits_and_readers_see_the_new_ones(house: House) -> None:
    class Extending(Visitor):
        """While trial 1 runs, somebody asks for more."""

        def run(self, assignment: Any, watcher: Any, stop: Any) -> Any:
            if assignment.trial.number == 1:
                more = {"max_trials": 2, "gpu_hours": 5.0}
                self._house.store.add_event(1, factories.event("extend_requested", data={"more": more}))
            return super().run(assignment, watcher, stop)

    result = run(house, Extending(house, 1), Budget(max_trials=3))
    assert len([t for t in result.trials if t.kind in (TrialKind.BASELINE, TrialKind.SEARCH)]) == 5
    read = read_study(house.store, house.store.study(1))
    assert (read.limits.max_trials, read.limits.gpu_hours) == (5, None), "what is unlimited stays so"
    run(house, SimulatedRunner(house.clock), Budget(max_trials=4))
    assert read_study(house.store, house.store.study(1)).limits.max_trials == 4, "of the last run"


class Resumer(FakeClock):
    """Its hundredth nap is interrupted by somebody who resumes the study."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        if len(self.naps) == 100:
            say(self._house.store, Action.RESUME)
        super().sleep(seconds)


def test_a_paused_study_begins_no_trial_and_spends_nothing(house: House) -> None:
    clock = Resumer(house)
    house.clock = clock
    runner = Visitor(house, 1, (Action.PAUSE, None))
    result = run(house, runner, Budget(max_trials=4), clock)
    assert len(clock.naps) >= 100
    paused = sum(clock.naps)
    assert len([t for t in result.trials if t.kind in (TrialKind.BASELINE, TrialKind.SEARCH)]) == 4
    assert house.store.spent(1)[0] == pytest.approx(clock.monotonic() - paused, abs=1.0)
    before, after = result.trials[1:3]
    assert after.started_at - before.finished_at >= paused
