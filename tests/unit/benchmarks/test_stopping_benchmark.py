"""The simulation behind the stopping rule's table: its truth, its noise, and what it counts."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy import stats

from autotune.statistics import noise
from benchmarks import stopping as simulation

pytestmark = pytest.mark.full

QUIET = simulation.Noise(0.001, 0.001, "a test")
USUAL = simulation.Noise(noise.CYCLE_SPREAD, noise.PROCESS_SPREAD, "a test")
SPEEDS = simulation.recorded_speeds()


@pytest.mark.parametrize(("hits", "of"), [(0, 1000), (2, 1000), (12, 400), (3, 3)])
def test_the_upper_bound_is_the_exact_binomial_one(hits: int, of: int) -> None:
    exact = 1.0 if hits == of else stats.beta.ppf(0.95, hits + 1, of - hits)
    assert simulation.at_most(hits, of) == pytest.approx(exact, abs=1e-6)


def test_recorded_configurations_are_those_of_the_table_without_the_emulated() -> None:
    assert len(SPEEDS) == 22
    assert statistics.fmean(SPEEDS) == pytest.approx(0.0, abs=1e-12)
    assert math.exp(max(SPEEDS) - min(SPEEDS)) == pytest.approx(122_570 / 45_168)


def test_the_noise_of_a_made_trial_is_what_was_asked_for() -> None:
    draw = random.Random(1)
    trials = [simulation.made(n, 12.0, simulation.Noise(0.03, 0.0, ""), draw, 8) for n in range(400)]
    pooled = math.sqrt(statistics.fmean(t.variance for t in trials))
    assert 0.03 < pooled < 0.12
    for cycle, log in zip(trials[0].phases, trials[0].logs, strict=True):
        assert sum(cycle.values()) == pytest.approx(math.exp(-log))


def test_a_study_is_the_same_for_the_same_seed_and_counts_every_trial_once() -> None:
    case = simulation.Case("", USUAL, SPEEDS)
    scores = [simulation.study(case, 12, 5) for _ in range(2)]
    assert scores[0] == scores[1]
    assert sum(scores[0].ends.values()) == scores[0].trials == 11
    assert 11 <= scores[0].cycles <= 8 * 11


def test_the_best_is_hardly_ever_discarded_and_cycles_are_spared() -> None:
    for apart in (1.0, 1 / 3):
        case = simulation.Case("", USUAL, SPEEDS, apart)
        scores = [simulation.study(case, 20, seed) for seed in range(60)]
        assert sum(s.discarded for s in scores) <= 2
        assert sum(s.cycles for s in scores) < 0.5 * 8 * sum(s.trials for s in scores)


def test_without_noise_the_choice_is_the_true_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "OUTLIERS", 0.0)
    monkeypatch.setattr(simulation, "SLOW_FIRSTS", 0.0)
    case = simulation.Case("", QUIET, SPEEDS)
    for seed in range(10):
        score = simulation.study(case, 20, seed)
        assert not score.discarded
        assert score.loss <= 0.01


def test_first_cycles_that_were_a_warm_up_are_dropped_and_no_others() -> None:
    def kept(*seconds: float) -> tuple[float, ...]:
        logs = tuple(-math.log(spent) for spent in (*seconds, *[10.0] * 9))
        sample = simulation.settled(noise.Sample(1, logs, tuple({} for _ in logs)))
        assert len(sample.logs) == len(sample.phases)
        return tuple(round(math.exp(-log), 6) for log in sample.logs[: len(sample.logs) - 9])

    assert kept(19.0, 10.0) == (10.0,)
    assert kept(12.0, 10.0) == (12.0, 10.0)
    assert kept(40.0, 20.0, 10.0) == (10.0,)
    assert kept(10.0, 19.0, 10.0) == (10.0, 19.0, 10.0)
    assert len(kept(80.0, 60.0, 40.0, 20.0)) == 1, "no more than a trial may repeat"
