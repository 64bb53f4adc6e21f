"""A retry through the loop: one trial, the lock, the answer, and what is left when it is broken off."""

from __future__ import annotations

import pytest

from autotune.domain import Budget, FailureReason, Outcome, StudyStatus, Trial, TrialKind, TrialState
from autotune.errors import StudyBusyError
from autotune.statistics import retries
from autotune.study import protocols
from tests.support import factories as f
from tests.support.fakes import FakeStop
from tests.support.not_none import not_none
from tests.support.simulated import SimulatedRunner
from tests.unit.study.test_study import House


def retry(
    house: House,
    number: int,
    *,
    budget: Budget | None = None,
    stop: FakeStop | None = None,
    runner: SimulatedRunner | None = None,
) -> Trial:
    study = house.store.study(house.study.id)
    house.runner = runner or SimulatedRunner(house.clock)
    loop = house.loop(budget or Budget(), stop or FakeStop(), house.runner)
    asked = house.store.trial(study.id, number)
    return loop.retry(protocols.retry_draft(study, house.store.trials(1), asked.configuration))


def test_one_trial_is_run_and_the_answer_of_an_ended_study_made_anew() -> None:
    house = House()
    house.run(Budget(max_trials=6))
    before = house.store.trials(1)
    answer, spent = house.store.recommendation(1), house.store.spent(1)[0]
    trial = retry(house, 0)
    after = house.store.trials(1)
    assert after[:-1] == before
    assert after[-1] == trial
    assert (trial.kind, trial.source) == (TrialKind.VERIFY, retries.SOURCE)
    assert (trial.configuration, trial.feasible) == (house.spec.baseline, True)
    assert trial.protocol.lengths == house.store.study(1).lengths, "on other lengths the figures could not be compared"
    renewed = not_none(house.store.recommendation(1))
    assert renewed.created_at > answer.created_at
    assert renewed.ended_by == answer.ended_by
    assert house.store.study(1).status is StudyStatus.DONE
    assert house.store.spent(1)[0] > spent


def test_a_failed_baseline_retried_on_a_mended_machine_is_the_reference_again() -> None:
    house = House()
    tight = SimulatedRunner(house.clock, memory_limit=f.GIB * 7 // 5)
    house.run(Budget(max_trials=4), runner=tight)
    before = not_none(house.store.recommendation(1))
    assert before.baseline.startswith("OOM")
    assert retry(house, 0).feasible
    after = not_none(house.store.recommendation(1))
    assert after.baseline == "ok"


def test_an_open_study_gets_no_answer_before_it_ends_and_searches_on_as_if_nothing_had_been() -> None:
    plain, retried = House(), House()
    for house in (plain, retried):
        stop = FakeStop()
        runner = SimulatedRunner(house.clock, on_cycle=lambda t, _, s=stop: setattr(s, "level", int(t.number >= 3)))
        house.run(Budget(max_trials=8), stop=stop, runner=runner)
    before = retried.store.recommendation(1)
    retry(retried, 1)
    assert retried.store.recommendation(1) == before
    assert retried.store.study(1).status is StudyStatus.OPEN
    for house in (plain, retried):
        house.run(Budget(max_trials=8))
    searched = [
        sum(t.kind in (TrialKind.BASELINE, TrialKind.SEARCH) for t in house.store.trials(1))
        for house in (plain, retried)
    ]
    assert searched == [8, 8]


def test_broken_off_it_waits_and_the_next_retry_goes_on_with_it() -> None:
    house = House()
    house.run(Budget(max_trials=3))
    count = len(house.store.trials(1))
    stop = FakeStop()
    runner = SimulatedRunner(house.clock, on_cycle=lambda *_: setattr(stop, "level", 2))
    trial = retry(house, 1, stop=stop, runner=runner)
    assert trial.state is TrialState.WAITING
    again = retry(house, 1)
    assert (again.number, again.attempt, again.feasible) == (trial.number, 2, True)
    assert len(house.store.trials(1)) == count + 1


def test_a_machine_fault_is_repeated_once_and_not_for_ever() -> None:
    house = House()
    house.run(Budget(max_trials=3))
    runner = SimulatedRunner(house.clock, tamper=lambda _: Outcome(FailureReason.INFRA, message="GPU taken"))
    trial = retry(house, 1, runner=runner)
    assert (trial.state, trial.attempt) == (TrialState.FAIL, 2)
    assert not_none(trial.outcome).reason is FailureReason.INFRA


def test_its_budget_ends_it_without_a_verdict() -> None:
    house = House()
    house.run(Budget(max_trials=3))
    runner = SimulatedRunner(house.clock)
    trial = retry(house, 1, budget=Budget(wall_s=house.store.spent(1)[0] - 20.0), runner=runner)
    assert not_none(trial.outcome).reason is FailureReason.CANCELLED


def test_while_a_tuner_runs_it_is_refused_and_nothing_stored() -> None:
    house = House()
    house.run(Budget(max_trials=3))
    before = house.store.trials(1)
    with house.store.lock(1), pytest.raises(StudyBusyError):
        retry(house, 1)
    assert house.store.trials(1) == before
