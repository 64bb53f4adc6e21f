"""Non-negative least squares with a prior, and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.proposals.memory.regression import Coefficients, Observations, fit, nonnegative
from tests.support.properties import examples


@examples(25, 60)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 12), tight=st.booleans())
def test_the_minimum_is_one(seed: int, size: int, tight: bool) -> None:
    """Karush-Kuhn-Tucker: what is positive has no slope, what is zero would only rise."""
    draw = np.random.default_rng(seed)
    factor = draw.standard_normal((size + 2, size))
    information = factor.T @ factor + (1e-3 if tight else 1.0) * np.eye(size)
    pull = 10.0 * draw.standard_normal(size)
    found = nonnegative(information, pull)
    slope = information @ found - pull
    assert np.all(found >= 0.0)
    assert np.all(slope >= -1e-6)
    assert np.all(np.abs(slope[found > 0.0]) < 1e-6)


def seen(matrix: list[list[float]], level: list[float], censored: list[bool]) -> Observations:
    count = len(level)
    return Observations(
        matrix=np.array(matrix, dtype=float).reshape(count, 1, 2),
        moments=np.ones((count, 1), dtype=bool),
        level=np.array(level, dtype=float),
        censored=np.array(censored, dtype=bool),
        noise=np.ones(count),
        whole=np.ones(count, dtype=bool),
    )


PRIOR = Coefficients(np.ones(2), np.diag([0.25, 0.25]), 0.05)


def test_without_observations_nothing_is_learnt() -> None:
    found = fit(PRIOR, seen([], [], []))
    assert np.allclose(found.mean, PRIOR.mean)
    assert np.allclose(found.covariance, PRIOR.covariance)
    assert found.noise == PRIOR.noise


def test_what_is_measured_is_believed_and_narrows() -> None:
    found = fit(PRIOR, seen([[2.0, 0.0]] * 4, [3.0] * 4, [False] * 4))
    assert found.mean[0] == pytest.approx(1.5, abs=0.02)
    assert found.mean[1] == pytest.approx(1.0)
    assert found.covariance[0, 0] < 0.02
    assert found.covariance[1, 1] == pytest.approx(0.25)


def test_scatter_is_learnt() -> None:
    levels = [2.0 * (1.0 + s) for s in (0.2, -0.2, 0.15, -0.15, 0.25, -0.25) * 4]
    wide = fit(PRIOR, seen([[2.0, 0.0]] * 24, levels, [False] * 24))
    calm = fit(PRIOR, seen([[2.0, 0.0]] * 24, [2.0] * 24, [False] * 24))
    assert calm.noise < PRIOR.noise < wide.noise
    assert wide.noise == pytest.approx(0.18, abs=0.04)


def test_a_bound_below_what_is_believed_says_nothing() -> None:
    found = fit(PRIOR, seen([[2.0, 1.0]], [1.0], [True]))
    assert np.allclose(found.mean, PRIOR.mean)


def test_a_bound_above_lifts_what_could_explain_it() -> None:
    found = fit(PRIOR, seen([[2.0, 0.0]], [4.0], [True]))
    assert found.mean[0] > 1.7
    assert found.mean[1] == pytest.approx(1.0)
    higher = fit(PRIOR, seen([[2.0, 0.0]], [6.0], [True]))
    assert higher.mean[0] > found.mean[0]


def test_bounds_never_take_back_what_was_measured() -> None:
    both = seen([[1.0, 1.0], [1.0, 0.0]], [2.0, 3.0], [False, True])
    measured = fit(PRIOR, both.part(~both.censored))
    found = fit(PRIOR, both)
    assert np.all(found.mean >= measured.mean - 1e-12)
    assert found.mean[0] > measured.mean[0]
