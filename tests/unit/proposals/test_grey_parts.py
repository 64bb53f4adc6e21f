"""The parts of the grey-box sampler: surfaces, the choice, what a trial costs, results kept for a while."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import FailureReason, Outcome, Trial
from autotune.proposals.forecasts import SURE
from autotune.proposals.grey import learnt as learning
from autotune.proposals.grey import surfaces
from autotune.proposals.grey.choice import (
    BARS,
    CAREFUL,
    LESS_LIKELY,
    LIKELY,
    MAX_OOMS,
    OOM_WINDOW,
    SEVERAL,
    Outlook,
    choice,
    likely,
    likely_from,
    log_improvement,
    processes_go_on,
    trial_costs,
)
from autotune.proposals.grey.learnt import Lesson, learnt, phase_rows, summed
from autotune.proposals.grey.models import likely_enough
from autotune.proposals.grey.surfaces import Axes, Surfaces, fit
from autotune.proposals.translation import OptunaTrialStatus, selected
from search_spaces.knobs.model import Restart
from tests.support import factories

TWO = Axes((True, False))


def _grid() -> np.ndarray:
    return np.array([(x, c) for x in np.linspace(0, 1, 9) for c in (0.0, 1.0, 2.0)])


def _truth(points: np.ndarray) -> np.ndarray:
    return np.sin(3 * points[:, 0]) + np.array([0.0, 1.0, 0.3])[points[:, 1].astype(int)]


def test_effects_of_knobs_add_up_where_they_were_never_seen_together() -> None:
    points = _grid()
    seen = np.array([i for i, (x, c) in enumerate(points) if c == 0.0 or x in (0.0, 0.5)])
    unseen = np.setdiff1d(np.arange(len(points)), seen)
    belief = fit(TWO, points[seen], _truth(points[seen])[None]).at(points[unseen])
    assert np.abs(belief.mean[0] - _truth(points[unseen])).max() < 0.25
    assert np.corrcoef(belief.mean[0], _truth(points[unseen]))[0, 1] > 0.95


def test_a_knob_that_changes_nothing_is_found_to_matter_less() -> None:
    chance = np.random.default_rng(3)
    points = chance.random((24, 3))
    found = fit(Axes((True, True, True)), points, 4.0 * points[None, :, 1])
    assert np.argmax(found.matters[0]) == 1
    assert found.matters[0, 1] > 5 * max(found.matters[0, 0], found.matters[0, 2])


def test_several_surfaces_at_once_are_as_each_alone() -> None:
    points = _grid()[::2]
    targets = np.stack([_truth(points), points[:, 0] ** 2])
    both = fit(TWO, points, targets).at(_grid())
    for row in (0, 1):
        alone = fit(TWO, points, targets[row : row + 1]).at(_grid())
        assert np.allclose(both.mean[row], alone.mean[0])
        assert np.allclose(both.variance[row], alone.variance[0])


def test_it_is_surer_where_it_was_measured() -> None:
    points = _grid()
    belief = fit(TWO, points[:6], _truth(points[:6])[None]).at(points)
    assert belief.variance[0, :6].max() < belief.variance[0, -3:].min()
    assert fit(TWO, points[:6], np.zeros((1, 6))).at(points).mean == pytest.approx(0.0)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_bound_moves_the_belief_to_its_side_and_no_further(side: int) -> None:
    points = _grid()[:9]
    surface = fit(TWO, points, _truth(points)[None])
    at = np.array([[0.9, 2.0]])
    before = float(surface.at(at).mean[0, 0])
    after = float(surface.bounded(at, np.array([before + side * 1.0]), side).at(at).mean[0, 0])
    assert side * (after - before) > 0.1
    far = surface.bounded(at, np.array([before - side * 100.0]), side)
    assert float(far.at(at).mean[0, 0]) == before
    none = surface.bounded(np.zeros((0, 2)), np.zeros(0), side)
    assert none is surface


def test_points_being_measured_are_believed_to_come_out_as_expected() -> None:
    points = _grid()[:9]
    surface = fit(TWO, points, _truth(points)[None])
    at = np.array([[0.9, 2.0]])
    before, after = surface.at(at), surface.believing(at).at(at)
    assert after.mean[0, 0] == pytest.approx(before.mean[0, 0], abs=1e-6)
    assert after.variance[0, 0] < 0.5 * before.variance[0, 0]
    assert isinstance(surface.believing(np.zeros((0, 2))), Surfaces)


def test_the_slope_of_the_likelihood_is_its_slope() -> None:
    """Against differences, for every parameter of two surfaces."""
    chance = np.random.default_rng(5)
    points = np.stack([chance.random(7), chance.integers(0, 3, 7).astype(float)], axis=1)
    alike = np.stack([TWO.alike(a, points[:, a], points[:, a]) for a in (0, 1)])
    targets, here = chance.normal(size=(2, 7)), chance.normal(size=(2, 4)) - 1.0
    _, slope = surfaces._posterior(alike, targets, here)
    for column in range(4):
        step = np.zeros_like(here)
        step[:, column] = 1e-5
        up, down = (surfaces._posterior(alike, targets, here + s * step)[0] for s in (1, -1))
        assert slope[:, column] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-6)


def test_the_mean_of_a_sum_of_phases_is_that_of_draws() -> None:
    means, deviations = np.array([[0.0], [1.0], [-1.0]]), np.array([[0.3], [0.1], [0.5]])
    logs, spread = summed(means, deviations**2)
    drawn = np.log(np.exp(np.random.default_rng(1).normal(means, deviations, (3, 200_000))).sum(axis=0))
    assert logs[0] == pytest.approx(drawn.mean(), abs=0.01)
    assert spread[0] == pytest.approx(drawn.std(), abs=0.01)


@given(st.lists(st.floats(-60, 60), min_size=2, max_size=20), st.floats(0.01, 3.0))
def test_improvement_grows_with_the_value_however_hopeless(values: list[float], spread: float) -> None:
    ordered = np.array(sorted(values))
    found = log_improvement(ordered, np.full(len(ordered), spread), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-9).all()


def test_improvement_is_that_of_draws() -> None:
    for value, spread in ((0.1, 0.2), (-0.3, 0.2), (-0.5, 0.1)):
        drawn = np.random.default_rng(0).normal(value, spread, 2_000_000)
        exact = float(log_improvement(np.array([value]), np.array([spread]), 0.0)[0])
        if exact > -9:
            assert exact == pytest.approx(math.log(np.maximum(drawn, 0.0).mean()), abs=0.05)
    series = log_improvement(np.array([-20.001, -19.999]), np.ones(2), 0.0)
    assert series[1] - series[0] == pytest.approx(0.002 * 20.1, rel=0.01)


def _outlook(**changes: list[float]) -> Outlook:
    given = {"value": [0.0, 0.0], "spread": [0.1, 0.1], "holds": [1.0, 1.0], "seconds": [60.0, 60.0]} | changes
    restarts = np.array(given.pop("restarts", [0, 0]), dtype=np.int64)
    return Outlook(**{name: np.array(value) for name, value in given.items()}, restarts=restarts)


def test_the_choice_weighs_value_certainty_cost_and_restarts() -> None:
    assert choice(_outlook(value=[0.0, 0.05]), 0.0) == 1
    assert choice(_outlook(spread=[0.1, 0.3]), 0.1) == 1
    assert choice(_outlook(holds=[0.8, 1.0]), 0.0) == 1
    assert choice(_outlook(seconds=[90.0, 60.0]), 0.0) == 1
    assert choice(_outlook(restarts=[2, 0]), 0.0) == 1
    assert choice(_outlook(value=[0.05, 0.0], restarts=[2, 0]), 0.0) == 0
    assert choice(_outlook(), 0.0) == 0


def test_what_hardly_holds_waits_until_nothing_else_is_left() -> None:
    assert choice(_outlook(value=[3.0, -3.0], holds=[LIKELY - 0.01, 1.0]), 0.0) == 1
    assert choice(_outlook(value=[3.0, -3.0], holds=[LESS_LIKELY, 1.0]), 0.0) == 1
    assert choice(_outlook(value=[3.0, -3.0], holds=[LESS_LIKELY, 1.0]), 0.0, LESS_LIKELY) == 0
    assert choice(_outlook(value=[3.0, -3.0], holds=[0.2, 0.2]), 0.0) == 0
    assert choice(_outlook(holds=[0.0, 0.0]), 0.0) == 0


def test_where_nothing_is_likely_enough_the_next_lower_bar_counts() -> None:
    for least, lower in itertools.pairwise(BARS):
        outlook = _outlook(value=[3.0, -3.0], holds=[lower - 0.01, lower])
        assert choice(outlook, 0.0, least) == 1
        assert choice(outlook, 0.0, lower - 0.01) == 0
        assert likely(outlook.holds, least).tolist() == [False, True], "as it is asked where nothing forecasts times"
    assert likely(np.array([0.0, 0.3]), LIKELY).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_whatever_was_told_the_belief_is_finite(count: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    lessons = [
        Lesson(
            (float(chance.integers(0, 3)) / 2, float(chance.integers(0, 3))),
            list(OptunaTrialStatus)[int(chance.integers(4))],
            float(chance.choice([math.nan, 0.0, 5.0, -1e3, 9.9, math.inf])) if chance.random() < 0.5 else 10.0,
            {"a": 1.0, "b": float(chance.random())} if chance.random() < 0.8 else {},
            float(chance.random()) * 1e9 if chance.random() < 0.8 else None,
            bool(chance.random() < 0.3),
        )
        for _ in range(count)
    ]
    found = learnt(TWO, lessons, _grid(), limit=1e9)
    assert np.isfinite(found.value).all()
    assert (found.spread > 0).all()
    assert ((found.holds >= 0) & (found.holds <= 1)).all()
    assert math.isfinite(found.best)


def test_phases_are_used_only_where_they_tell_the_value() -> None:
    def lesson(value: float, **phases: float) -> Lesson:
        return Lesson((0.0, 0.0), OptunaTrialStatus.FEASIBLE, value, phases)

    lessons = [lesson(-math.log(10.0), a=6.0, b=3.9, c=0.1), lesson(-math.log(5.0), a=4.0, b=0.95, c=0.05)]
    assert phase_rows(lessons) == (("a",), ("b",), ("c",))
    assert phase_rows([*lessons, lesson(-math.log(20.0), a=1.0, b=1.0)]) == ()
    assert phase_rows([*lessons, lesson(-math.log(7.0))]) == ()


def test_peaks_below_the_limit_make_more_of_the_same_likely_and_more_than_that_unlikely() -> None:
    axes = Axes((True,))
    lessons = [Lesson((x,), OptunaTrialStatus.FEASIBLE, 1.0, peak=1e9 * (1 + 4 * x)) for x in (0.0, 0.2, 0.4, 0.5)]
    found = learnt(axes, lessons, np.array([[0.1], [0.45], [0.65]]), limit=3.2e9)
    assert found.holds[0] > 0.9
    assert found.holds[0] > found.holds[1] > found.holds[2]
    assert found.holds[2] < LIKELY
    out = Lesson((0.6,), OptunaTrialStatus.INFEASIBLE, memory=True)
    fails = learnt(axes, [*lessons, out], np.array([[0.6]]), limit=3.2e9)
    assert fails.holds[0] < learnt(axes, lessons, np.array([[0.6]]), limit=3.2e9).holds[0]
    few = learning.KEPT_FASTEST, learning.KEPT_NEWEST
    assert len(selected([*lessons] * 60, *few)) == sum(few)


COLD = {"import": 9.0, "load": 3.0, "first_batch": 2.0}
WARM = {"load": 0.1, "first_batch": 2.0}


def _trial(number: int, startup: dict[str, float] | None = None, **knobs: object) -> Trial:
    asked = factories.configuration().with_(**knobs)  # type: ignore[arg-type]
    return factories.finished(number, configuration=asked, startup=COLD if startup is None else startup)


def test_a_restart_costs_a_start_and_no_restart_the_warm_up_alone() -> None:
    way = trial_costs([_trial(0)])
    asked = [factories.configuration().with_(micro_batch_size=4), factories.configuration().with_(precision="bf16")]
    restarts = way.restarts(asked)
    assert restarts.tolist() == [Restart.NONE, Restart.PROCESS]
    seconds = way.seconds(np.array([10.0, 10.0]), restarts)
    assert seconds.tolist() == [10.0 + 3 * 10.0, 12.0 + 10.0 + 3 * 10.0]
    assert way.seconds(np.array([10.0, 10.0]), restarts, np.array([50.0, 50.0])).tolist() == [40.0, 80.0]


def test_after_a_failure_everything_needs_a_process() -> None:
    way = trial_costs([_trial(0), factories.failed(1)])
    assert way.last is None
    assert way.restarts([factories.configuration()]).tolist() == [Restart.PROCESS]
    assert trial_costs([]).last is None
    assert trial_costs([_trial(0)], device="cpu").last is None
    assert trial_costs([_trial(0)], device="cuda").last == factories.configuration()
    running = factories.trial(1, configuration=factories.configuration())
    assert trial_costs([_trial(0), running]).last == factories.configuration()


def test_processes_go_on_until_one_that_could_has_not() -> None:
    assert processes_go_on([_trial(0)])
    assert processes_go_on([_trial(0), _trial(1, WARM, micro_batch_size=4)])
    assert not processes_go_on([_trial(0), _trial(1, COLD, micro_batch_size=4)])
    assert processes_go_on([_trial(0), _trial(1, COLD, precision="bf16")])
    assert processes_go_on([_trial(0), _trial(2, COLD, micro_batch_size=4)])
    assert trial_costs([_trial(0), _trial(1, COLD, micro_batch_size=4)]).last is None


def test_whether_a_process_could_have_gone_on_is_asked_by_the_frameworks_own_defaults() -> None:
    """To ms-swift bf16 weights are no change, to TRL they are."""
    trials = [_trial(0), _trial(1, COLD, master_weights="bf16")]
    assert processes_go_on(trials, "trl")
    assert not processes_go_on(trials, "ms_swift")
    assert trial_costs(trials, "ms_swift").last is None


def test_what_is_likely_enough_goes_by_the_trials_that_held() -> None:
    assert [likely_from(n) for n in (0, SEVERAL - 1, SEVERAL, 100)] == [SURE, SURE, LESS_LIKELY, LESS_LIKELY]
    held = [factories.finished(number) for number in range(SEVERAL - 1)]
    failed = [factories.failed(number) for number in range(100, 100 + MAX_OOMS - 1)]
    assert likely_enough([*held, *failed]) == SURE
    assert likely_enough([*held, *failed, factories.finished(50)]) == LESS_LIKELY
    assert likely_enough([*held, factories.stopped(50)]) == LESS_LIKELY


def test_after_so_many_failures_in_so_many_trials_no_more_are_risked() -> None:
    few = OOM_WINDOW - MAX_OOMS
    assert [likely_from(0, n) for n in range(MAX_OOMS + 2)] == [SURE] * MAX_OOMS + [CAREFUL] * 2
    assert [likely_from(few, n) for n in (MAX_OOMS - 1, MAX_OOMS, 3 * MAX_OOMS)] == [LESS_LIKELY, CAREFUL, CAREFUL]
    many = 2 * OOM_WINDOW
    assert [likely_from(many, n) for n in (MAX_OOMS, 2 * MAX_OOMS, 3 * MAX_OOMS)] == [LESS_LIKELY, LESS_LIKELY, CAREFUL]
    held, failed = [factories.finished(n) for n in range(SEVERAL)], [factories.failed(100), factories.failed(101)]
    assert likely_enough([*held, *failed]) == CAREFUL
    # What a guard or a crash ended says nothing of memory.
    crash = Outcome(FailureReason.CRASH, "update", None)
    assert likely_enough([*held, failed[0], factories.failed(101, crash)]) == LESS_LIKELY
