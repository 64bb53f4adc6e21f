"""What each trial teaches, and how Optuna is told."""

from __future__ import annotations

import math

import optuna
import pytest

from autotune.domain import Configuration, FailureReason, TrialKind, TrialState
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.translation import OptunaTrialStatus, evidence, frozen_trials, rebuilt_study
from tests.contracts.proposer_suite import complete, ended, landscape, stopped
from tests.support import factories

WORLD = landscape()
GRID = CandidateGrid(WORLD.permitted, WORLD.searched, ())
FAST, SLOW, OTHER = WORLD.headline[:3]


def test_speed_is_told_in_tokens_per_hour_to_be_maximised() -> None:
    frozen = frozen_trials(GRID, evidence([complete(0, SLOW, 10.0), complete(1, FAST, 20.0)]))
    values = [t.value for t in frozen]
    assert values == pytest.approx([36_000, 72_000])
    lessons = evidence([complete(0, SLOW, 10.0), complete(1, FAST, 20.0)])
    study = rebuilt_study(GRID, lessons, optuna.samplers.RandomSampler())
    assert study.best_trial.number == 1


@pytest.mark.parametrize("reason", [r for r in FailureReason if r.blames_configuration])
def test_failures_are_infeasible_with_the_worst_feasible_value(reason: FailureReason) -> None:
    trials = [complete(0, SLOW, 10.0), complete(1, FAST, 20.0), ended(2, OTHER, reason)]
    frozen = frozen_trials(GRID, evidence(trials))
    assert [t.state for t in frozen] == [optuna.trial.TrialState.COMPLETE] * 3
    assert frozen[2].value == frozen[0].value
    assert all(v <= 0 for t in frozen[:2] for v in t.constraints.values())
    assert all(v > 0 for v in frozen[2].constraints.values())
    assert all(t.constraints for t in frozen), "a trial without a constraint would count as unconstrained"


def test_a_failure_before_any_success_has_a_finite_value() -> None:
    (frozen,) = frozen_trials(GRID, evidence([ended(0, OTHER, FailureReason.OOM)]))
    assert frozen.value is not None
    assert math.isfinite(frozen.value)


def test_what_did_not_pass_the_worst_case_is_infeasible() -> None:
    (frozen,) = evidence([complete(0, FAST, 20.0, worst_case_passed=False)])
    assert frozen.standing is OptunaTrialStatus.INFEASIBLE


@pytest.mark.parametrize("state", [TrialState.WAITING, TrialState.RUNNING])
def test_unfinished_trials_are_pending(state: TrialState) -> None:
    lessons = evidence([factories.trial(3, state=state, configuration=FAST)])
    assert [e.standing for e in lessons] == [OptunaTrialStatus.PENDING]
    (frozen,) = frozen_trials(GRID, lessons)
    assert frozen.state is optuna.trial.TrialState.RUNNING
    assert frozen.params


@pytest.mark.parametrize("reason", [FailureReason.CANCELLED, FailureReason.INFRA])
def test_no_verdict_teaches_nothing_and_takes_nothing(reason: FailureReason) -> None:
    lost = ended(2, OTHER, reason)
    assert evidence([lost]) == ()
    assert lost.inconclusive


@pytest.mark.parametrize("kind", [TrialKind.CONFIRM, TrialKind.VERIFY])
def test_repeats_teach_nothing_but_are_taken(kind: TrialKind) -> None:
    repeat = complete(2, OTHER, 30.0, kind=kind)
    assert evidence([repeat]) == ()
    assert not repeat.inconclusive


def test_lessons_come_by_number_whatever_order_they_are_given_in() -> None:
    trials = [complete(n, c, 10.0 + n) for n, c in enumerate((FAST, SLOW, OTHER))]
    assert evidence(trials[::-1]) == evidence(trials)


def test_what_lies_outside_the_lattice_is_left_out() -> None:
    outside = FAST.with_(micro_batch_size=3)
    without = Configuration({"micro_batch_size": 1})
    trials = [complete(0, outside, 9.0), complete(1, without, 9.0), complete(2, FAST, 9.0)]
    assert len(frozen_trials(GRID, evidence(trials))) == 1


def test_the_study_is_rebuilt_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    rebuilt_study(GRID, evidence([complete(0, FAST, 9.0)]), optuna.samplers.TPESampler(seed=0))
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


def test_a_stopped_trial_is_told_as_at_most_its_bound_and_never_among_the_better_half() -> None:
    better, middle = WORLD.headline[3:5]
    known = [complete(0, SLOW, 10.0), complete(1, FAST, 20.0), complete(2, OTHER, 40.0)]
    low, high = stopped(3, better, 3600.0 * 5.0), stopped(4, middle, 3600.0 * 39.0)
    lessons = evidence([*known, low, high])
    assert [e.standing for e in lessons[3:]] == [OptunaTrialStatus.CENSORED] * 2
    frozen = frozen_trials(GRID, lessons)
    assert frozen[3].value == pytest.approx(3600.0 * 5.0)
    assert frozen[4].value == pytest.approx(3600.0 * 20.0)
    assert all(v <= 0 for t in frozen for v in t.constraints.values())
    study = rebuilt_study(GRID, lessons, optuna.samplers.RandomSampler())
    assert study.best_trial.number == 2


def test_a_bound_is_told_even_where_nothing_was_measured_in_full() -> None:
    (frozen,) = frozen_trials(GRID, evidence([stopped(3, FAST, 3600.0)]))
    assert frozen.value == pytest.approx(3600.0)


def test_a_stopped_trial_without_a_bound_teaches_nothing() -> None:
    assert evidence([complete(3, FAST, 20.0, state=TrialState.PRUNED)]) == ()


def test_a_stopped_trial_is_worth_no_more_the_faster_its_cycles_were() -> None:
    slow, fast = (stopped(3, FAST, 3600.0).with_(cycles=factories.finished(cycle_seconds=s).cycles) for s in (9.0, 1.0))
    assert evidence([slow]) == evidence([fast])
