"""The stopping rule: it spares what cannot win, never what may, and takes what the guard objects to for no evidence."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotune.domain import Protocol
from autotune.statistics import early_stopping
from autotune.statistics.early_stopping import ALPHA, COULD_STILL, LOOKS, Decision, Known, Verdict
from autotune.statistics.noise import NoisePrior, Sample
from tests.support import factories as f

NOISES = st.lists(st.floats(-0.06, 0.06), min_size=LOOKS[-1], max_size=LOOKS[-1])
SPEEDS = st.floats(10.0, 14.0)


def sample(speed: float, noises: list[float], trial: int = 1, disturbed: int = 0, update: float = 0.4) -> Sample:
    """Cycles around ``speed`` (log tokens/hour), each split into generate and update."""
    logs = tuple(speed + noise for noise in noises)
    hours = [3600.0 * math.exp(-log) for log in logs]
    cycles = [f.cycle(lengths=(1,), phases={"generate": (1 - update) * one, "update": update * one}) for one in hours]
    return Sample(trial, logs, tuple(cycles), disturbed=disturbed)


def cut(whole: Sample, cycles: int) -> Sample:
    return replace(whole, logs=whole.logs[:cycles], cycles=whole.cycles[:cycles])


def against(speed: float, count: int = 1, noises: tuple[float, ...] = (0.0, 0.01, -0.01)) -> Known:
    """Weighed against ``count`` trials, the fastest at ``speed``."""
    rivals = [sample(speed - 0.3 * n, list(noises), trial=n) for n in range(count)]
    return early_stopping.weigh(rivals, [[r] for r in rivals], on_gpu=False)


def follow(whole: Sample, known: Known) -> tuple[int, Decision]:
    """(cycles made, last decision) of a trial that could have all cycles."""
    decision = early_stopping.GO_ON
    for cycles in range(1, len(whole.logs) + 1):
        decision = early_stopping.decide(cut(whole, cycles), known)
        if decision.verdict is not Verdict.GO_ON:
            return cycles, decision
    return len(whole.logs), decision


@given(SPEEDS, st.floats(0.0, 2.0), NOISES, st.integers(1, 30))
def test_a_trial_that_measures_at_least_the_best_is_never_stopped(
    speed: float, faster: float, noises: list[float], rivals: int
) -> None:
    level = [noise - min(statistics.fmean(noises[:n]) for n in range(1, len(noises) + 1)) for noise in noises]
    assert follow(sample(speed + faster, level), against(speed, rivals))[1].ceiling is None


@given(SPEEDS, st.floats(0.05, 2.0), st.floats(0.0, 2.0), NOISES)
def test_a_worse_trial_ends_no_later(speed: float, slower: float, by: float, noises: list[float]) -> None:
    known = against(speed)
    cycles, decision = follow(sample(speed - slower, noises), known)
    assume(decision.verdict is Verdict.LOSES)
    assert follow(sample(speed - slower - by, noises), known)[0] <= cycles


@given(SPEEDS, st.floats(0.0, 3.0), NOISES)
def test_what_is_said_to_be_reached_at_most_is_more_than_was_measured_and_less_than_the_best(
    speed: float, slower: float, noises: list[float]
) -> None:
    known, whole = against(speed), sample(speed - slower, noises)
    cycles, decision = follow(whole, known)
    assert cycles in (*COULD_STILL, *LOOKS)
    if decision.ceiling is None:
        return
    measured = math.exp(statistics.fmean(whole.logs[:cycles]))
    assert measured < decision.ceiling.at_most < decision.ceiling.best_at_least <= math.exp(speed) * (1 + 1e-9)
    assert (decision.ceiling.cycles, decision.ceiling.physical) == (cycles, cycles < LOOKS[0])


def test_a_hopeless_trial_is_stopped_by_its_phases_after_one_cycle() -> None:
    assert follow(sample(10.0, [0.0] * 8), against(12.0))[0] == 1


@pytest.mark.parametrize("times", [1.3, 1.9])
def test_a_slow_first_cycle_does_not_end_a_trial(times: float) -> None:
    noises = [-math.log(times), *[0.01, -0.01, 0.0, 0.02, -0.02, 0.01, 0.0]]
    cycles, decision = follow(sample(12.1, noises), against(12.0))
    assert cycles >= LOOKS[0]
    assert decision.ceiling is None


def test_the_physical_minimum_is_the_best_time_of_any_trial_less_a_margin() -> None:
    fast_update = sample(12.0, [0.0] * 3, trial=0, update=0.1)
    fast_generation = sample(12.0, [0.0] * 3, trial=1, update=0.9)
    known = early_stopping.weigh([fast_update, fast_generation], [[fast_update]], on_gpu=False)
    unit = math.exp(-12.0)
    assert known.least == pytest.approx({"generate": 0.8 * 0.1 * unit, "update": 0.8 * 0.1 * unit})
    halved = sample(12.0, [0.0], update=0.5)
    assert early_stopping.physical_limit(halved, {}) == pytest.approx(12.0 + math.log(2.0))
    floor = {"generate": 0.4 * unit, "update": 0.0}
    assert early_stopping.physical_limit(halved, floor) == pytest.approx(-math.log((0.4 + 0.25) * unit))
    assert early_stopping.physical_limit(halved, {"generate": 9.0, "update": 9.0, "sync": 9.0}) == pytest.approx(12.0)


def test_without_a_rival_three_cycles_are_enough() -> None:
    known = early_stopping.weigh([], [], on_gpu=False)
    assert follow(sample(12.0, [0.0] * 8), known) == (LOOKS[0], early_stopping.ENOUGH)


def test_a_tie_is_left_to_the_confirmation_after_the_first_look() -> None:
    assert follow(sample(12.0, [0.0, 0.01, -0.01] * 2 + [0.0] * 2), against(12.0)) == (LOOKS[0], early_stopping.ENOUGH)


def test_a_clear_winner_is_enough_after_the_first_look() -> None:
    assert follow(sample(13.0, [0.0] * 8), against(12.0)) == (LOOKS[0], early_stopping.ENOUGH)


def test_a_trial_goes_on_where_more_cycles_would_tell() -> None:
    """Cycles that scatter widely: after three the bound is still open, after five or eight it is not."""
    known = replace(against(12.0), between=0.01**2, prior=NoisePrior(0.15**2, 20))
    whole = sample(11.58, [0.15, -0.15, 0.0, 0.1, -0.1, 0.05, -0.05, 0.0])
    assert early_stopping.decide(cut(whole, 3), known) == early_stopping.GO_ON
    cycles, decision = follow(whole, known)
    assert cycles in LOOKS[1:]
    assert decision.verdict is Verdict.LOSES


def test_no_more_cycles_than_there_is_time_for() -> None:
    known = replace(against(12.0), between=0.01**2, prior=NoisePrior(0.15**2, 20))
    whole = sample(11.58, [0.15, -0.15, 0.0])
    assert early_stopping.decide(whole, known, room=True) == early_stopping.GO_ON
    assert early_stopping.decide(whole, known, room=False) == early_stopping.ENOUGH


@given(SPEEDS, st.integers(0, 2), st.integers(1, 8))
def test_what_the_guard_objects_to_is_no_evidence_against_a_trial(speed: float, clean: int, disturbed: int) -> None:
    found = early_stopping.decide(sample(speed - 5.0, [0.0] * clean, disturbed=disturbed), against(speed))
    assert found == (early_stopping.ENOUGH if clean + disturbed >= LOOKS[0] else early_stopping.GO_ON)


def test_the_looks_together_spend_alpha() -> None:
    assert sum(early_stopping.spends(look) for look in range(len(LOOKS))) == pytest.approx(ALPHA)
    assert all(early_stopping.spends(look) > 0 for look in range(len(LOOKS)))
    assert early_stopping.spent_by(0.0) == 0.0
    assert early_stopping.spent_by(1.0) == pytest.approx(ALPHA)


@given(st.integers(1, 40))
def test_more_rivals_are_no_reason_to_stop_sooner(count: int) -> None:
    one, many = against(12.0), against(12.0, count)
    if len(many.least) and many.prior.degrees <= one.prior.degrees:
        assert many.rival.low <= one.rival.low


def test_cycles_that_agree_exactly_leave_bounds_that_mean_something() -> None:
    same = [sample(12.0, [0.0] * 3, trial=n) for n in range(5)]
    known = early_stopping.weigh(same, [[s] for s in same], on_gpu=False)
    assert known.prior.variance > 0
    assert known.rival.low < 12.0 < known.rival.high


def test_only_a_protocol_of_three_cycles_gets_looks() -> None:
    assert early_stopping.with_looks(f.protocol()) == f.protocol(recorded=8, looks=LOOKS)
    assert early_stopping.with_looks(f.protocol(recorded=2)) == f.protocol(recorded=2)
    assert Protocol().looks == ()
