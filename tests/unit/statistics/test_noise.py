"""How far cycles and processes scatter: presumed at first, then as the study shows."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.statistics import noise
from autotune.statistics.noise import NoisePrior, Sample


def sample(noises: list[float], trial: int = 1) -> Sample:
    """Cycles around some speed, in log tokens/hour."""
    return Sample(trial, tuple(12.0 + noise for noise in noises))


def test_the_prior_is_the_presumption_before_anything_is_known() -> None:
    assert noise.fit_prior([]) == NoisePrior(noise.CYCLE_SPREAD**2, noise.PRESUMED_DEGREES)


@pytest.mark.parametrize(("on_gpu", "recorded"), [(False, noise.PROCESS), (True, noise.GPU_PROCESS)])
@given(cycles=st.floats(1e-4, 1.0))
def test_processes_are_presumed_to_differ_as_recorded_and_more_where_cycles_scatter(
    on_gpu: bool, recorded: NoisePrior, cycles: float
) -> None:
    assert noise.recorded_process(on_gpu=on_gpu) == recorded
    found = noise.presumed_process(NoisePrior(cycles**2, 9), recorded)
    assert found.degrees == recorded.degrees, "cycles tell of the size only"
    assert found.variance >= recorded.variance
    assert math.sqrt(found.variance) >= 0.9 * cycles * (1 - 1e-9)
    if cycles <= math.sqrt(recorded.variance):
        assert found == recorded, "that cycles agree well says nothing of processes"


def test_the_prior_finds_the_noise_of_trials_alike_and_how_alike_they_are() -> None:
    draw = random.Random(3)
    alike = [sample([draw.gauss(0.0, 0.05) for _ in range(3)], n) for n in range(200)]
    found = noise.fit_prior(alike)
    assert math.sqrt(found.variance) == pytest.approx(0.05, rel=0.2)
    assert found.degrees > 5
    spreads = [0.01, 0.2] * 100
    unlike = [sample([draw.gauss(0.0, s) for _ in range(3)], n) for n, s in enumerate(spreads)]
    assert noise.fit_prior(unlike).degrees < 3


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.2), st.floats(1.0, 100.0))
def test_a_trials_own_noise_is_moderated_by_the_studys(own: float, pooled: float, degrees: float) -> None:
    found = NoisePrior(pooled**2, degrees).moderated(sample([own, -own, 0.0]))
    assert min(own**2, pooled**2) * (1 - 1e-9) <= found.variance <= max(own**2, pooled**2) * (1 + 1e-9)
    assert found.degrees == degrees + 2
