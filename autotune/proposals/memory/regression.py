"""Non-negative Bayesian regression of peaks on parts, and the observations it is fitted to. Pure.

Of a trial the peak is the largest over moments of a sum of parts times coefficients; which moment it is follows from
the coefficients and is found by turns. Residuals are relative to the observation, so the noise is one of logarithms
for as long as it is small. Trials that ran out of memory are lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, FailureReason, Phase, Pool, Trial, TrialState
from autotune.proposals.forecasts import Column
from autotune.proposals.memory.features import MOMENTS, PARTS, Moment
from autotune.statistics import retries
from autotune.statistics.distributions import normal_below, normal_hazard

Square = NDArray[np.float64]
NOISE = 0.04
"""Relative spread of peaks around the fitted formulas, before a study has shown its own: 1.5 to 2.6 % between processes
of one configuration, and what the formulas miss of a configuration whatever their coefficients are."""
NOISE_BYTES = 20e6
"""The same in bytes, on top: between processes imports and caches differ by so much, however small the model is."""
NOISE_WEIGHT = 3.0
"""Measured peaks ``NOISE`` counts for."""
PHASE_NOISE = 3.0
"""A phase's own peak counts as so many times as noisy: memory freed by the phase before may still be held."""
ROUNDS = 6
"""Turns of finding the moments and the coefficients."""
NEWTON = 12
"""Steps towards the coefficients that bounds ask for; the likelihood is log-concave."""
TOLERANCE = 1e-4
"""A change of the coefficients that is none; their spreads are a hundred times that."""


@dataclass(frozen=True)
class Coefficients:
    """Normal distribution of the coefficients, before or after trials."""

    mean: Column
    covariance: Square
    noise: float
    """Relative standard deviation of a peak."""


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
        """A selection of the observations."""
        return Observations(**{name: column[chosen] for name, column in vars(self).items()})

    def joined(self, others: Observations) -> Observations:
        """These observations, then others."""
        both = {name: np.concatenate([mine, getattr(others, name)]) for name, mine in vars(self).items()}
        return Observations(**both)

    def rows(self, coefficients: Column) -> NDArray[np.float64]:
        """Parts at the moment that is the peak by ``coefficients``, relative to the level."""
        heights = np.where(self.moments, self.matrix @ coefficients, -np.inf)
        at = np.argmax(heights, axis=1)
        rows: NDArray[np.float64] = self.matrix[np.arange(len(at)), at] / self.level[:, None]
        return rows


def fit(prior: Coefficients, seen: Observations) -> Coefficients:
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
    return Coefficients(mean, covariance, _noise(prior.noise, seen, mean, information))


def log_score(believed: Coefficients, seen: Observations) -> float:
    """Logarithm of the probability of whole trials' peaks and bounds, each by itself."""
    observed = seen.part(seen.whole)
    if not len(observed.level):
        return 0.0
    rows = observed.rows(believed.mean)
    heights = np.maximum(rows @ believed.mean, 1e-9)
    own = np.sum((rows @ believed.covariance) * rows, axis=1) / heights**2
    spread = np.sqrt(np.maximum(own, 0.0) + (believed.noise * observed.noise) ** 2)
    away = np.log(heights) / spread
    measured = -0.5 * away**2 - np.log(spread) - 0.5 * math.log(2.0 * math.pi)
    return float(np.sum(np.where(observed.censored, np.log(np.maximum(normal_below(away), 1e-12)), measured)))


def _noise(prior: float, seen: Observations, mean: Column, information: Square) -> float:
    """The prior's variance and that of the residuals, each by its degrees of freedom (moderated, as in limma).

    A bound tells of noise by what the coefficients stay below it.
    """
    rows = seen.rows(mean)
    short = 1.0 - rows @ mean
    telling = seen.whole & (~seen.censored | (short > 0.0))
    if not telling.any():
        return prior
    own = rows[telling] / seen.noise[telling][:, None]
    residuals = short[telling] / seen.noise[telling]
    used = float(np.einsum("ij,ji->", own, np.linalg.solve(information, own.T))) / prior**2
    freedom = max(0.0, len(own) - used)
    total = NOISE_WEIGHT * prior**2 + float(residuals @ residuals)
    return math.sqrt(total / (NOISE_WEIGHT + freedom))


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


Rows = Mapping[Configuration, NDArray[np.float64]]
"""Features of one pool: bytes by moment and part."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """An observation of one trial: its peak, or a bound of it."""

    parts: NDArray[np.float64]
    moments: tuple[Moment, ...]
    level: float
    censored: bool
    whole: bool
    """Of a trial as a whole, not of one of its phases."""


_UPDATE = (Moment.UPDATE, Moment.STEP)
_MOMENTS: Mapping[str, tuple[Moment, ...]] = {
    Phase.GENERATE.value: (Moment.GENERATE,),
    Phase.SYNC.value: (Moment.SYNC,),
    Phase.LOGPROB.value: (Moment.LOGPROB,),
    Phase.UPDATE.value: _UPDATE,
}
"""Where an out-of-memory failure was; one while starting counts for any moment, which asks for no less."""
_DEFAULT_ALLOCATOR = (None, "default")
DEVICE_USABLE = 0.97
"""Share of a GPU that must have been asked for when an allocation fails: the rest is what no request fits in."""


def observations(
    trials: Sequence[Trial], pool: Pool, limit: float | None, rows: Rows, *, alone: bool, has_device: bool
) -> Observations:
    """Observations of one pool from the trials of one study, in any order.

    Args:
        limit: bytes it has; ``None`` = not known.
        alone: one process trains, so what it saw of a phase is what the tree held then.
        has_device: the device has a memory of its own.
    """
    found: list[_Seen] = []
    disproved = retries.disproved(trials)
    # On a CPU there is one memory, whatever the failure was put down to.
    meant = (pool,) if has_device else (Pool.HOST, Pool.DEVICE, None)
    for trial in sorted(trials, key=lambda t: t.number):
        if trial.number in disproved or not trial.state.is_finished:
            continue
        parts, peak = rows[trial.configuration], trial.peak(pool)
        if trial.fits and peak:
            found.append(_Seen(parts, MOMENTS, float(peak), censored=False, whole=True))
            if alone:
                found += [_Seen(parts, m, level, censored=False, whole=False) for m, level in _by_phase(trial, pool)]
        elif (bound := _bound(trial, pool, limit, peak, meant)) is not None:
            found.append(_Seen(parts, bound[0], bound[1], censored=True, whole=True))
    return _stacked(found)


def nothing() -> Observations:
    """Observations without any trial."""
    return _stacked([])


def _stacked(found: Sequence[_Seen]) -> Observations:
    level = np.array([f.level for f in found], dtype=np.float64)
    whole = np.array([f.whole for f in found], dtype=np.bool_)
    masks = {moments: [m in moments for m in MOMENTS] for moments in {f.moments for f in found}}
    return Observations(
        matrix=np.array([f.parts for f in found], dtype=np.float64).reshape(-1, len(MOMENTS), len(PARTS)),
        moments=np.array([masks[f.moments] for f in found], dtype=np.bool_).reshape(-1, len(MOMENTS)),
        level=level,
        censored=np.array([f.censored for f in found], dtype=np.bool_),
        noise=noise_factor(level) * np.where(whole, 1.0, PHASE_NOISE),
        whole=whole,
    )


def noise_factor(level: Column) -> Column:
    """Factor of the noise of a peak of ``level`` bytes over that of a large one."""
    found: Column = np.hypot(1.0, NOISE_BYTES / (NOISE * level))
    return found


def _bound(
    trial: Trial, pool: Pool, limit: float | None, peak: int | None, meant: Collection[Pool | None]
) -> tuple[tuple[Moment, ...], float] | None:
    """Moment and lower bound of the peak of ``trial``, or ``None`` if it says nothing of ``pool``."""
    outcome = trial.outcome
    if outcome is None or trial.state is not TrialState.FAIL:
        return (MOMENTS, float(peak)) if peak else None
    if outcome.reason is FailureReason.OOM:
        if not outcome.fresh or outcome.pool not in meant:
            return None
        usable = 0.0 if limit is None else limit * (DEVICE_USABLE if pool is Pool.DEVICE else 1.0)
        level = max(usable, float(peak or 0.0))
        return (_MOMENTS.get(str(outcome.phase), MOMENTS), level) if level > 0 else None
    # Ended by something else after the longest micro-batch: it held at least what was seen.
    return (MOMENTS, float(peak)) if peak and trial.worst_case_passed else None


def _by_phase(trial: Trial, pool: Pool) -> list[tuple[tuple[Moment, ...], float]]:
    """Peaks of phases other than the highest; none where freed memory is kept, which shows in every phase."""
    if pool is not Pool.HOST or trial.configuration.get("host_allocator") not in _DEFAULT_ALLOCATOR:
        return []
    found = []
    for phase in (Phase.GENERATE.value, Phase.LOGPROB.value):
        seen = [p.host for c in trial.cycles if (p := c.peaks.get(phase)) is not None and p.host]
        if seen:
            found.append((_MOMENTS[phase], float(max(h for h in seen if h is not None))))
    return found
