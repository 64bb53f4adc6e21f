"""The memory model: a peak is the largest moment of a sum of parts, each a formula times a learnt factor.

Logarithms of factors are normal. Measured peaks are fitted first, by Gauss-Newton over the moment that has the peak;
then the bounds of trials that ran out of memory, which only raise factors.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, FailureReason, Phase, Pool, Trial, TrialState
from autotune.proposals.forecasts import REMEMBERED, Column, EarlierTrials, PeakForecast, Task
from autotune.proposals.memory.features import features, limits, pools
from autotune.proposals.memory.parts import MOMENTS, PARTS, Matrix, Moment, Part
from autotune.proposals.memory.settings import dimensions
from autotune.statistics import retries
from autotune.statistics.distributions import normal_below, normal_hazard
from search_spaces.frameworks import facts_of

SCALES: Mapping[tuple[Part, ...], float] = {
    (Part.PROCESSES,): 0.07,
    (Part.ROLLOUT,): 0.1,
    (Part.GENERATION,): 0.5,
    (Part.WEIGHTS, Part.GRADIENTS, Part.OPTIMIZER, Part.SYNC, Part.OFFLOADED): 0.1,
    (Part.ACTIVATIONS, Part.ALLOCATOR): 0.3,
    (Part.LOGITS,): 0.15,
}
"""Parts that share one learnt factor, and the standard deviation of its logarithm before any trial: such that recorded
tables are forecast well after 3 to 10 trials. More factors forecast them no better."""
UNPROVEN, UNPROVEN_GPU, UNPROVEN_FRAMEWORK = 0.05, 0.15, 0.1
"""Spread of a factor that all parts share; on GPUs, none of which has been measured; and more for frameworks other than
TRL, none of which has been either."""
NOISE, FITTED_NOISE = 0.04, 0.032
"""Relative spread of peaks around the fitted formulas: processes of one configuration differ by up to 3 %; that of the
peaks that are fitted, such that recorded tables are forecast well."""
NOISE_WEIGHT = 3.0
"""Number of measured peaks that ``NOISE`` counts as, compared with a study's own."""
PHASE_NOISE = 3.0
"""Noise of a phase's own peak relative to a whole trial's: memory that the phase before freed may still be held."""
ROUNDS = 6
"""Steps of a fit; more change nothing."""
FARTHEST = 1.5
"""Most standard deviations by which bounds raise a forecast; a bound beyond has a cause outside the formulas."""
DEVICE_USABLE = 0.97
"""Share of a GPU that is requested, at least, when an allocation fails: the rest is too small for any request."""
FAILED_IN: Mapping[str, tuple[Moment, ...]] = {
    Phase.GENERATE.value: (Moment.GENERATE,),
    Phase.SYNC.value: (Moment.SYNC,),
    Phase.LOGPROB.value: (Moment.LOGPROB,),
    Phase.UPDATE.value: (Moment.UPDATE, Moment.STEP),
}
"""Moments of an out-of-memory failure by phase; one while starting counts for any moment, which asks for no less."""
_SPREADS = np.array(list(SCALES.values()))
_PROCESSES = np.array([Part.PROCESSES in scale for scale in SCALES])
_OF_SCALE = np.array([[part in scale for scale in SCALES] for part in PARTS], dtype=np.float64)


@dataclass(frozen=True)
class Factors:
    """Normal distribution of the logarithms of the factors, one for each scale."""

    logs: Column
    covariance: NDArray[np.float64]
    noise: float = NOISE
    """Relative spread of peaks around the formulas."""

    def peak(self, rows: Matrix, allowed: NDArray[np.bool_] | None = None) -> tuple[Column, Matrix, Column]:
        """Returns the median peak of each row, its slopes by the factors' logarithms, and the spread of its logarithm.

        Args:
            rows: bytes by row, moment and scale.
            allowed: moments by row at which the peak may occur; ``None``: any.
        """
        factors = np.exp(self.logs)
        heights = rows @ factors
        at = np.argmax(heights if allowed is None else np.where(allowed, heights, -1.0), axis=1)
        here = np.arange(len(at))
        peaks = np.maximum(heights[here, at], 1.0)
        slopes = rows[here, at] * factors / peaks[:, None]
        return peaks, slopes, np.sqrt(np.einsum("ij,ij->i", slopes @ self.covariance, slopes) + self.noise**2)


@dataclass(frozen=True)
class Peaks:
    """Peaks of one pool, measured values or lower bounds, in an order independent of the order of the trials."""

    rows: Matrix
    """Bytes by peak, moment and scale."""
    moments: NDArray[np.bool_]
    """Moments by peak at which the peak may have occurred."""
    logs: Column
    """Logarithms of the peaks' bytes."""
    bounds: NDArray[np.bool_]
    """True where the figure is a lower bound of the peak."""
    noise: Column
    """Noise relative to that of a whole trial's peak."""

    def part(self, chosen: NDArray[np.bool_]) -> Peaks:
        """Returns a selection of the peaks."""
        return Peaks(**{name: column[chosen] for name, column in vars(self).items()})


def fit(start: Factors, peaks: Peaks) -> Factors:
    """Fits the most probable factors and their uncertainty."""
    measured, bounds = peaks.part(~peaks.bounds), peaks.part(peaks.bounds)
    precision = np.linalg.inv(start.covariance)

    def misfit(tried: Factors) -> float:
        away, change = measured.logs - np.log(tried.peak(measured.rows, measured.moments)[0]), tried.logs - start.logs
        return float(np.sum((away / measured.noise) ** 2)) / FITTED_NOISE**2 + float(change @ precision @ change)

    found, weights = start, (FITTED_NOISE * measured.noise) ** -2.0
    for _ in range(ROUNDS if len(measured.logs) else 0):
        heights, slopes, _ = found.peak(measured.rows, measured.moments)
        information = precision + (slopes.T * weights) @ slopes
        gradient = (slopes.T * weights) @ (measured.logs - np.log(heights)) - precision @ (found.logs - start.logs)
        step = np.linalg.solve(information, gradient)
        covariance: NDArray[np.float64] = np.asarray(np.linalg.inv(information), dtype=np.float64)
        # The share of it that fits best: whole steps may lead away from peaks unlike the formulas.
        several = (Factors(found.logs + share * step, covariance) for share in (1.0, 0.5, 0.25, 0.1, 0.0))
        found = min(several, key=misfit)
    heights, _, spreads = found.peak(bounds.rows, bounds.moments)
    least = np.minimum(bounds.logs, np.log(heights) + FARTHEST * spreads)
    for place, level in enumerate(least):
        one = slice(place, place + 1)
        height, slope, spread = found.peak(bounds.rows[one], bounds.moments[one])
        raised = normal_hazard((np.log(height) - level) / spread) / spread
        found = replace(found, logs=found.logs + np.maximum(0.0, found.covariance @ slope[0]) * raised)
    return replace(found, noise=_scatter(found, peaks))


def _scatter(fitted: Factors, peaks: Peaks) -> float:
    """Returns the relative spread of whole peaks, and of bounds above the fitted peak, around the fitted formulas.

    Fits use ``FITTED_NOISE``: a machine unlike the formulas is not noisy. The spread only widens forecasts.
    """
    heights, slopes, _ = fitted.peak(peaks.rows, peaks.moments)
    away = peaks.logs - np.log(heights)
    telling = (peaks.noise == 1.0) & (~peaks.bounds | (away > 0.0))
    away, slopes = away[telling], slopes[telling]
    freedom = max(0.0, len(away) - float(np.einsum("ij,jk,ik->", slopes, fitted.covariance, slopes)) / FITTED_NOISE**2)
    return math.sqrt((NOISE_WEIGHT * NOISE**2 + float(away @ away)) / (NOISE_WEIGHT + freedom))


def peaks_of(task: Task, trials: Sequence[Trial]) -> list[Peaks]:
    """Reads the peaks and bounds of one study's trials by pool, in any order of trials."""
    wrong = retries.disproved(trials)
    ended = [t for t in sorted(trials, key=lambda t: t.number) if t.number not in wrong and t.state.is_finished]
    matrix = scaled(task, tuple(t.configuration for t in ended))
    alone = task.resources.training_processes == 1 and not task.resources.gpus
    found = []
    for pool, limit, rows in zip(pools(task), limits(task), matrix, strict=True):
        # A failure is a bound where its pool was full; on a CPU there is one memory, whatever it was put down to.
        full = (pool,) if task.resources.gpus else (Pool.HOST, Pool.DEVICE, None)
        usable = 0.0 if limit is None else limit * (DEVICE_USABLE if pool is Pool.DEVICE else 1.0)
        read = [(place, *_peak(trial, pool, usable, full), 1.0) for place, trial in enumerate(ended)]
        for place, trial in enumerate(ended if alone else ()):
            read += [(place, *one, False, PHASE_NOISE) for one in _by_phase(trial)]
        read = [one for one in read if one[2] > 0]
        moments = [[moment in one[1] for moment in MOMENTS] for one in read]
        own = Peaks(
            rows=rows[np.array([one[0] for one in read], dtype=np.intp)],
            moments=np.array(moments, dtype=np.bool_).reshape(-1, len(MOMENTS)),
            logs=np.log(np.array([one[2] for one in read])),
            bounds=np.array([one[3] for one in read], dtype=np.bool_),
            noise=np.array([one[4] for one in read]),
        )
        found.append(own)
    return found


def _peak(
    trial: Trial, pool: Pool, usable: float, full: Collection[Pool | None]
) -> tuple[Collection[Moment], float, bool]:
    """Reads the moments and bytes of a trial's peak in ``pool`` (0 without one), and whether it is a lower bound.

    Args:
        usable: least requested bytes when an allocation failed.
        full: pools of a failure that count as this pool.
    """
    peak, outcome = float(trial.peak(pool) or 0), trial.outcome
    if trial.fits:
        return MOMENTS, peak, False
    if outcome is None or trial.state is not TrialState.FAIL:
        return MOMENTS, peak, True
    if outcome.reason is not FailureReason.OOM:  # after the worst case it held at least its peak
        return MOMENTS, peak if trial.worst_case_passed else 0.0, True
    counts = outcome.fresh and outcome.pool in full
    return FAILED_IN.get(str(outcome.phase), MOMENTS), max(usable, peak) if counts else 0.0, True


def _by_phase(trial: Trial) -> list[tuple[Collection[Moment], float]]:
    """Reads moments and bytes of a fitting trial's generation and log-prob passes; empty if the allocator keeps freed
    memory, which then counts in every phase."""
    if not trial.fits or trial.configuration.get("host_allocator") not in (None, "default"):
        return []
    found: list[tuple[Collection[Moment], float]] = []
    for phase in (Phase.GENERATE.value, Phase.LOGPROB.value):
        several = [p.host for c in trial.cycles if (p := c.peaks.get(phase)) is not None and p.host]
        if several:
            found.append((FAILED_IN[phase], float(max(several))))
    return found


@lru_cache(maxsize=REMEMBERED)
def scaled(task: Task, configurations: tuple[Configuration, ...]) -> Matrix:
    """Returns bytes by pool, configuration, moment and scale. Do not change the array: it is cached."""
    found: Matrix = features(task, configurations) @ _OF_SCALE
    return found


def prior(task: Task) -> Factors:
    """Returns factors of 1; each scale is uncertain, and all together are if the model's sizes are guessed."""
    unproven = UNPROVEN_GPU if task.resources.gpus else UNPROVEN
    unproven += UNPROVEN_FRAMEWORK * (not facts_of(task.resources.framework).memory_measured)
    # A factor known to within e^doubt reaches further upwards than doubt itself.
    doubt = np.where(_PROCESSES, 0.0, math.expm1(dimensions(task.resources.model).doubt))
    covariance = np.diag(_SPREADS**2) + unproven**2 + np.outer(doubt, doubt)
    return Factors(np.zeros(len(SCALES)), covariance)


def _begun(task: Task, earlier: Iterable[EarlierTrials]) -> tuple[Factors, ...]:
    """Returns factors by pool before any trial. Earlier studies of the same pools shift them, by at most one standard
    deviation, and do not make them surer. Ignores bounds, which could raise a forecast permanently."""
    start = prior(task)
    found = [start] * len(pools(task))
    for one in (one for one in earlier if pools(one.task) == pools(task)):
        of_pools = zip(found, peaks_of(one.task, one.trials), strict=True)
        fits = [fit(factors, peaks.part(~peaks.bounds)) for factors, peaks in of_pools]
        found = [replace(start, logs=np.clip(factors.logs, -_SPREADS, _SPREADS)) for factors in fits]
    return tuple(found)


@dataclass(frozen=True)
class Breakdown:
    """Predicted memory by part in one pool: one GPU, or the process tree of one machine."""

    pool: Pool
    moment: Moment
    """Moment of the peak."""
    peak: float
    """Bytes; the sum of ``at_peak``."""
    at_peak: Mapping[str, float]
    """Bytes by part at that moment."""


@dataclass(frozen=True)
class MemoryModel:
    """A memory model fitted to trials of one study; ``MemoryModel.before(task)`` has none."""

    task: Task
    begun: tuple[Factors, ...]
    """Factors by pool before any trial."""
    factors: tuple[Factors, ...]
    """Factors by pool (``features.pools``)."""

    @classmethod
    def before(cls, task: Task, earlier: Iterable[EarlierTrials] = ()) -> MemoryModel:
        """Returns the formulas alone, or with the factors of earlier studies."""
        begun = _begun(task, earlier)
        return cls(task, begun, begun)

    def fitted(self, task: Task, trials: Sequence[Trial]) -> MemoryModel:
        """Returns the model fitted to ``trials``, in any order."""
        found = tuple(fit(start, own) for start, own in zip(self.begun, peaks_of(task, trials), strict=True))
        return replace(self, task=task, factors=found)

    def peaks(self, configurations: Sequence[Configuration], pool: Pool) -> tuple[Column, Column]:
        """Returns medians of the peaks of one pool in bytes, and standard deviations of their logarithms. Raises
        ``ValueError`` for a pool the task does not have."""
        place = pools(self.task).index(pool)
        peaks, _, spreads = self.factors[place].peak(scaled(self.task, tuple(configurations))[place])
        return peaks, spreads

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        """Returns the peaks in the pool closest to its limit."""
        matrix, bounds = scaled(self.task, tuple(configurations)), limits(self.task)
        found = [factors.peak(rows)[::2] for factors, rows in zip(self.factors, matrix, strict=True)]
        fits = np.ones(len(configurations))
        for (peak, spread), limit in zip(found, bounds, strict=True):
            if limit is not None:
                fits = fits * normal_below(np.log(limit / peak) / spread)
        # An unknown limit is never the closest, unless none is known.
        known = [1.0 if not any(bounds) else math.inf if limit is None else limit for limit in bounds]
        closest = np.argmax([peak / limit for (peak, _), limit in zip(found, known, strict=True)], axis=0)
        peaks, spreads = (np.choose(closest, columns) for columns in zip(*found, strict=True))
        return PeakForecast(peaks, spreads, fits)

    def breakdown(self, configuration: Configuration) -> tuple[Breakdown, ...]:
        """Returns the parts of ``configuration``'s peak by pool, the device first where there is one."""
        found = []
        for pool, own, factors in zip(
            pools(self.task), features(self.task, [configuration]), self.factors, strict=True
        ):
            parts = own[0] * (_OF_SCALE @ np.exp(factors.logs))
            at = int(np.argmax(parts.sum(axis=1)))
            by_part = dict(zip(map(str, PARTS), parts[at].tolist(), strict=True))
            found.append(Breakdown(pool, MOMENTS[at], float(parts[at].sum()), by_part))
        return tuple(found)
