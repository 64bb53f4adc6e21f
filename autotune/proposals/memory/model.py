"""``forecasts.PeakModel``: peaks as sums of parts, fitted on the trials of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Pool, Trial
from autotune.proposals.forecasts import Column, PeakForecast, Task
from autotune.proposals.memory.carried import begun
from autotune.proposals.memory.dimensions import dimensions
from autotune.proposals.memory.features import Matrix, features, limits, pools
from autotune.proposals.memory.observations import Rows, nothing, observations
from autotune.proposals.memory.parts import (
    NOISE,
    NOISE_BYTES,
    NOISE_WEIGHT,
    OF_MODEL,
    PARTS,
    PLACE,
    SPREADS,
    TRANSIENT,
    TRANSIENT_SPREAD,
    UNPROVEN_FRAMEWORK,
    UNPROVEN_SPREAD,
)
from autotune.proposals.memory.regression import Observations, Posterior, Prior
from autotune.statistics.distributions import normal_below
from search_spaces.frameworks import facts_of

WIDEST = 2.0
"""A forecast's logarithm has at most this standard deviation: beyond, nothing is said any more."""


def prior(task: Task) -> Prior:
    """Coefficients of 1, doubted part by part, all together where the model's sizes had to be guessed."""
    spreads = np.array([SPREADS[part] for part in PARTS])
    covariance = np.diag(spreads**2)
    # A factor known to within e^doubt: upwards it reaches further than doubt itself.
    doubt = math.expm1(dimensions(task.resources.model).doubt)
    unproven = UNPROVEN_SPREAD["cuda" if task.resources.gpus else "cpu"]
    unproven += UNPROVEN_FRAMEWORK * (not facts_of(task.resources.framework).memory_measured)
    for members, spread in ((TRANSIENT, TRANSIENT_SPREAD), (OF_MODEL, doubt), (PARTS, unproven)):
        shared = np.zeros(len(PARTS))
        shared[[PLACE[part] for part in members]] = spread
        covariance += np.outer(shared, shared)
    return Prior(np.ones(len(PARTS)), covariance, NOISE, NOISE_WEIGHT)


@dataclass(frozen=True)
class MemoryModel:
    """Knows some trials of one study; ``MemoryModel.before(task)`` knows none."""

    task: Task
    posteriors: tuple[Posterior, ...]
    """By pool (``features.pools``)."""
    earlier: tuple[Observations, ...] = field(default=(), repr=False)
    """By pool, what earlier studies of the same pools measured (``carried_over``)."""

    @classmethod
    def before(cls, task: Task, earlier: tuple[Observations, ...] = ()) -> MemoryModel:
        """The formulas alone, or with what earlier studies made of them."""
        start = prior(task)
        one = Posterior(start.mean, start.covariance, start.noise)
        found = tuple(begun(start, nothing(), e) for e in earlier) or (one,) * len(pools(task))
        return cls(task, found, earlier=earlier)

    def fitted(self, task: Task, trials: Sequence[Trial]) -> MemoryModel:
        """See ``PeakModel``. The order of ``trials`` does not matter."""
        told = list(dict.fromkeys(t.configuration for t in trials))
        places = {configuration: place for place, configuration in enumerate(told)}
        start, has_device = prior(task), bool(task.resources.gpus)
        alone = task.resources.training_processes == 1 and not has_device
        posteriors = []
        earlier = self.earlier or (None,) * len(pools(task))
        for own, pool, limit, other in zip(features(task, told), pools(task), limits(task), earlier, strict=True):
            seen = observations(trials, pool, limit, Rows(places, own), alone=alone, has_device=has_device)
            posteriors.append(begun(start, seen, other))
        return MemoryModel(task, tuple(posteriors), self.earlier)

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        """See ``PeakModel``; who asks often about the same keeps ``features`` and asks ``forecast_of``."""
        return self.forecast_of(features(self.task, configurations))

    def peaks(self, configurations: Sequence[Configuration], pool: Pool) -> tuple[Column, Column]:
        """Medians of the peaks of one pool in bytes, whatever limit is closer, and the spreads of their logarithms.

        Raises ``ValueError`` for a pool the task does not have.
        """
        place = pools(self.task).index(pool)
        return _pool(features(self.task, configurations)[place], self.posteriors[place])

    def forecast_of(self, matrix: Matrix) -> PeakForecast:
        """Of configurations whose ``features`` of this task are ``matrix``."""
        found = [_pool(m, posterior) for m, posterior in zip(matrix, self.posteriors, strict=True)]
        bounds = limits(self.task)
        fits = np.ones(matrix.shape[1])
        for (peak, spread), limit in zip(found, bounds, strict=True):
            if limit is not None:
                fits = fits * normal_below(np.log(limit / peak) / spread)
        # An unknown limit is never the closest, unless none is known.
        known = [np.inf if limit is None else limit for limit in bounds]
        if all(limit is None for limit in bounds):
            known = [1.0] * len(bounds)
        closest = np.argmax([peak / limit for (peak, _), limit in zip(found, known, strict=True)], axis=0)
        columns = np.arange(matrix.shape[1])
        peaks, spreads = np.array([p for p, _ in found]), np.array([s for _, s in found])
        return PeakForecast(peaks[closest, columns], spreads[closest, columns], fits)


def _pool(matrix: NDArray[np.float64], posterior: Posterior) -> tuple[Column, Column]:
    """Median and log-spread of the peaks of one pool."""
    heights = matrix @ posterior.mean
    rows = matrix[np.arange(len(matrix)), np.argmax(heights, axis=1)]
    peaks = np.maximum(1.0, heights.max(axis=1, initial=0.0))
    variance = np.einsum("ij,ij->i", rows @ posterior.covariance, rows) / peaks**2
    variance = variance + (posterior.noise * np.hypot(1.0, NOISE_BYTES / (NOISE * peaks))) ** 2
    spread = np.sqrt(np.maximum(0.0, variance))
    return peaks, np.minimum(WIDEST, spread)
