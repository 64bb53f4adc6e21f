"""Which trials are compared, and which nothing beats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import FailureReason, Pool, Trial, TrialKind, TrialState
from autotune.insights.ranking import measured, pareto, ranked, speed
from tests.support import factories
from tests.support.factories import GIB


def test_fastest_first() -> None:
    trials = [factories.finished(n, cycle_seconds=s) for n, s in enumerate((10.0, 5.0, 20.0))]
    assert [t.number for t in ranked(trials)] == [1, 0, 2]
    assert speed(ranked(trials)[0]) == pytest.approx(2 * speed(trials[0]))


@pytest.mark.parametrize(
    "trial",
    [
        factories.failed(1),
        factories.trial(1, state=TrialState.RUNNING),
        factories.finished(1, worst_case_passed=False),
        factories.finished(1, cycles=0),
        factories.finished(1, kind=TrialKind.CONFIRM),
        factories.finished(1, kind=TrialKind.VERIFY),
    ],
)
def test_what_cannot_be_compared_is_left_out(trial: Trial) -> None:
    assert [t.number for t in measured([trial, factories.finished(0)])] == [0]


def test_one_trial_stands_for_a_configuration_and_not_the_luckiest() -> None:
    same = factories.configuration(micro_batch_size=4)
    long = factories.finished(1, configuration=same, cycle_seconds=10.0, cycles=4)
    lucky = factories.finished(2, configuration=same, cycle_seconds=8.0, cycles=3)
    again = factories.finished(3, configuration=same, cycle_seconds=7.0, cycles=4)
    for order in ([long, lucky, again], [again, lucky, long]):
        assert [t.number for t in ranked(order)] == [1]


def _point(number: int, fast: int, peak: int) -> Trial:
    trial = factories.finished(number, cycle_seconds=100.0 / fast, watchdog_peak=peak * GIB)
    return trial.with_(cycles=tuple(replace(c, peaks={}) for c in trial.cycles))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=15))
def test_nothing_beats_a_point_of_the_front_and_something_beats_the_rest(pairs: list[tuple[int, int]]) -> None:
    front = {p.trial for p in pareto([_point(n, *pair) for n, pair in enumerate(pairs)], Pool.HOST)}
    assert front
    for number, (fast, peak) in enumerate(pairs):
        beaten = any(f >= fast and p <= peak and (f > fast or p < peak) for f, p in pairs)
        twin = any((fast, peak) == pairs[other] for other in front if other != number)
        assert (number in front) == (not beaten and not twin)


def test_a_front_needs_peaks_of_its_pool() -> None:
    trials = [factories.finished(0), factories.failed(1, factories.failure(FailureReason.CRASH))]
    assert pareto(trials, Pool.DEVICE) == ()
    assert [p.trial for p in pareto(trials, Pool.HOST)] == [0]
