"""``forecasts.PeakModel``: peaks as sums of parts, fitted on the trials of a study, and of earlier ones it begins with.

Of earlier studies not bytes are carried but what measurements made of the formulas. Only measured peaks are: that
something ran out of memory elsewhere could raise a forecast for good, and no trial would be run that shows otherwise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.domain import Configuration, Pool, Trial
from autotune.proposals.forecasts import Column, EarlierTrials, PeakForecast, Task
from autotune.proposals.memory.features import (
    MOMENTS,
    PARTS,
    PLACE,
    Matrix,
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
    NOISE,
    Coefficients,
    Observations,
    fit,
    log_score,
    noise_factor,
    nothing,
    observations,
)
from autotune.proposals.memory.settings import dimensions
from autotune.proposals.reading import Reader
from search_spaces.frameworks import facts_of

_Z = np.linspace(-8.0, 8.0, 6401)
_BELOW = np.array([statistics.NormalDist().cdf(z) for z in _Z])
"""Not scipy's: a plan needs nothing else of scipy, whose import takes longer than this."""
SPREADS: dict[Part, float] = {
    Part.FLOOR: 0.15,
    Part.ENGINE_FLOOR: 0.25,
    Part.WEIGHTS: 0.05,
    Part.CASTS: 0.3,
    Part.GRADIENTS: 0.1,
    Part.BUCKETS: 0.4,
    Part.OPTIMIZER: 0.05,
    Part.STEP: 0.8,
    Part.ACTIVATIONS: 0.25,
    Part.SCORES: 0.4,
    Part.LOGITS: 0.2,
    Part.GENERATION: 0.5,
    Part.ENGINE_WEIGHTS: 0.25,
    Part.CACHE: 0.1,
    Part.WORKSPACE: 0.6,
    Part.RESIDUE: 0.5,
    Part.SYNC: 0.1,
    Part.OFFLOADED: 0.3,
    Part.WORKERS: 0.5,
    Part.KEPT: 0.5,
    Part.SLACK: 0.6,
}
"""Relative standard deviations of coefficients before any trial."""
TRANSIENT = (Part.ACTIVATIONS, Part.SCORES, Part.LOGITS, Part.GENERATION, Part.KEPT)
TRANSIENT_SPREAD = 0.15
"""Of a factor all of ``TRANSIENT`` share: an allocator rounds them all in one way."""
UNPROVEN_SPREAD = {"cpu": 0.05, "cuda": 0.15}
"""Of a factor all parts share: no GPU has been measured yet."""
UNPROVEN_FRAMEWORK = 0.1
"""The same on top for frameworks other than TRL, none of which has been measured."""
OF_MODEL = (
    *(Part.WEIGHTS, Part.CASTS, Part.GRADIENTS, Part.BUCKETS, Part.OPTIMIZER, Part.STEP, Part.ACTIVATIONS),
    *(Part.SCORES, Part.LOGITS, Part.GENERATION, Part.ENGINE_WEIGHTS, Part.OFFLOADED, Part.KEPT, Part.SLACK),
    Part.SYNC,
)
"""Their formulas need the model's sizes."""

NOISE_FACTOR = 4.0
"""An earlier study's peak counts as so many times as noisy: sixteen of them as much as one of the study's own."""
NOISE_OF_DOUBLING = 1.0
"""More for each doubling between the studies."""
ENOUGH = 40
"""Measured peaks from which a study needs no other's."""
DOUBT = 1.0
"""Log score by which the formulas alone have to be ahead before earlier studies are left aside."""


def carried_over(task: Task, earlier: Sequence[EarlierTrials]) -> tuple[Observations, ...]:
    """Peaks of earlier studies' trials by pool of ``task``; none of a study that has other pools."""
    found = [nothing()] * len(pools(task))
    for one in earlier:
        if pools(one.task) != pools(task):
            continue
        by_pool = _seen(one.task, one.trials, features(one.task, _configurations(one.trials)), alone=False)
        found = [f.joined(_doubted(seen, one.distance)) for f, seen in zip(found, by_pool, strict=True)]
    return tuple(found)


def _configurations(trials: Sequence[Trial]) -> tuple[Configuration, ...]:
    return tuple(dict.fromkeys(t.configuration for t in trials))


def _seen(task: Task, trials: Sequence[Trial], matrix: Matrix, *, alone: bool) -> list[Observations]:
    """Observations of the trials by pool; ``matrix``: of their configurations."""
    configurations, has_device = _configurations(trials), bool(task.resources.gpus)
    return [
        observations(
            trials, pool, limit, dict(zip(configurations, own, strict=True)), alone=alone, has_device=has_device
        )
        for pool, limit, own in zip(pools(task), limits(task), matrix, strict=True)
    ]


def _doubted(seen: Observations, distance: float) -> Observations:
    measured = seen.part(~seen.censored)
    noise = measured.noise * (NOISE_FACTOR + NOISE_OF_DOUBLING * distance)
    return replace(measured, noise=noise, whole=np.zeros_like(measured.whole))


def begun(start: Coefficients, seen: Observations, earlier: Observations) -> Coefficients:
    """The fit to ``seen`` and, unless that speaks against them, to what earlier studies measured of the same pool.

    ``start`` is what the formulas alone say.
    """
    own = int(np.sum(seen.whole & ~seen.censored))
    if not len(earlier.level) or own >= ENOUGH:
        return fit(start, seen)
    if log_score(fit(start, earlier), seen) < log_score(start, seen) - DOUBT:
        return fit(start, seen)
    return fit(start, seen.joined(earlier))


WIDEST = 2.0
"""A forecast's logarithm has at most this standard deviation: beyond, nothing is said any more."""


def prior(task: Task) -> Coefficients:
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
    return Coefficients(np.ones(len(PARTS)), covariance, NOISE)


@dataclass(frozen=True)
class MemoryModel:
    """Knows some trials of one study; ``MemoryModel.before(task)`` knows none."""

    task: Task
    posteriors: tuple[Coefficients, ...]
    """By pool (``features.pools``)."""
    earlier: tuple[Observations, ...] = field(default=(), repr=False)
    """By pool, what earlier studies of the same pools measured (``carried_over``)."""
    seen: Reader[PeakTable] = field(default_factory=lambda: Reader(read, tabled), compare=False, repr=False)
    """What was read of configurations, by this model or those it was fitted from."""

    @classmethod
    def before(cls, task: Task, earlier: tuple[Observations, ...] = ()) -> MemoryModel:
        """The formulas alone, or with what earlier studies made of them."""
        start = prior(task)
        found = tuple(begun(start, nothing(), e) for e in earlier) or (start,) * len(pools(task))
        return cls(task, found, earlier=earlier)

    def fitted(self, task: Task, trials: Sequence[Trial]) -> MemoryModel:
        """See ``PeakModel``. The order of ``trials`` does not matter."""
        alone = task.resources.training_processes == 1 and not task.resources.gpus
        matrix = np.moveaxis(self.seen.rows(task, _configurations(trials)), 0, 1)
        start, seen = prior(task), _seen(task, trials, matrix, alone=alone)
        earlier = self.earlier or (nothing(),) * len(seen)
        posteriors = tuple(begun(start, own, other) for own, other in zip(seen, earlier, strict=True))
        return MemoryModel(task, posteriors, self.earlier, self.seen)

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
                fits = fits * np.interp(np.log(limit / peak) / spread, _Z, _BELOW)
        # An unknown limit is never the closest, unless none is known.
        known = [np.inf if limit is None else limit for limit in bounds]
        if all(limit is None for limit in bounds):
            known = [1.0] * len(bounds)
        closest = np.argmax([peak / limit for (peak, _), limit in zip(found, known, strict=True)], axis=0)
        columns = np.arange(len(configurations))
        peaks, spreads = np.array([p for p, _ in found]), np.array([s for _, s in found])
        return PeakForecast(peaks[closest, columns], spreads[closest, columns], fits)


def _pool(table: PoolTable, posterior: Coefficients) -> tuple[Column, Column]:
    """Median and log-spread of the peaks of one pool."""
    peaks = variance = np.zeros(len(table[0][1]))
    for rows, index in table:
        height = np.einsum("ij,j->i", rows, posterior.mean).take(index)
        square = np.einsum("ij,ij->i", rows @ posterior.covariance, rows).take(index)
        higher = height > peaks
        peaks, variance = np.where(higher, height, peaks), np.where(higher, square, variance)
    peaks = np.maximum(1.0, peaks)
    variance = variance / peaks**2
    variance = variance + (posterior.noise * noise_factor(peaks)) ** 2
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
    """Predicted memory by part in one pool: one GPU, or the process tree of one machine."""

    pool: Pool
    moment: Moment
    """When the peak is."""
    peak: float
    """Bytes; the sum of ``at_peak``."""
    at_peak: Mapping[str, float]
    """Bytes by group (``GROUPS``) at that moment."""


def breakdown(model: MemoryModel, configuration: Configuration) -> tuple[Breakdown, ...]:
    """The parts of ``configuration``'s peak by pool, the device first where there is one."""
    matrix = features(model.task, [configuration])
    found = []
    for pool, own, posterior in zip(pools(model.task), matrix, model.posteriors, strict=True):
        heights = np.einsum("ij,j->i", own[0], posterior.mean)  # as a forecast adds them up, to the last bit
        at = int(np.argmax(heights))
        parts = own[0, at] * posterior.mean
        by_group = {name: float(parts[[PLACE[p] for p in members]].sum()) for name, members in GROUPS.items()}
        found.append(Breakdown(pool, MOMENTS[at], float(heights[at]), by_group))
    return tuple(found)
