"""Non-negative Bayesian regression of peaks on parts, with lower bounds among the observations. Pure.

Of a trial the peak is the largest over moments of a sum of parts times coefficients; which moment it is follows from
the coefficients and is found by turns. Residuals are relative to the observation, so the noise is one of logarithms
for as long as it is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column
from autotune.statistics.distributions import normal_below, normal_hazard

Square = NDArray[np.float64]
ROUNDS = 6
"""Turns of finding the moments and the coefficients."""
NEWTON = 12
"""Steps towards the coefficients that bounds ask for; the likelihood is log-concave."""
TOLERANCE = 1e-4
"""A change of the coefficients that is none; their spreads are a hundred times that."""


@dataclass(frozen=True)
class Prior:
    """What is believed of the coefficients before any trial."""

    mean: Column
    covariance: Square
    noise: float
    """Relative standard deviation of a peak."""
    noise_weight: float
    """Observations ``noise`` counts for."""


@dataclass(frozen=True)
class Observations:
    """Peaks, measured or at least so high; in an order that does not depend on how trials were given."""

    matrix: NDArray[np.float64]
    """Bytes by observation, moment and part."""
    moments: NDArray[np.bool_]
    """By observation: moments the figure may be of."""
    level: Column
    """Bytes; positive."""
    censored: NDArray[np.bool_]
    """The peak is at least ``level``."""
    noise: Column
    """How many times as noisy as a great peak of a whole trial."""
    whole: NDArray[np.bool_]
    """Of a whole trial: its residual tells of the noise."""

    def part(self, chosen: NDArray[np.bool_]) -> Observations:
        """Some of them."""
        return Observations(
            matrix=self.matrix[chosen],
            moments=self.moments[chosen],
            level=self.level[chosen],
            censored=self.censored[chosen],
            noise=self.noise[chosen],
            whole=self.whole[chosen],
        )

    def joined(self, others: Observations) -> Observations:
        """These, then others."""
        both = {name: np.concatenate([mine, getattr(others, name)]) for name, mine in vars(self).items()}
        return Observations(**both)

    def rows(self, coefficients: Column) -> NDArray[np.float64]:
        """Parts at the moment that is the peak by ``coefficients``, relative to the level."""
        heights = np.where(self.moments, self.matrix @ coefficients, -np.inf)
        at = np.argmax(heights, axis=1)
        rows: NDArray[np.float64] = self.matrix[np.arange(len(at)), at] / self.level[:, None]
        return rows


@dataclass(frozen=True)
class Posterior:
    """What is believed of the coefficients after some trials."""

    mean: Column
    covariance: Square
    noise: float


def fit(prior: Prior, seen: Observations) -> Posterior:
    """The most probable non-negative coefficients and how sure they are.

    Measured peaks are fitted first. Bounds then may only raise coefficients: what ran out of memory says of no
    configuration that it needs less.
    """
    precision: Square = np.asarray(np.linalg.inv(prior.covariance), dtype=np.float64)
    pull = precision @ prior.mean
    mean, information = prior.mean, precision
    measured = seen.part(~seen.censored)
    if len(measured.level):
        # With the noise known beforehand: were it learnt here, a machine unlike the formulas would seem noisy instead.
        weights = 1.0 / (prior.noise * measured.noise) ** 2
        for _ in range(ROUNDS):
            rows = measured.rows(mean)
            information = precision + (rows.T * weights) @ rows
            new = nonnegative(information, pull + rows.T @ weights)
            done = np.allclose(new, mean, rtol=TOLERANCE, atol=TOLERANCE)
            mean = new
            if done:
                break
    bounds = seen.part(seen.censored)
    if len(bounds.level):
        mean, information = _raised(mean, information, bounds, prior.noise)
    covariance: Square = np.asarray(np.linalg.inv(information), dtype=np.float64)
    return Posterior(mean, covariance, _noise(prior, seen, mean, information))


def log_score(posterior: Posterior, seen: Observations) -> float:
    """Logarithm of the probability of whole trials' peaks and bounds, each by itself, by what ``posterior`` says."""
    told = seen.part(seen.whole)
    if not len(told.level):
        return 0.0
    rows = told.rows(posterior.mean)
    heights = np.maximum(rows @ posterior.mean, 1e-9)
    own = np.sum((rows @ posterior.covariance) * rows, axis=1) / heights**2
    spread = np.sqrt(np.maximum(own, 0.0) + (posterior.noise * told.noise) ** 2)
    away = np.log(heights) / spread
    measured = -0.5 * away**2 - np.log(spread) - 0.5 * math.log(2.0 * math.pi)
    return float(np.sum(np.where(told.censored, np.log(np.maximum(normal_below(away), 1e-12)), measured)))


def _noise(prior: Prior, seen: Observations, mean: Column, information: Square) -> float:
    """The prior's variance and that of the residuals, each by its degrees of freedom (moderated, as in limma).

    A bound tells of noise by what the coefficients stay below it.
    """
    rows = seen.rows(mean)
    short = 1.0 - rows @ mean
    telling = seen.whole & (~seen.censored | (short > 0.0))
    if not telling.any():
        return prior.noise
    own = rows[telling] / seen.noise[telling][:, None]
    residuals = short[telling] / seen.noise[telling]
    used = float(np.einsum("ij,ji->", own, np.linalg.solve(information, own.T))) / prior.noise**2
    freedom = max(0.0, len(own) - used)
    total = prior.noise_weight * prior.noise**2 + float(residuals @ residuals)
    return math.sqrt(total / (prior.noise_weight + freedom))


def _raised(floor: Column, information: Square, bounds: Observations, noise: float) -> tuple[Column, Square]:
    """Coefficients of at least ``floor`` that make the bounds likely, and the information with theirs."""
    mean, whole = floor, information
    for _ in range(NEWTON):
        rows = bounds.rows(mean)
        spread = noise * bounds.noise
        above = (rows @ mean - 1.0) / spread
        ratio = normal_hazard(above)
        weights = ratio * (ratio + above) / spread**2
        # Newton's step for log Phi is least squares with these weights and targets.
        gradient = rows.T @ (ratio / spread)
        curvature = (rows.T * weights) @ rows
        whole = information + curvature
        pull = whole @ (mean - floor) + gradient - information @ (mean - floor)
        new = floor + nonnegative(whole, pull)
        done = np.allclose(new, mean, rtol=TOLERANCE, atol=TOLERANCE)
        mean = new
        if done:
            break
    return mean, whole


def nonnegative(information: Square, pull: Column) -> Column:
    """The minimum of x'Hx/2 - g'x over x >= 0, by scipy's non-negative least squares on H's Cholesky factor.

    Args:
        information: H, positive definite.
        pull: g.
    """
    from scipy import linalg, optimize

    lower = linalg.cholesky(information, lower=True)
    found: Column = optimize.nnls(lower.T, linalg.solve_triangular(lower, pull, lower=True))[0]
    return found
