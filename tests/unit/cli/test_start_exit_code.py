"""The exit code of ``start`` says whether nothing held or nothing was measured."""

from __future__ import annotations

import pytest

from autotune.cli.commands.start import exit_code
from autotune.cli.stopping import SignalStop
from autotune.domain import FailureReason, Trial, TrialKind
from autotune.study.loop import StudyResult
from tests.support import factories as f


def _code(trials: tuple[Trial, ...]) -> int:
    result = StudyResult(f.study(), None, "the time budget is used up", trials, stopped=False)
    return exit_code(result, SignalStop(lambda _: None))


@pytest.mark.parametrize(
    ("trials", "code"),
    [
        ((), 4),
        ((f.broken_off(0),), 4),
        ((f.broken_off(0, cycles=(f.cycle(0),)),), 4),
        ((f.failed(0, kind=TrialKind.BASELINE),), 3),
        ((f.broken_off(0), f.failed(1)), 3),
        ((f.failed(0, f.failure(FailureReason.REWARD_ERROR)),), 3),
    ],
)
def test_a_budget_that_ended_before_a_result_is_not_a_study_in_which_nothing_held(
    trials: tuple[Trial, ...], code: int
) -> None:
    assert _code(trials) == code


def test_a_study_that_the_machine_stopped_is_not_one_that_is_done() -> None:
    trials = (f.failed(0, kind=TrialKind.BASELINE),)
    result = StudyResult(f.study(), None, "the model is not there", trials, stopped=True, halted=True)
    assert exit_code(result, SignalStop(lambda _: None)) == 5
