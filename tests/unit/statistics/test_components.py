"""The variance components, and the intervals they leave."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from autotune.statistics import components
from autotune.statistics.components import LEAST_PROCESS_SPREAD, Run, estimated
from autotune.statistics.distributions import t95
from autotune.statistics.noise import NoisePrior

PRIOR = NoisePrior(0.07**2, 6.0)
NO_CYCLES = NoisePrior(0.0, math.inf)


def twice(differences: Sequence[float], variance: float = 1e-6) -> list[Run]:
    """Configurations that ran twice, in moments of their own."""
    return [
        Run(configuration=n, moment=(n, k), log=12.0 + n + k * difference, variance=variance)
        for n, difference in enumerate(differences)
        for k in (0, 1)
    ]


def test_without_repeats_the_presumption_stands() -> None:
    found = estimated([Run(n, n, 12.0 + n, 1e-4) for n in range(5)], PRIOR).process
    assert (found.variance, found.degrees) == (
        pytest.approx(PRIOR.variance, rel=1e-3),
        pytest.approx(PRIOR.degrees, rel=1e-2),
    )


@pytest.mark.parametrize("degrees", [4.0, 8.0, 30.0])
@pytest.mark.parametrize("share", [1.0, 2.0, 2.0 / 3.0])
def test_without_repeats_and_cycles_it_is_students_interval(degrees: float, share: float) -> None:
    prior = NoisePrior(0.07**2, degrees)
    width = estimated([], prior).half_width(share, NO_CYCLES)
    assert width == pytest.approx(t95(degrees) * 0.07 * math.sqrt(share), rel=0.02)


def test_what_cycles_leave_open_is_added_with_its_own_degrees() -> None:
    certain = components.Components(components._PROCESS[:1], components._DRIFT[:1], np.ones((1, 1)))
    for degrees in (3.0, 10.0):
        assert certain.half_width(1e-9, NoisePrior(0.2**2, degrees)) == pytest.approx(0.2 * t95(degrees), rel=0.02)


def test_more_configurations_that_agree_narrow_it_further_but_never_below_the_floor() -> None:
    widths = [estimated(twice([0.0] * n, 0.0), PRIOR).half_width(2.0, NO_CYCLES) for n in (0, 1, 4, 16)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] >= 1.96 * math.sqrt(2.0) * LEAST_PROCESS_SPREAD


def test_processes_whose_cycles_scatter_tell_less() -> None:
    """A difference that the cycles explain is no sign that processes differ."""
    explained, own = (estimated(twice([0.3] * 3, variance), PRIOR).process.variance for variance in (0.05, 1e-6))
    assert explained < PRIOR.variance < own


def test_a_machine_that_was_slower_in_one_round_does_not_hide_that_ratios_agree() -> None:
    def width(slow: float, apart: float) -> float:
        """The machine is slower in the second round, and so is the second configuration alone."""
        logs = [(0, 0, 0.0), (1, 0, 0.41), (0, 1, 0.01 - slow), (1, 1, 0.40 - slow - apart), (0, 2, 0.0), (1, 2, 0.4)]
        runs = [Run(configuration, moment, log, 1e-5) for configuration, moment, log in logs]
        return estimated(runs, PRIOR).half_width(2.0 / 3.0, NO_CYCLES)

    assert width(0.4, 0.0) < estimated([], PRIOR).half_width(2.0 / 3.0, NO_CYCLES) < width(0.0, 0.4)


def test_more_rounds_never_widen_it_at_equal_noise_on_average() -> None:
    draw, widths = random.Random(4), {1: [], 2: [], 3: []}
    for _ in range(60):
        runs = [Run(c, r, draw.gauss(0.4 * c, 0.07), 4e-4) for r in range(3) for c in (0, 1)]
        for rounds, found in widths.items():
            kept = [run for run in runs if int(str(run.moment)) < rounds]
            found.append(estimated(kept, PRIOR).half_width(2.0 / rounds, NoisePrior(8e-4 / rounds, 12.0)))
    means = [statistics.fmean(found) for found in widths.values()]
    assert means[0] > means[1] > means[2]


def test_of_very_many_runs_only_the_latest_are_looked_at() -> None:
    draw = random.Random(1)
    runs = [Run(n % 2, n, draw.gauss(0.0, 0.07), 1e-5) for n in range(4 * components.MOST_RUNS)]
    assert (estimated(runs, PRIOR).weights == estimated(runs[-components.MOST_RUNS :], PRIOR).weights).all()


def test_processes_at_different_times_differ_by_the_drift_too() -> None:
    known = estimated(twice([0.02, -0.02]), PRIOR)
    apart, together = (known.half_width(2.0, NO_CYCLES, moments=moments) for moments in (2.0, 0.0))
    assert together < apart < 3 * together
