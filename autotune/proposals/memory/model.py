"""``forecasts.PeakModel``: peaks as sums of parts, fitted on the trials of a study, and of earlier ones it begins with.

Of earlier studies not bytes are carried but what measurements made of the formulas. Only measured peaks are: that
something ran out of memory elsewhere could raise a forecast for good, and no trial would be run that shows otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.domain import Configuration, Pool, Trial
from autotune.proposals.forecasts import Column, Earlier, PeakForecast, Task
from autotune.proposals.memory.features import (
    MOMENTS,
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
    Moment,
    Part,
    PeakTable,
    PoolTable,
    features,
    limits,
    pools,
    read,
    tabled,
)
from autotune.proposals.memory.regression import (
    Observations,
    Posterior,
    Prior,
    Rows,
    fit,
    log_score,
    nothing,
    observations,
)
from autotune.proposals.memory.settings import dimensions
from autotune.proposals.reading import Reader
from autotune.statistics.distributions import normal_below
from search_spaces.frameworks import facts_of

NOISE_FACTOR = 4.0
"""An earlier study's peak counts as so many times as noisy: sixteen of them as much as one of the study's own."""
NOISE_OF_DOUBLING = 1.0
"""More for each doubling between the studies."""
ENOUGH = 40
"""Measured peaks from which a study needs no other's."""
DOUBT = 1.0
"""Log score by which the formulas alone have to be ahead before earlier studies are left aside."""


def carried_over(task: Task, earlier: Sequence[Earlier]) -> tuple[Observations, ...]:
    """By pool of ``task`` the peaks of trials of earlier studies; none of a study that has other pools."""
    found = [nothing()] * len(pools(task))
    for one in earlier:
        if pools(one.task) != pools(task):
            continue
        told = list(dict.fromkeys(t.configuration for t in one.trials))
        places = {configuration: place for place, configuration in enumerate(told)}
        has_device = bool(one.task.resources.gpus)
        for i, (pool, limit, own) in enumerate(
            zip(pools(task), limits(one.task), features(one.task, told), strict=True)
        ):
            seen = observations(one.trials, pool, limit, Rows(places, own), alone=False, has_device=has_device)
            found[i] = found[i].joined(_doubted(seen.part(~seen.censored), one.distance))
    return tuple(found)


def _doubted(seen: Observations, distance: float) -> Observations:
    noise = seen.noise * (NOISE_FACTOR + NOISE_OF_DOUBLING * distance)
    return replace(seen, noise=noise, whole=np.zeros_like(seen.whole))


def begun(start: Prior, seen: Observations, earlier: Observations | None) -> Posterior:
    """The fit to ``seen`` and, unless that speaks against them, to what earlier studies measured.

    Args:
        start: what the formulas alone say.
        seen: the study's own.
        earlier: of the same pool; ``None`` is none.
    """
    own = int(np.sum(seen.whole & ~seen.censored))
    if earlier is None or not len(earlier.level) or own >= ENOUGH:
        return fit(start, seen)
    formulas = Posterior(start.mean, start.covariance, start.noise)
    if log_score(fit(start, earlier), seen) < log_score(formulas, seen) - DOUBT:
        return fit(start, seen)
    return fit(start, seen.joined(earlier))


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
    seen: Reader[PeakTable] = field(default_factory=lambda: Reader(read, tabled), compare=False, repr=False)
    """What was read of configurations, by this model or those it was fitted from."""

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
        matrix = np.moveaxis(self.seen.rows(task, told), 0, 1)
        for own, pool, limit, other in zip(matrix, pools(task), limits(task), earlier, strict=True):
            seen = observations(trials, pool, limit, Rows(places, own), alone=alone, has_device=has_device)
            posteriors.append(begun(start, seen, other))
        return MemoryModel(task, tuple(posteriors), self.earlier, self.seen)

    def peaks(self, configurations: Sequence[Configuration], pool: Pool) -> tuple[Column, Column]:
        """Medians of the peaks of one pool in bytes, whatever limit is closer, and the spreads of their logarithms.

        Raises ``ValueError`` for a pool the task does not have.
        """
        place = pools(self.task).index(pool)
        return _pool(self.seen.table(self.task, configurations)[place], self.posteriors[place])

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        """See ``PeakModel``."""
        table = self.seen.table(self.task, configurations)
        found = [_pool(own, posterior) for own, posterior in zip(table, self.posteriors, strict=True)]
        bounds = limits(self.task)
        fits = np.ones(len(configurations))
        for (peak, spread), limit in zip(found, bounds, strict=True):
            if limit is not None:
                fits = fits * normal_below(np.log(limit / peak) / spread)
        # An unknown limit is never the closest, unless none is known.
        known = [np.inf if limit is None else limit for limit in bounds]
        if all(limit is None for limit in bounds):
            known = [1.0] * len(bounds)
        closest = np.argmax([peak / limit for (peak, _), limit in zip(found, known, strict=True)], axis=0)
        columns = np.arange(len(configurations))
        peaks, spreads = np.array([p for p, _ in found]), np.array([s for _, s in found])
        return PeakForecast(peaks[closest, columns], spreads[closest, columns], fits)


def _pool(table: PoolTable, posterior: Posterior) -> tuple[Column, Column]:
    """Median and log-spread of the peaks of one pool."""
    peaks = variance = np.zeros(len(table[0][1]))
    for rows, index in table:
        height = np.einsum("ij,j->i", rows, posterior.mean).take(index)
        square = np.einsum("ij,ij->i", rows @ posterior.covariance, rows).take(index)
        higher = height > peaks
        peaks, variance = np.where(higher, height, peaks), np.where(higher, square, variance)
    peaks = np.maximum(1.0, peaks)
    variance = variance / peaks**2
    variance = variance + (posterior.noise * np.hypot(1.0, NOISE_BYTES / (NOISE * peaks))) ** 2
    spread = np.sqrt(np.maximum(0.0, variance))
    return peaks, np.minimum(WIDEST, spread)


GROUPS: Mapping[str, tuple[Part, ...]] = {
    "weights": (Part.WEIGHTS, Part.CASTS),
    "gradients": (Part.GRADIENTS, Part.BUCKETS),
    "optimizer": (Part.OPTIMIZER, Part.STEP),
    "activations": (Part.ACTIVATIONS, Part.SCORES),
    "logits": (Part.LOGITS,),
    "rollout": (Part.GENERATION, Part.ENGINE_WEIGHTS, Part.CACHE, Part.WORKSPACE, Part.RESIDUE),
    "weight sync": (Part.SYNC,),
    "offloaded": (Part.OFFLOADED,),
    "processes": (Part.FLOOR, Part.ENGINE_FLOOR, Part.WORKERS),
    "allocator": (Part.KEPT, Part.SLACK),
}
"""Parts as people ask for them; every part is in one group."""


@dataclass(frozen=True)
class Breakdown:
    """Of one pool: one GPU, or one machine's process tree."""

    pool: Pool
    moment: Moment
    """When the peak is."""
    peak: float
    """Bytes; the sum of ``at_peak``."""
    at_peak: Mapping[str, float]
    """Bytes by group (``GROUPS``) at that moment."""
    highest: Mapping[str, float]
    """Bytes by group, each at its own highest moment: generation and update do not add up."""
    by_moment: Mapping[str, float]
    """Bytes of the whole by moment."""


def breakdown(task: Task, configuration: Configuration, model: MemoryModel | None = None) -> tuple[Breakdown, ...]:
    """The parts of ``configuration``'s peak by pool, the device first where there is one.

    Args:
        task: with the facts of the model; what is not known of it is guessed.
        configuration: any.
        model: whose coefficients count; without one the formulas alone.
    """
    fitted = model if model is not None else MemoryModel.before(task)
    matrix = features(task, [configuration])
    found = []
    for pool, own, posterior in zip(pools(task), matrix, fitted.posteriors, strict=True):
        parts = own[0] * posterior.mean
        heights = np.einsum("ij,j->i", own[0], posterior.mean)  # as a forecast adds them up, to the last bit
        at = int(np.argmax(heights))
        places = {name: [PARTS.index(part) for part in members] for name, members in GROUPS.items()}
        found.append(
            Breakdown(
                pool=pool,
                moment=MOMENTS[at],
                peak=float(heights[at]),
                at_peak={name: float(parts[at, columns].sum()) for name, columns in places.items()},
                highest={name: float(parts[:, columns].sum(axis=1).max()) for name, columns in places.items()},
                by_moment={moment.value: float(height) for moment, height in zip(MOMENTS, heights, strict=True)},
            )
        )
    return tuple(found)
