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
    assert variation.between_processes([], 0.04) == Prior(0.04, variation.PRESUMED_DEGREES)


@pytest.mark.parametrize(
    ("on_gpu", "recorded"), [(False, variation.PROCESS_SPREAD), (True, variation.GPU_PROCESS_SPREAD)]
)
@given(cycles=st.floats(1e-4, 1.0))
def test_processes_are_presumed_to_differ_as_recorded_and_more_where_cycles_scatter(
    on_gpu: bool, recorded: float, cycles: float
) -> None:
    found = math.sqrt(variation.presumed_between(Prior(cycles**2, 9), on_gpu=on_gpu))
    assert found >= recorded * (1 - 1e-9)
    assert found > cycles
    if cycles <= variation.CYCLE_SPREAD:
        assert found == pytest.approx(recorded), "that cycles agree well says nothing of processes"
    if cycles > recorded:
        assert found > recorded


def test_a_gpus_processes_are_presumed_to_differ_as_the_two_recorded_pairs_did() -> None:
    """Tokens/hour of trials 0 and 3, and of 2 and 4, of the eager study in benchmarks/tables."""
    pairs = [[math.log(a), math.log(b)] for a, b in ((3.451, 4.261), (5.326, 4.629))]
    pooled = math.sqrt(sum((a - b) ** 2 / 2 for a, b in pairs) / len(pairs))
    assert pooled == pytest.approx(variation.GPU_PROCESS_SPREAD, rel=0.03)


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
    presumed = variation.PROCESS_SPREAD**2
    less, more = (variation.between_processes(groups, presumed) for groups in (quiet, restless))
    assert less.variance < presumed < more.variance
    assert less.degrees == more.degrees == variation.PRESUMED_DEGREES + 6


def test_each_group_varies_around_its_own_mean() -> None:
    assert variation.pooled([[1.0, 3.0], [50.0], [], [7.0, 7.0, 7.0]]) == Prior(pytest.approx(2 / 3), 3)  # type: ignore[arg-type]
    assert variation.pooled([[1.0], []]) == Prior(0.0, 0)
