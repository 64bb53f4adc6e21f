"""The closed forms against the same model written out as one Gaussian, and against leaving out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.proposals.times.regression import Data, Neighbours, Scales, fit, fit_best

KNOBS = 3


def example(rows: int, columns: int, seed: int) -> tuple[Data, Scales, np.ndarray]:
    """Rows of some knobs, the first of which share nothing; and the knobs."""
    draw = np.random.default_rng(seed)
    knobs = draw.integers(0, 3, (rows, KNOBS))
    near = np.arange(int(draw.integers(0, rows + 1)), rows)
    neighbours = Neighbours(near, apart(knobs[near], knobs[near]))
    noise = draw.uniform(0.001, 0.1, rows)
    data = Data(draw.normal(size=(rows, columns)), draw.normal(size=rows), noise, neighbours)
    return data, Scales(draw.uniform(0.01, 1.0, columns), 0.1, float(draw.choice([0.0, 0.5, 0.9]))), knobs


def apart(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    return np.asarray((here[:, None] != there[None]).sum(axis=2), dtype=np.float64)


def covariance(data: Data, scales: Scales) -> np.ndarray:
    """Of the values but for their noise."""
    own = np.diag(np.full(len(data.values), scales.misfit**2))
    own[np.ix_(data.near.rows, data.near.rows)] = scales.misfit**2 * scales.likeness**data.near.apart
    return np.asarray(data.columns @ np.diag(scales.variance) @ data.columns.T + own)


def some(data: Data, rows: np.ndarray) -> Data:
    """Only these of the rows."""
    kept = np.isin(data.near.rows, rows)
    near = Neighbours(np.searchsorted(rows, data.near.rows[kept]), data.near.apart[np.ix_(kept, kept)])
    return Data(data.columns[rows], data.values[rows], data.noise[rows], near)


shapes = st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 10_000))


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_it_is_the_gaussian_it_says_it_is(shape: tuple[int, int, int]) -> None:
    data, scales, knobs = example(*shape)
    posterior, latent = fit(data, scales), covariance(data, scales)
    whole = latent + np.diag(data.noise)
    inverse = np.linalg.inv(whole)
    mean, variance = posterior.at_measured()
    assert np.allclose(mean, latent @ inverse @ data.values)
    assert np.allclose(variance, np.diag(latent - latent @ inverse @ latent))
    draw = np.random.default_rng(1)
    other, away = draw.normal(size=(5, data.columns.shape[1])), 1 + apart(draw.integers(0, 3, (5, KNOBS)), knobs)
    cross = other @ np.diag(scales.variance) @ data.columns.T
    cross[:, data.near.rows] += scales.misfit**2 * scales.likeness ** away[:, data.near.rows]
    prior = np.einsum("ij,j,ij->i", other, scales.variance, other) + scales.misfit**2
    mean, variance = posterior.at(other, away[:, data.near.rows])
    assert np.allclose(mean, cross @ inverse @ data.values)
    assert np.allclose(variance, prior - np.einsum("ij,jk,ik->i", cross, inverse, cross))
    _, logs = np.linalg.slogdet(whole)
    expected = -0.5 * (data.values @ inverse @ data.values + logs + len(data.values) * math.log(2 * math.pi))
    assert posterior.evidence == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_leaving_one_out_is_a_fit_without_it(shape: tuple[int, int, int]) -> None:
    data, scales, knobs = example(*shape)
    mean, variance = fit(data, scales).left_out()
    for place in range(len(data.values)):
        others = np.flatnonzero(np.arange(len(data.values)) != place)
        fewer = some(data, others)
        away = apart(knobs[[place]], knobs[others][fewer.near.rows]) if place in data.near.rows else None
        expected, spread = fit(fewer, scales).at(data.columns[[place]], away)
        assert mean[place] == pytest.approx(expected[0], abs=1e-8)
        assert variance[place] == pytest.approx(spread[0] + data.noise[place], rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_a_further_row_never_widens_anything(shape: tuple[int, int, int]) -> None:
    data, scales, knobs = example(*shape)
    fewer = some(data, np.arange(len(data.values) - 1))
    before, after = fit(fewer, scales), fit(data, scales)
    far = 1 + apart(knobs, knobs)
    wide, narrow = far[:, fewer.near.rows], far[:, data.near.rows]
    assert np.all(after.at(data.columns, narrow)[1] <= before.at(data.columns, wide)[1] + 1e-12)
    assert np.all(after.at_measured()[1][:-1] <= before.at_measured()[1] + 1e-12)
    assert np.all(after.at_measured()[1] <= data.noise), "never wider than what was measured"


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_other_columns_of_the_same_rows_are_fitted_as_if_they_were_the_first(shape: tuple[int, int, int]) -> None:
    data, scales, _ = example(*shape)
    fit(data, scales)
    other = np.random.default_rng(2).normal(size=(len(data.values), data.columns.shape[1]))
    after, fresh = fit(data.with_columns(other), scales), fit(Data(other, data.values, data.noise, data.near), scales)
    assert np.array_equal(after.mean, fresh.mean)
    assert after.evidence == fresh.evidence
    assert all(np.array_equal(a, b) for a, b in zip(after.left_out(), fresh.left_out(), strict=True))


def test_what_no_column_says_is_shared_with_neighbours() -> None:
    """One row is slower than its columns say: so is its neighbour, in part; far away nothing is known."""
    codes = np.array([[0, 0, 0, 0], [1, 1, 1, 1]])
    data = Data(np.ones((2, 1)), np.array([0.0, 0.4]), np.full(2, 1e-6), Neighbours(np.arange(2), apart(codes, codes)))
    posterior = fit(data, Scales(np.array([1e-6]), 0.2, 0.5))
    asked = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [2, 2, 2, 2]])
    mean, variance = posterior.at(np.ones((3, 1)), apart(asked, codes))
    assert mean[0] == pytest.approx(0.2, abs=0.03)
    assert mean[1] == pytest.approx(0.1, abs=0.03)
    assert abs(mean[2]) < 0.03
    assert variance[0] < variance[1] < variance[2] == pytest.approx(0.04, rel=0.02)


def test_the_most_probable_scales_are_found() -> None:
    draw = np.random.default_rng(3)
    columns = draw.normal(size=(60, 3))
    values = columns @ np.array([0.5, -0.4, 0.3]) + draw.normal(0.0, 0.3, 60)
    data = Data(columns, values, np.full(60, 1e-6))
    choices = [(Scales(np.full(3, v), m), 0.0) for v in (1e-4, 0.2) for m in (0.03, 0.3, 3.0)]
    best = fit_best(data, choices)
    assert (best.scales.variance[0], best.scales.misfit) == (0.2, 0.3)
    assert best.evidence == max(fit(data, scales).evidence for scales, _ in choices)
    assert np.allclose(best.mean, [0.5, -0.4, 0.3], atol=0.15)


def test_nothing_measured_is_the_prior() -> None:
    nothing = Data(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    mean, variance = fit(nothing, Scales(np.array([1.0, 4.0]), 0.5)).at(np.array([[1.0, 2.0]]))
    assert mean[0] == 0.0
    assert variance[0] == pytest.approx(1.0 + 16.0 + 0.25)
