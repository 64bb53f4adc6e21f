"""Bayesian linear regression on measured rows, with a misfit of each row: closed forms, pure.

    y_i = x_i b + d_i + e_i,    b ~ N(0, diag(variance)),   d_i ~ N(0, misfit²),   e_i ~ N(0, noise_i)

y_i is the mean of what was measured at row i and noise_i the variance of that mean. d_i is what the columns cannot say
about row i and stays the same whenever row i is measured, so at a measured row the forecast goes to what was measured,
and never is wider than its noise. (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: chapter 2.1
for the regression, equations 5.10 to 5.12 for leaving one out, in the space of the columns.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Measured rows."""

    columns: Matrix
    """rows x columns."""
    values: Column
    noise: Column
    """Variance of each value."""


@dataclass(frozen=True)
class Scales:
    """What the coefficients and misfits are like."""

    variance: Column
    """Of each column's coefficient, before anything was measured."""
    misfit: float
    """Standard deviation of a row's own part."""


@dataclass(frozen=True)
class Posterior:
    """What is known of the coefficients."""

    data: Data
    scales: Scales
    mean: Column
    covariance: Matrix
    evidence: float
    """Logarithm of the probability of the values."""

    def at(self, columns: Matrix) -> tuple[Column, Column]:
        """Mean and variance at rows nobody measured, their misfit included."""
        return columns @ self.mean, np.maximum(self._spread(columns), 0.0) + self.scales.misfit**2

    def at_measured(self) -> tuple[Column, Column]:
        """Mean and variance at the measured rows."""
        fitted, spread = self.data.columns @ self.mean, self._spread(self.data.columns)
        weight = self.scales.misfit**2 / (self.scales.misfit**2 + self.data.noise)
        value = fitted + weight * (self.data.values - fitted)
        return value, weight * self.data.noise + (1.0 - weight) ** 2 * np.maximum(spread, 0.0)

    def left_out(self) -> tuple[Column, Column]:
        """Mean and variance of each measured value, foretold from all others; its own noise included."""
        total = self.data.noise + self.scales.misfit**2
        spread = self._spread(self.data.columns)
        precision = np.maximum(1.0 / total - spread / total**2, 1e-12 / total)
        residual = (self.data.values - self.data.columns @ self.mean) / total / precision
        return self.data.values - residual, 1.0 / precision

    def _spread(self, columns: Matrix) -> Column:
        """Variance of each row by what is not known of the coefficients."""
        found: Column = np.sum((columns @ self.covariance) * columns, axis=1)
        return found


def fit(data: Data, scales: Scales) -> Posterior:
    """The posterior; with no rows it is the prior."""
    return fit_best(data, [(scales, 0.0)])


def fit_best(data: Data, choices: Sequence[tuple[Scales, float]]) -> Posterior:
    """The posterior of the most probable scales; ``choices`` are scales with the logarithm of their prior probability.

    By the Cholesky factors of I + S G S, which are well conditioned whatever the scales S (standard deviations), of all
    choices at once; those that differ in the coefficients' variance only share G.
    """
    shared = {misfit: _moments(data, misfit) for misfit in dict.fromkeys(scales.misfit for scales, _ in choices)}
    each = [shared[scales.misfit] for scales, _ in choices]
    gram, moment = np.stack([one.gram for one in each]), np.stack([one.moment for one in each])
    root, identity = np.sqrt(np.stack([scales.variance for scales, _ in choices])), np.eye(data.columns.shape[1])
    factor = np.linalg.cholesky(identity + root[:, :, None] * gram * root[:, None, :])
    inverse = np.linalg.solve(factor, root[:, :, None] * identity)
    covariance = np.swapaxes(inverse, 1, 2) @ inverse
    mean = (covariance @ moment[:, :, None])[:, :, 0]
    squares = np.array([one.squares for one in each]) - np.sum(moment * mean, axis=1)
    diagonal = np.diagonal(factor, axis1=1, axis2=2)
    logs = 2.0 * np.sum(np.log(diagonal), axis=1) + np.array([one.logs for one in each])
    evidence = -0.5 * (squares + logs + len(data.values) * np.log(2.0 * np.pi))
    best = int(np.argmax(evidence + np.array([weight for _, weight in choices])))
    return Posterior(data, choices[best][0], mean[best], covariance[best], float(evidence[best]))


@dataclass(frozen=True)
class _Moments:
    """Of the measured rows, weighed by their noise and one misfit."""

    gram: Matrix
    moment: Column
    squares: float
    logs: float


def _moments(data: Data, misfit: float) -> _Moments:
    total = data.noise + misfit**2
    weighted = data.columns / total[:, None]
    squares, logs = float(np.sum(data.values**2 / total)), float(np.sum(np.log(total)))
    return _Moments(data.columns.T @ weighted, weighted.T @ data.values, squares, logs)
