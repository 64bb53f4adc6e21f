"""How far cycles and processes scatter: presumed at first, then as the study shows."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import variation
from autotune.variation import Prior, Sample


def sample(noises: list[float], trial: int = 1) -> Sample:
    """Cycles around some speed, in log tokens/hour."""
    return Sample(trial, tuple(12.0 + noise for noise in noises))


def test_the_prior_is_the_presumption_before_anything_is_known() -> None:
    assert variation.fit_prior([]) == Prior(variation.CYCLE_SPREAD**2, variation.PRESUMED_DEGREES)
    assert variation.between_processes([]) == pytest.approx(variation.PROCESS_SPREAD**2)


def test_the_prior_finds_the_noise_of_trials_alike_and_how_alike_they_are() -> None:
    draw = random.Random(3)
    alike = [sample([draw.gauss(0.0, 0.05) for _ in range(3)], n) for n in range(200)]
    found = variation.fit_prior(alike)
    assert math.sqrt(found.variance) == pytest.approx(0.05, rel=0.2)
    assert found.degrees > 5
    spreads = [0.01, 0.2] * 100
    unlike = [sample([draw.gauss(0.0, s) for _ in range(3)], n) for n, s in enumerate(spreads)]
    assert variation.fit_prior(unlike).degrees < 3


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.2), st.floats(1.0, 100.0))
def test_a_trials_own_noise_is_moderated_by_the_studys(own: float, pooled: float, degrees: float) -> None:
    found = Prior(pooled**2, degrees).moderated(sample([own, -own, 0.0]))
    assert min(own**2, pooled**2) * (1 - 1e-9) <= found.variance <= max(own**2, pooled**2) * (1 + 1e-9)
    assert found.degrees == degrees + 2


def test_processes_that_were_seen_to_differ_are_believed() -> None:
    quiet, restless = ([[0.0, 0.001]] * 6, [[0.0, 0.3]] * 6)
    assert variation.between_processes(quiet) < variation.PROCESS_SPREAD**2 < variation.between_processes(restless)
