"""``forecasts.PeakModel``: a peak is the largest moment of a sum of parts, each a formula times a learnt factor.

Logarithms of factors are normal. Measured peaks are fitted first, by Gauss and Newton over the moment that is the
peak; then bounds, of trials that ran out of memory, which only raise factors. Of earlier studies only measured peaks
are carried: a bound could raise a forecast for good.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, FailureReason, Phase, Pool, Trial, TrialState
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
from autotune.proposals.memory.settings import dimensions
from autotune.proposals.reading import Reader
from autotune.statistics import retries
from autotune.statistics.distributions import normal_below, normal_hazard
from search_spaces.frameworks import facts_of

Square = NDArray[np.float64]
SPREADS: dict[Part, float] = {
    **dict.fromkeys((Part.WEIGHTS, Part.OPTIMIZER), 0.05),
    **dict.fromkeys((Part.GRADIENTS, Part.CACHE, Part.SYNC), 0.1),
    **dict.fromkeys((Part.FLOOR,), 0.15),
    **dict.fromkeys((Part.LOGITS,), 0.2),
    **dict.fromkeys((Part.ENGINE_FLOOR, Part.ACTIVATIONS, Part.ENGINE_WEIGHTS), 0.25),
    **dict.fromkeys((Part.CASTS, Part.OFFLOADED), 0.3),
    **dict.fromkeys((Part.BUCKETS, Part.SCORES), 0.4),
    **dict.fromkeys((Part.GENERATION, Part.RESIDUE, Part.WORKERS, Part.KEPT), 0.5),
    **dict.fromkeys((Part.WORKSPACE, Part.SLACK), 0.6),
    Part.STEP: 0.8,
}
"""Standard deviations of the factors' logarithms before any trial."""
TRANSIENT = (Part.ACTIVATIONS, Part.SCORES, Part.LOGITS, Part.GENERATION, Part.KEPT)
TRANSIENT_SPREAD = 0.15
"""Of a factor all of ``TRANSIENT`` share: an allocator rounds them all in one way."""
UNPROVEN_SPREAD = {"cpu": 0.05, "cuda": 0.15}
"""Of a factor all parts share: no GPU has been measured yet."""
UNPROVEN_FRAMEWORK = 0.1
"""The same on top for frameworks other than TRL, none of which has been measured."""
OF_MACHINE = (Part.FLOOR, Part.ENGINE_FLOOR, Part.CACHE, Part.WORKSPACE, Part.RESIDUE, Part.WORKERS)
"""Their formulas do not need the model's sizes."""
NOISE, NOISE_BYTES = 0.04, 20e6
"""Relative spread of peaks around the fitted formulas before a study has its own, and bytes on top."""
NOISE_WEIGHT = 3.0
"""Measured peaks ``NOISE`` counts for."""
PHASE_NOISE = 3.0
"""A phase's own peak counts as so many times as noisy: memory freed by the phase before may still be held."""
CARRIED_NOISE, NOISE_OF_DOUBLING = 4.0, 1.0
"""The same of an earlier study's peak, and more for each doubling between the studies."""
ENOUGH = 40
"""Measured peaks from which a study needs no other's."""
DOUBT = 1.0
"""Log score by which the formulas alone have to be ahead before earlier studies are left aside."""
ROUNDS = 12
"""Steps of a fit at most."""
FARTHEST = 1.5
"""Spreads that a bound raises a forecast by, at most: what is farther had another cause than the formulas know."""
WIDEST = 2.0
"""A forecast's logarithm has at most this standard deviation: beyond, nothing is said any more."""
DEVICE_USABLE = 0.97
"""Share of a GPU that must have been asked for when an allocation fails: the rest is what no request fits in."""
FAILED_IN: Mapping[str, tuple[Moment, ...]] = {
    Phase.GENERATE.value: (Moment.GENERATE,),
    Phase.SYNC.value: (Moment.SYNC,),
    Phase.LOGPROB.value: (Moment.LOGPROB,),
    Phase.UPDATE.value: (Moment.UPDATE, Moment.STEP),
}
"""Moments of an out-of-memory failure by phase; one while starting counts for any moment, which asks for no less."""


@dataclass(frozen=True)
class Factors:
    """Normal distribution of the logarithms of the parts' factors, before or after trials."""

    logs: Column
    covariance: Square
    noise: float
    """Relative standard deviation of a peak."""

    @property
    def mean(self) -> Column:
        """Median factor of each part."""
        return np.exp(self.logs)


@dataclass(frozen=True)
class Peaks:
    """Peaks of one pool, measured or at least so high; in an order that does not depend on how trials were given."""

    matrix: NDArray[np.float64]
    """Bytes by peak, moment and part."""
    moments: NDArray[np.bool_]
    """By peak: moments the figure may be of."""
    level: Column
    """Bytes; positive."""
    censored: NDArray[np.bool_]
    """The peak is at least ``level``."""
    noise: Column
    """How many times as noisy as a great peak of a whole trial."""
    whole: NDArray[np.bool_]
    """Of a whole trial: its residual tells of the noise."""

    def part(self, chosen: NDArray[np.bool_]) -> Peaks:
        """Returns a selection of the peaks."""
        return Peaks(**{name: column[chosen] for name, column in vars(self).items()})

    def joined(self, others: Peaks) -> Peaks:
        """Returns these peaks, then others."""
        return Peaks(**{name: np.concatenate([mine, getattr(others, name)]) for name, mine in vars(self).items()})

    def linear(self, logs: Column) -> tuple[Column, Matrix]:
        """Returns the logarithms of height over level, and their slopes, at the moment that is the peak."""
        parts = self.matrix * np.exp(logs)
        heights = np.where(self.moments, parts.sum(axis=2), 0.0)
        at = np.argmax(heights, axis=1)
        here = np.arange(len(at))
        height = np.maximum(heights[here, at], 1.0)
        return np.log(height / self.level), parts[here, at] / height[:, None]


def fit(prior: Factors, seen: Peaks) -> Factors:
    """Fits the most probable factors and how sure they are."""
    precision: Square = np.asarray(np.linalg.inv(prior.covariance), dtype=np.float64)
    measured, bounds = seen.part(~seen.censored), seen.part(seen.censored)
    logs, information = prior.logs, precision
    # With the noise known beforehand: were it learnt here, a machine unlike the formulas would seem noisy instead.
    weights = 1.0 / (prior.noise * measured.noise) ** 2
    for _ in range(ROUNDS if len(measured.level) else 0):
        above, slopes = measured.linear(logs)
        information = precision + (slopes.T * weights) @ slopes
        step = np.linalg.solve(information, -precision @ (logs - prior.logs) - (slopes.T * weights) @ above)
        logs = logs + np.clip(step, -1.0, 1.0)
        if np.max(np.abs(step)) < 1e-4:
            break
    floor, own, spread = logs, information, prior.noise * bounds.noise
    above, slopes = bounds.linear(floor)
    believed = np.sqrt(np.einsum("ij,jk,ik->i", slopes, np.linalg.inv(own), slopes) + spread**2)
    bounds = replace(bounds, level=bounds.level * np.exp(np.minimum(0.0, above + FARTHEST * believed)))
    for _ in range(ROUNDS if len(bounds.level) else 0):
        above, slopes = bounds.linear(logs)
        ratio = normal_hazard(above / spread)
        information = own + (slopes.T * (ratio * (ratio + above / spread) / spread**2)) @ slopes
        step = _above(floor - logs, information, slopes.T @ (ratio / spread) - own @ (logs - floor))
        logs = logs + np.clip(step, -1.0, 1.0)
        if np.max(np.abs(step)) < 1e-4:
            break
    covariance: Square = np.asarray(np.linalg.inv(information), dtype=np.float64)
    return Factors(logs, covariance, _noise(prior.noise, seen, logs, covariance))


def _above(least: Column, information: Square, gradient: Column) -> Column:
    """Returns Newton's step of at least ``least``: parts that would go below stay there, and others make up for it."""
    free = np.ones(len(least), dtype=np.bool_)
    while True:
        step = least.copy()
        pull = gradient[free] - information[np.ix_(free, ~free)] @ least[~free]
        step[free] = np.linalg.solve(information[np.ix_(free, free)], pull)
        below = step < least - 1e-12
        if not below.any():
            return step
        free &= ~below


def _noise(prior: float, seen: Peaks, logs: Column, covariance: Square) -> float:
    """Returns the prior's variance and that of the residuals, each by its degrees of freedom (as limma moderates)."""
    above, slopes = seen.linear(logs)
    telling = seen.whole & (~seen.censored | (above < 0.0))
    if not telling.any():
        return prior
    own, residuals = slopes[telling] / seen.noise[telling][:, None], above[telling] / seen.noise[telling]
    freedom = max(0.0, len(own) - float(np.einsum("ij,jk,ik->", own, covariance, own)) / prior**2)
    return math.sqrt((NOISE_WEIGHT * prior**2 + float(residuals @ residuals)) / (NOISE_WEIGHT + freedom))


def log_score(believed: Factors, seen: Peaks) -> float:
    """Returns the logarithm of the probability of whole trials' peaks and bounds, each by itself."""
    observed = seen.part(seen.whole)
    above, slopes = observed.linear(believed.logs)
    own = np.einsum("ij,jk,ik->i", slopes, believed.covariance, slopes)
    spread = np.sqrt(np.maximum(own, 0.0) + (believed.noise * observed.noise) ** 2)
    away = above / spread
    measured = -0.5 * away**2 - np.log(spread) - 0.5 * math.log(2.0 * math.pi)
    return float(np.sum(np.where(observed.censored, np.log(np.maximum(normal_below(away), 1e-12)), measured)))


def noise_factor(level: Column) -> Column:
    """Returns the factor of the noise of a peak of ``level`` bytes over that of a large one."""
    found: Column = np.hypot(1.0, NOISE_BYTES / (NOISE * level))
    return found


Told = tuple[Collection[Moment], float, bool, bool]
"""Moments; level; whether it is a bound; whether it is of a whole trial."""
Seen = tuple[NDArray[np.float64], Collection[Moment], float, bool, bool]
"""Bytes by moment and part, and ``Told``."""


def peaks_of(task: Task, trials: Sequence[Trial], matrix: Matrix) -> list[Peaks]:
    """Reads the peaks of one study's trials by pool, in any order; ``matrix``: of their distinct configurations."""
    places = {c: place for place, c in enumerate(_configurations(trials))}
    wrong = retries.disproved(trials)
    # A bound of a failure counts where its pool was full; on a CPU there is one memory, whatever it was put down to.
    told = [t for t in sorted(trials, key=lambda t: t.number) if t.number not in wrong and t.state.is_finished]
    found = []
    for pool, limit, own in zip(pools(task), limits(task), matrix, strict=True):
        full = (pool,) if task.resources.gpus else (Pool.HOST, Pool.DEVICE, None)
        usable = 0.0 if limit is None else limit * (DEVICE_USABLE if pool is Pool.DEVICE else 1.0)
        alone = task.resources.training_processes == 1 and not task.resources.gpus
        seen = [(own[places[t.configuration]], *one) for t in told for one in _peaks(t, pool, usable, full, alone)]
        found.append(_stacked(seen))
    return found


def _configurations(trials: Sequence[Trial]) -> tuple[Configuration, ...]:
    return tuple(dict.fromkeys(t.configuration for t in trials))


def _peaks(trial: Trial, pool: Pool, usable: float, full: Collection[Pool | None], alone: bool) -> list[Told]:
    """Reads the peaks and bounds of ``pool`` that a trial gives. ``usable``: bytes that a failed allocation had asked
    for at least. ``full``: pools of a failure that mean this one. ``alone``: one process trains."""
    peak, outcome = float(trial.peak(pool) or 0), trial.outcome
    if trial.fits and peak:
        phases = _by_phase(trial) if alone and pool is Pool.HOST else []
        return [(MOMENTS, peak, False, True), *phases]
    moments: Collection[Moment] = MOMENTS
    if outcome is not None and trial.state is TrialState.FAIL:
        if outcome.reason is FailureReason.OOM:
            if not outcome.fresh or outcome.pool not in full:
                return []
            moments, peak = FAILED_IN.get(str(outcome.phase), MOMENTS), max(usable, peak)
        elif not trial.worst_case_passed:  # else it held at least what was seen
            return []
    return [(moments, peak, True, True)] if peak else []


def _by_phase(trial: Trial) -> list[Told]:
    """Reads peaks of phases other than the highest; none where freed memory is kept, which shows in every phase."""
    if trial.configuration.get("host_allocator") not in (None, "default"):
        return []
    found: list[Told] = []
    for phase in (Phase.GENERATE.value, Phase.LOGPROB.value):
        several = [p.host for c in trial.cycles if (p := c.peaks.get(phase)) is not None and p.host]
        if several:
            found.append((FAILED_IN[phase], float(max(several)), False, False))
    return found


def _stacked(seen: Sequence[Seen]) -> Peaks:
    level = np.array([one[2] for one in seen], dtype=np.float64)
    whole = np.array([one[4] for one in seen], dtype=np.bool_)
    return Peaks(
        matrix=np.array([one[0] for one in seen], dtype=np.float64).reshape(-1, len(MOMENTS), len(PARTS)),
        moments=np.array([[m in one[1] for m in MOMENTS] for one in seen], dtype=np.bool_).reshape(-1, len(MOMENTS)),
        level=level,
        censored=np.array([one[3] for one in seen], dtype=np.bool_),
        noise=noise_factor(level) * np.where(whole, 1.0, PHASE_NOISE),
        whole=whole,
    )


def carried_over(task: Task, earlier: Sequence[EarlierTrials]) -> tuple[Peaks, ...]:
    """Reads peaks of earlier studies' trials by pool of ``task``; none of a study that has other pools."""
    found = [_stacked([])] * len(pools(task))
    for one in (one for one in earlier if pools(one.task) == pools(task)):
        for place, seen in enumerate(peaks_of(one.task, one.trials, features(one.task, _configurations(one.trials)))):
            own = seen.part(~seen.censored & seen.whole)
            noise = own.noise * (CARRIED_NOISE + NOISE_OF_DOUBLING * one.distance)
            found[place] = found[place].joined(replace(own, noise=noise, whole=np.zeros_like(own.whole)))
    return tuple(found)


def begun(start: Factors, seen: Peaks, earlier: Peaks) -> Factors:
    """Fits ``seen`` together with earlier studies' peaks of the same pool, unless it speaks against them; ``start`` is
    by formulas."""
    enough = int(np.sum(seen.whole & ~seen.censored)) >= ENOUGH
    if enough or not len(earlier.level) or log_score(fit(start, earlier), seen) < log_score(start, seen) - DOUBT:
        return fit(start, seen)
    return fit(start, seen.joined(earlier))


def prior(task: Task) -> Factors:
    """Returns factors of 1, doubted part by part, all together where the model's sizes had to be guessed."""
    covariance = np.diag(np.array([SPREADS[part] for part in PARTS]) ** 2)
    unproven = UNPROVEN_SPREAD["cuda" if task.resources.gpus else "cpu"]
    unproven += UNPROVEN_FRAMEWORK * (not facts_of(task.resources.framework).memory_measured)
    of_model = [part for part in PARTS if part not in OF_MACHINE]
    # A factor known to within e^doubt: upwards it reaches further than doubt itself.
    doubt = math.expm1(dimensions(task.resources.model).doubt)
    for members, spread in ((TRANSIENT, TRANSIENT_SPREAD), (of_model, doubt), (PARTS, unproven)):
        shared = np.zeros(len(PARTS))
        shared[[PLACE[part] for part in members]] = spread
        covariance += np.outer(shared, shared)
    return Factors(np.zeros(len(PARTS)), covariance, NOISE)


@dataclass(frozen=True)
class MemoryModel:
    """Knows some trials of one study; ``MemoryModel.before(task)`` knows none."""

    task: Task
    posteriors: tuple[Factors, ...]
    """By pool (``features.pools``)."""
    earlier: tuple[Peaks, ...] = field(default=(), repr=False)
    """By pool, what earlier studies of the same pools measured (``carried_over``)."""
    seen: Reader[PeakTable] = field(default_factory=lambda: Reader(read, tabled), compare=False, repr=False)
    """What was read of configurations, by this model or those it was fitted from."""

    @classmethod
    def before(cls, task: Task, earlier: tuple[Peaks, ...] = ()) -> MemoryModel:
        """Returns the formulas alone, or fitted to earlier studies."""
        return cls(task, (), earlier).fitted(task, ())

    def fitted(self, task: Task, trials: Sequence[Trial]) -> MemoryModel:
        """See ``PeakModel``. The order of ``trials`` does not matter."""
        seen = peaks_of(task, trials, np.moveaxis(self.seen.rows(task, _configurations(trials)), 0, 1))
        earlier = self.earlier or (_stacked([]),) * len(seen)
        start = prior(task)
        found = tuple(begun(start, own, other) for own, other in zip(seen, earlier, strict=True))
        return replace(self, task=task, posteriors=found)

    def peaks(self, configurations: Sequence[Configuration], pool: Pool) -> tuple[Column, Column]:
        """Returns medians of the peaks of one pool in bytes, and spreads of their logarithms. Raises ``ValueError``
        for a pool the task does not have."""
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
        known = [1.0 if not any(bounds) else np.inf if limit is None else limit for limit in bounds]
        closest = np.argmax([peak / limit for (peak, _), limit in zip(found, known, strict=True)], axis=0)
        columns = np.arange(len(configurations))
        peaks, spreads = np.array([p for p, _ in found]), np.array([s for _, s in found])
        return PeakForecast(peaks[closest, columns], spreads[closest, columns], fits)


def _pool(table: PoolTable, posterior: Factors) -> tuple[Column, Column]:
    """Returns median and log-spread of the peaks of one pool."""
    peaks = variance = np.zeros(len(table[0][1]))
    for rows, index in table:
        parts = rows * posterior.mean
        height = parts.sum(axis=1)
        square = np.einsum("ij,ij->i", parts @ posterior.covariance, parts) / np.maximum(height, 1.0) ** 2
        height, square = height.take(index), square.take(index)
        higher = height > peaks
        peaks, variance = np.where(higher, height, peaks), np.where(higher, square, variance)
    peaks = np.maximum(1.0, peaks)
    spread = np.sqrt(np.maximum(0.0, variance) + (posterior.noise * noise_factor(peaks)) ** 2)
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
    """Returns the parts of ``configuration``'s peak by pool, the device first where there is one."""
    found = []
    matrix = features(model.task, [configuration])
    for pool, own, posterior in zip(pools(model.task), matrix, model.posteriors, strict=True):
        parts = own[0] * posterior.mean
        heights = parts.sum(axis=1)
        at = int(np.argmax(heights))
        by_group = {name: float(parts[at, [PLACE[p] for p in members]].sum()) for name, members in GROUPS.items()}
        found.append(Breakdown(pool, MOMENTS[at], float(heights[at]), by_group))
    return tuple(found)
