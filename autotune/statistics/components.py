"""Variance components of measured speeds, and the interval of a mean that they imply. Pure.

The logarithm of one process's speed is a sum: an effect of its configuration, the drift of the machine at that moment,
the deviation of the process, and the uncertainty of its mean over few cycles. All are normal; the standard deviations
of drift and process are unknown. Their joint posterior is computed on a grid: a prior fitted to recorded studies
(``noise.PROCESS``), times the restricted likelihood of the study's own repeats (Patterson and Thompson, Biometrika 58,
1971). The interval of a mean is a quantile of the mixture of normals over that posterior, so it is as wide as the
components are uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.statistics.distributions import normal_below, normal_density
from autotune.statistics.noise import NoisePrior, Run

Array = NDArray[np.float64]

LEAST_PROCESS_SPREAD = 0.01
"""Least standard deviation of processes: processes that agree better do so by chance, so no interval is narrower."""
DRIFT_SPREAD = 0.03
"""Scale of the half-Cauchy prior of the drift (Gelman, Bayesian Analysis 1(3), 2006): the rounds of repeats in
benchmarks/tables/search-cpu-*.jsonl.gz differ by a standard deviation of 0.02 to 0.045."""
MOST_RUNS = 48
"""Most runs of the likelihood, the latest ones: more add little and cost their third power."""

_PROCESS = np.geomspace(LEAST_PROCESS_SPREAD, 1.0, 48)
_DRIFT = np.geomspace(0.003, 1.0, 16)
_CYCLE = np.linspace(-4.0, 6.0, 31)
"""Grid of log(variance / scale) for the variance of cycles."""


@dataclass(frozen=True)
class Components:
    """Joint posterior of the standard deviations of processes and of the machine's drift, on a grid."""

    spreads: Array
    """Standard deviations of processes, shape (n,)."""
    drifts: Array
    """Standard deviations of the drift, shape (m,)."""
    weights: Array
    """Posterior weights, shape (n, m); they sum to 1."""

    @cached_property
    def process(self) -> NoisePrior:
        """Process variance as a scaled inverse chi-squared distribution, by moment matching of its inverse."""
        precision, weights = self.spreads**-2, self.weights.sum(axis=1)
        mean = float(weights @ precision)
        spread = float(weights @ (precision - mean) ** 2)
        return NoisePrior(1.0 / mean, 2.0 * mean**2 / spread if spread > 0.0 else math.inf)

    def half_width(self, share: float, cycles: NoisePrior, level: float = 0.95, *, moments: float = 0.0) -> float:
        """Returns half the width of the two-sided interval of a mean of logarithms.

        Args:
            share: number of process variances in the mean's variance: 2 for the ratio of two processes.
            cycles: variance of the mean that its cycles contribute, with its degrees of freedom.
            level: probability that the interval holds the truth.
            moments: number of drift variances in it: 2 for processes at two different times, 0 for simultaneous ones.
        """
        steps, chances = _inverse_chi_squared(cycles)
        runs = share * self.spreads[:, None] ** 2 + moments * self.drifts[None, :] ** 2
        weights = self.weights
        if not moments:
            runs, weights = runs[:, :1], weights.sum(axis=1, keepdims=True)
        masses, variances = _binned((weights[..., None] * chances).ravel(), (runs[..., None] + steps).ravel())
        deviations = np.sqrt(variances)

        width = 0.0
        for _ in range(30):  # Newton's method: convex, so it never steps too far
            missed = 2.0 * float(masses @ normal_below(-width / deviations)) - (1.0 - level)
            width += missed / (2.0 * float(masses @ (normal_density(width / deviations) / deviations)))
        return width


def _binned(masses: Array, values: Array) -> tuple[Array, Array]:
    """Merges neighbouring values into at most 300 bins. Returns the bins' masses and mean values."""
    logs = np.log(values)
    bins = ((logs - logs.min()) / max(float(np.ptp(logs)), 1e-9) * 299).astype(np.intp)
    sums: Array = np.bincount(bins, masses).astype(np.float64)
    some = sums > 1e-12
    return sums[some], np.bincount(bins, masses * values)[some] / sums[some]


def estimated(runs: Sequence[Run], prior: NoisePrior) -> Components:
    """Estimates the posterior of the components.

    Args:
        runs: runs of any configurations; a configuration with a single run contributes nothing.
        prior: prior of the process variance, a scaled inverse chi-squared distribution.
    """
    logs = _log_prior(prior)[:, None] + _LOG_DRIFT[None, :]
    likelihood = _likelihood(runs[-MOST_RUNS:])
    logs = logs if likelihood is None else logs + likelihood
    weights = np.exp(logs - logs.max())
    return Components(_PROCESS, _DRIFT, weights / weights.sum())


def _log_prior(prior: NoisePrior) -> Array:
    """Returns the log density of the process standard deviation on its grid, shape (n,)."""
    variances = _PROCESS**2
    found: Array = -0.5 * prior.degrees * (np.log(variances / prior.variance) + prior.variance / variances)
    return found


_LOG_DRIFT = np.log(_DRIFT / (1.0 + (_DRIFT / DRIFT_SPREAD) ** 2))


def _likelihood(runs: Sequence[Run]) -> Array | None:
    """Returns the log restricted likelihood, shape (n, m); ``None`` if no configuration ran twice."""
    groups: dict[Hashable, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(run.configuration, []).append(number)
    if len(groups) == len(runs):
        return None
    k = np.concatenate([_contrasts(members, len(runs)) for members in groups.values()])
    moments = {moment: at for at, moment in enumerate(dict.fromkeys(run.moment for run in runs))}
    shared = k @ np.eye(len(moments))[[moments[run.moment] for run in runs]]
    within = (k * np.array([run.variance for run in runs])) @ k.T
    y = k @ np.array([run.log for run in runs])
    process = _PROCESS[:, None, None, None] ** 2 * np.eye(len(k))
    drift = _DRIFT[None, :, None, None] ** 2 * (shared @ shared.T)
    lower = np.linalg.cholesky(process + drift + within)
    scaled = np.linalg.solve(lower, np.broadcast_to(y, lower.shape[:-1])[..., None])[..., 0]
    halves = np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(axis=-1)
    found: Array = -halves - 0.5 * (scaled**2).sum(axis=-1)
    return found


def _contrasts(members: Sequence[int], count: int) -> Array:
    """Returns contrasts of the members, shape (members - 1, count): orthonormal rows that sum to zero."""
    rows = np.zeros((len(members) - 1, count))
    rows[:, members] = np.linalg.svd(np.ones((1, len(members))))[2][1:]
    return rows


def _inverse_chi_squared(prior: NoisePrior) -> tuple[Array, Array]:
    """Returns a grid of values of a variance, and their weights."""
    if prior.variance <= 0.0 or not math.isfinite(prior.degrees):
        return np.array([max(0.0, prior.variance)]), np.ones(1)
    logs = -0.5 * prior.degrees * (_CYCLE + np.exp(-_CYCLE))
    weights = np.exp(logs - logs.max())
    return prior.variance * np.exp(_CYCLE), weights / weights.sum()
