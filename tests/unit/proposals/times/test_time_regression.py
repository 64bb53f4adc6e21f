"""The closed forms against the same model written out as one Gaussian, and against leaving out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.proposals.times.regression import Data, Scales, fit, fit_best


def example(rows: int, columns: int, seed: int) -> tuple[Data, Scales]:
    draw = np.random.default_rng(seed)
    data = Data(draw.normal(size=(rows, columns)), draw.normal(size=rows), draw.uniform(0.001, 0.1, rows))
    return data, Scales(draw.uniform(0.01, 1.0, columns), 0.1)


def covariance(data: Data, scales: Scales) -> np.ndarray:
    own = np.diag(data.noise + scales.misfit**2)
    return np.asarray(data.columns @ np.diag(scales.variance) @ data.columns.T + own)


shapes = st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 10_000))


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_it_is_the_gaussian_it_says_it_is(shape: tuple[int, int, int]) -> None:
    data, scales = example(*shape)
    posterior, whole = fit(data, scales), covariance(data, scales)
    inverse = np.linalg.inv(whole)
    latent = whole - np.diag(data.noise)
    mean, variance = posterior.at_measured()
    assert np.allclose(mean, latent @ inverse @ data.values)
    assert np.allclose(variance, np.diag(latent - latent @ inverse @ latent))
    other = np.random.default_rng(1).normal(size=(5, data.columns.shape[1]))
    cross = other @ np.diag(scales.variance) @ data.columns.T
    prior = np.einsum("ij,j,ij->i", other, scales.variance, other) + scales.misfit**2
    mean, variance = posterior.at(other)
    assert np.allclose(mean, cross @ inverse @ data.values)
    assert np.allclose(variance, prior - np.einsum("ij,jk,ik->i", cross, inverse, cross))
    _, logs = np.linalg.slogdet(whole)
    expected = -0.5 * (data.values @ inverse @ data.values + logs + len(data.values) * math.log(2 * math.pi))
    assert posterior.evidence == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(shapes)
def test_leaving_one_out_is_a_fit_without_it(shape: tuple[int, int, int]) -> None:
    data, scales = example(*shape)
    mean, variance = fit(data, scales).left_out()
    for place in range(len(data.values)):
        others = np.arange(len(data.values)) != place
        without = fit(Data(data.columns[others], data.values[others], data.noise[others]), scales)
        expected, spread = without.at(data.columns[place : place + 1])
        assert mean[place] == pytest.approx(expected[0], abs=1e-8)
        assert variance[place] == pytest.approx(spread[0] + data.noise[place], rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_a_further_row_never_widens_anything(shape: tuple[int, int, int]) -> None:
    data, scales = example(*shape)
    fewer = Data(data.columns[:-1], data.values[:-1], data.noise[:-1])
    before, after = fit(fewer, scales), fit(data, scales)
    assert np.all(after.at(data.columns)[1] <= before.at(data.columns)[1] + 1e-12)
    assert np.all(after.at_measured()[1][:-1] <= before.at_measured()[1] + 1e-12)
    assert np.all(after.at_measured()[1] <= data.noise), "never wider than what was measured"


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
