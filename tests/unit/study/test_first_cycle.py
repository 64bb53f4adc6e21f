"""The baseline's first cycle against the forecast that the workload was chosen by, on a fake clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Budget, CycleKind, FailureReason, Outcome, StudySpec, Trial, TrialState
from autotune.ports import Assignment, RunReport, StopToken, Store, Watcher
from autotune.specification.prepare import Prepared
from autotune.specification.workload_size import TRIALS, Pace, Plan, Workload
from autotune.store import open_store
from autotune.study.budget import GRACE_S
from autotune.study.loop import StudyResult
from tests.support import factories as f
from tests.support.fakes import FakeStop
from tests.support.simulated import START_UP_S, SimulatedRunner, cycle_seconds
from tests.unit.study.test_study import House, Killed

SIZES = tuple(Workload(f.ROWS, tokens) for tokens in (128, 64, 32, 16))
CYCLE_S = cycle_seconds(f.configuration())
"""Of the baseline with the first size, on a quiet machine."""
BUDGET_S = 1200.0
"""Six trials with the first size on a quiet machine, and less than one where a cycle takes seven times as long."""


def quiet(one: Workload) -> Pace:
    cycle_s = CYCLE_S * one.tokens / SIZES[0].tokens
    return Pace(START_UP_S + 1.5 * cycle_s, cycle_s)


def plan_of(sizes: Sequence[Workload] = SIZES, **protocol: Any) -> Plan:
    steps = tuple((one, quiet(one)) for one in sizes)
    return Plan(steps, steps[0], BUDGET_S, protocol=f.protocol(lengths=(), **protocol))


class Planned(House):
    """A study that follows its plan from loop to loop, as the command does."""

    budget_s = BUDGET_S
    max_trials: int | None = None

    def __init__(self, plan: Plan, store: Store | None = None) -> None:
        super().__init__(self.spec_of(plan), store)
        self.prepared = self.prepare(plan)

    def spec_of(self, plan: Plan) -> StudySpec:
        workload = f.workload(max_completion_length=plan.workload.tokens)
        space, baseline = self.space.as_json(), f.configuration(rollout_engine="transformers")
        return f.study_spec(space=space, workload=workload, protocol=plan.protocol, baseline=baseline)

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(self.spec_of(plan), f.fingerprint(), 8, 8, plan=plan, by_plan=self.prepare)

    def go(self, times: float, stop: FakeStop | None = None, **changes: Any) -> StudyResult:
        """Runs the study on a machine that is so many times as slow as the forecast says."""
        self.slower = Slower(self, times, **changes)
        result = self.run(Budget(wall_s=self.budget_s, max_trials=self.max_trials), stop, self.slower)
        while result.successor is not None:
            self.prepared = result.successor
            result = self.run(Budget(wall_s=self.budget_s, max_trials=self.max_trials), stop, self.slower)
        return result

    def resume(self) -> None:
        """As the same command does: the stored workload, forecast as if the machine were quiet."""
        there = self.store.study(self.study.id).spec
        sizes = [one for one in SIZES if one.tokens <= there.workload.max_completion_length]
        self.prepared = self.prepare(replace(plan_of(sizes), protocol=there.protocol))

    @property
    def tokens(self) -> int:
        return self.store.study(self.study.id).spec.workload.max_completion_length

    def told(self, kind: str) -> list[str]:
        return [event.message for event in self.store.events(self.study.id, kind=kind)]


class Slower(SimulatedRunner):
    """A machine on which cycles take ``times`` as long, and in proportion to the longest completion."""

    def __init__(self, house: Planned, times: float, **changes: Any) -> None:
        super().__init__(house.clock, **changes)
        self._times = self._scale = times
        self.sizes: list[int] = []
        """Longest completion of each attempt."""

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        self.sizes.append(assignment.study.spec.workload.max_completion_length)
        self._scale = self._times * self.sizes[-1] / SIZES[0].tokens
        return super().run(assignment, watcher, stop)

    def _attempt(self, assignment: Assignment, watcher: Watcher, stop: StopToken, began: float) -> Outcome:
        self._watcher, end = watcher, began + assignment.deadline_s
        outcome = super()._attempt(assignment, watcher, stop, began)
        if outcome.reason is FailureReason.TIMEOUT:
            self._pass(end - self._clock.monotonic())
        return outcome

    def _plan(self, trial: Trial) -> list[tuple[CycleKind, float]]:
        return [(kind, self._scale * seconds) for kind, seconds in super()._plan(trial)]

    def _pass(self, seconds: float) -> None:
        """Time passes, and is told of as it does."""
        for _ in range(50):
            self._clock.advance(seconds / 50)
            self._watcher.tick()


@pytest.fixture(scope="module", params=[3.0, 7.0, 20.0])
def slow(request: pytest.FixtureRequest) -> tuple[float, Planned, StudyResult]:
    """Studies on machines that are slower than their forecasts."""
    house = Planned(plan_of())
    return request.param, house, house.go(request.param)


@pytest.mark.parametrize("times", [0.3, 0.95])
def test_a_forecast_that_holds_changes_nothing(times: float) -> None:
    house, plain = Planned(plan_of()), Planned(plan_of())
    plain.prepared = None
    house.max_trials = plain.max_trials = 3
    with_plan, without = house.go(times), plain.go(times)
    assert (house.told("plan_changed"), house.told("forecast_corrected")) == ([], [])
    assert with_plan.trials == without.trials


def test_a_slower_machine_gets_a_smaller_workload_that_is_said(slow: tuple[float, Planned, StudyResult]) -> None:
    times, house, result = slow
    assert house.slower.sizes[0] == 128
    assert set(house.slower.sizes[1:]) == {house.tokens} == {32 if times == 3.0 else 16}
    said = house.told("plan_changed")
    assert len(said) == result.trials[0].attempt - 1 == (2 if times == 20.0 else 1)
    late = "the first cycle has not ended after 4 times its forecast: the baseline begins again with 8 rows per "
    took = "the first cycle took 4.0 times its forecast: the baseline begins again with 8 rows per "
    assert said[0].startswith(took if times == 3.0 else late)
    assert all("what it measured is dropped" in each and "\n" not in each for each in said)
    assert house.told("forecast_corrected") == []


def test_six_trials_fit_or_the_smallest_workload_is_chosen(slow: tuple[float, Planned, StudyResult]) -> None:
    times, house, result = slow
    assert len(result.trials) >= TRIALS or times == 20.0
    assert house.clock.monotonic() <= BUDGET_S + GRACE_S
    assert house.store.spent(house.study.id)[0] == pytest.approx(house.clock.monotonic()), "what was dropped counts"


@pytest.mark.parametrize("times", [1.0, 1.2, 1.4, 1.6, 1.9, 2.5])
def test_a_machine_that_is_a_little_slower_has_six_trials_too(times: float) -> None:
    """Between one and two times the forecast the default workload was once kept, and held four."""
    house = Planned(plan_of())
    result = house.go(times)
    assert len([t for t in result.trials if t.kind.is_searched]) >= TRIALS
    assert len(house.told("plan_changed")) <= 1
    assert house.clock.monotonic() <= BUDGET_S + GRACE_S


def test_nothing_of_the_larger_workload_stays(slow: tuple[float, Planned, StudyResult]) -> None:
    times, house, result = slow
    first, scale = result.trials[0], times * house.tokens / 128
    assert {round(c.seconds / (scale * CYCLE_S), 3) for c in first.cycles} == {2.0, 1.0}
    assert first.seconds == pytest.approx(START_UP_S + sum(c.seconds for c in first.cycles))
    stored = house.store.study(house.study.id)
    assert stored.spec.workload.max_completion_length == house.tokens < 128
    assert stored.spec.digest == house.prepared.spec.digest  # type: ignore[union-attr]
    assert {t.protocol.max_repeats for t in result.trials} == {0}
    assert first.protocol.recorded == (2 if times == 20.0 else 3)


def test_a_first_cycle_that_does_not_end_is_not_waited_for(slow: tuple[float, Planned, StudyResult]) -> None:
    _, house, _ = slow
    began = [e.at for e in house.store.events(house.study.id, kind="trial_started")]
    assert began[1] - began[0] < 5 * quiet(SIZES[0]).start_s


def test_what_the_user_said_stays_and_the_cycles_get_fewer() -> None:
    house = Planned(plan_of(SIZES[:1]))
    house.budget_s = 1500.0
    result = house.go(3.0)
    assert set(house.slower.sizes) == {128}
    protocols = [t.protocol for t in result.trials if t.kind.is_searched]
    assert protocols[0].natural == 1
    assert {(p.recorded, p.max_repeats) for p in protocols} == {(2, 0)}
    (said,) = house.told("plan_changed")
    assert "the baseline begins again with 2 timed cycles a trial, no repeats" in said
    assert "rows per update" not in said


def test_where_nothing_else_would_help_it_is_said_and_nothing_is_thrown_away() -> None:
    house = Planned(plan_of(SIZES[:1], natural=1, recorded=2, max_repeats=0))
    result = house.go(3.0)
    assert house.told("plan_changed") == []
    (said,) = house.told("forecast_corrected")
    assert "6 trials need a budget of about" in said
    assert result.trials[0].attempt == 1


def test_a_budget_that_holds_the_trials_all_the_same_changes_nothing() -> None:
    house = Planned(plan_of())
    house.budget_s, house.max_trials = 10 * BUDGET_S, 2
    result = house.go(3.0)
    assert house.told("plan_changed") == house.told("forecast_corrected") == []
    assert set(house.slower.sizes) == {128}
    assert result.trials[0].protocol.max_repeats == 3


class Dying:
    """A store whose process is killed as it begins the baseline anew: before that is stored, or right after."""

    def __init__(self, inner: Store, *, stored: bool) -> None:
        self._inner, self._stored = inner, stored

    def begin_anew(self, *given: Any) -> None:
        if self._stored:
            self._inner.begin_anew(*given)
        raise Killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("stored", [False, True])
def test_a_tuner_killed_as_it_begins_anew_goes_on(tmp_path: Path, stored: bool) -> None:
    house = Planned(plan_of(), open_store(str(tmp_path / "studies.db")))
    house.max_trials = 3
    whole = house.store
    house.store = Dying(whole, stored=stored)  # type: ignore[assignment]
    with pytest.raises(Killed):
        house.go(3.0)
    house.store = whole
    (only,) = whole.trials(house.study.id)
    assert only.state is (TrialState.WAITING if stored else TrialState.RUNNING)
    assert house.tokens == (32 if stored else 128)
    house.resume()
    result = house.go(3.0)
    assert len(house.told("plan_changed")) == 1
    assert set(house.slower.sizes[0 if stored else 1 :]) == {32}
    assert result.recommendation is not None


def test_a_stop_that_was_asked_for_meanwhile_is_kept() -> None:
    house, stop = Planned(plan_of()), FakeStop()
    prepare = house.prepare

    def slow(plan: Plan) -> Prepared:
        stop.level = 1
        return prepare(plan)

    assert house.prepared is not None
    house.prepared = replace(house.prepared, by_plan=slow)
    result = house.go(3.0, stop)
    assert (result.stopped, result.ended_by, result.successor) == (True, "stopped by the user", None)
    assert [t.state for t in result.trials] == [TrialState.WAITING]
    stop.level = 0
    house.resume()
    assert house.run(Budget(max_trials=1), stop).trials[0].fits
