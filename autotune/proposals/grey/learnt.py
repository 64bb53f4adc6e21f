"""Predicts speeds, failures and peaks of candidates by surfaces through what trials measured, without any formula.

Where the phases of every measured trial are known and their sum is what speed follows from, each phase has a surface of
its own, because it depends on fewer knobs than the whole does; otherwise there is one surface through the speeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.proposals.grey.surfaces import Array, Axes, columns, fit
from autotune.proposals.translation import OptunaTrialStatus
from autotune.statistics.distributions import normal_below

Params = Mapping[str, Any]
KEPT_FASTEST, KEPT_NEWEST = 40, 56
"""Of a longer history only the fastest and the newest are told: a fit is cubic in their number."""
SMALL = 0.03
"""A phase with less of all measured time than that shares a surface with the other small ones."""
AGREES = 0.05
"""Speeds and the sums of phases belong together if the logarithm of their product varies no more (standard
deviation)."""
PEAKS_FROM = 3
"""Measured peaks before there is a surface through them."""
MARK_STEPS = 6
"""Of the search for the parameters of the surface through successes and failures."""
OPTIMISM = 0.8
"""Prior mean of the surface through successes (+1) and failures (-1)."""


@dataclass(frozen=True)
class Lesson:
    """Measurements of one trial, at its point on the axes."""

    place: tuple[float, ...]
    """By the axes."""
    standing: OptunaTrialStatus
    value: float = math.nan
    """As ``Observation.value``: more is better; a bound from above where it is CENSORED."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase; empty where they were not measured. Of a CENSORED one they stand for its bound."""
    peak: float | None = None
    """Most memory it held, in the unit of the limit."""
    memory: bool = False
    """INFEASIBLE because memory ran out."""
    comparable: bool = True
    """Its value counts; otherwise only that it held or failed."""
    number: int = 0
    """The trial's: ours (``translation.NUMBER``), else Optuna's."""
    params: Params = field(default_factory=dict)


def fastest(lessons: Sequence[Lesson]) -> list[Lesson]:
    """The measured ones whose values count, best first, of equals the earliest."""
    held = (one for one in lessons if one.comparable and one.standing is OptunaTrialStatus.FEASIBLE)
    return sorted(held, key=lambda one: -one.value)


@dataclass(frozen=True)
class Predictions:
    """Predicted values of the points that may be proposed, by surfaces through what was measured."""

    value: Array
    spread: Array
    holds: Array
    """Probability of neither running out of memory nor failing otherwise."""
    best: float
    """Smoothed value of the best measured: not of the luckiest."""
    cycle_s: Array | None = None
    """Seconds expected by their phases; ``None`` where the value alone was learnt."""

    @property
    def by_phases(self) -> bool:
        return self.cycle_s is not None


def learnt(axes: Axes, lessons: Sequence[Lesson], inputs: Array, limit: float | None = None) -> Predictions:
    """Predicts the points ``inputs``, (m, d), from the lessons of trials.

    Args:
        limit: most memory there is; ``None`` leaves running out of it to the failures.
    """
    held = [one for one in lessons if one.standing is OptunaTrialStatus.FEASIBLE and math.isfinite(one.value)]
    peaks = _peaks(lessons) if limit is not None and limit > 0 else []
    holds = passes(axes, [one for one in lessons if not (peaks and one.memory)], inputs)
    if peaks and limit is not None:
        holds = holds * _fits(axes, lessons, peaks, inputs, limit)
    if not held:
        return Predictions(np.zeros(len(inputs)), np.ones(len(inputs)), holds, 0.0)
    pending = _places(axes, [one for one in lessons if one.standing is OptunaTrialStatus.PENDING])
    points = np.concatenate([inputs, _places(axes, held)])
    rows, cycle_s = phase_rows(held), None
    if rows:
        timed = [*held, *(one for one in lessons if one.standing is OptunaTrialStatus.CENSORED and one.phases)]
        level = statistics.median(one.value + math.log(sum(one.phases.values())) for one in held)
        logs, spread = _by_phases(axes, timed, rows, pending, points)
        value, cycle_s = level - logs, np.exp(logs[: len(inputs)])
    else:
        value, spread = _as_a_whole(axes, lessons, held, pending, points)
    best = float(value[len(inputs) :].max())
    return Predictions(value[: len(inputs)], spread[: len(inputs)], holds, best, cycle_s)


def phase_rows(held: Sequence[Lesson]) -> tuple[tuple[str, ...], ...]:
    """Phases by the surface they share; empty where phases do not tell the speed of every lesson."""
    if not all(one.phases and all(s >= 0 for s in one.phases.values()) and sum(one.phases.values()) for one in held):
        return ()
    products = [one.value + math.log(sum(one.phases.values())) for one in held]
    if statistics.pstdev(products) > AGREES:
        return ()
    totals: dict[str, float] = {}
    for one in held:
        for name, seconds in one.phases.items():
            totals[name] = totals.get(name, 0.0) + seconds
    whole = sum(totals.values())
    large = sorted(name for name, seconds in totals.items() if seconds > SMALL * whole)
    small = tuple(sorted(set(totals) - set(large)))
    return (*((name,) for name in large), *((small,) if small else ()))


def _by_phases(
    axes: Axes, timed: Sequence[Lesson], rows: Sequence[Sequence[str]], pending: Array, points: Array
) -> tuple[Array, Array]:
    """Logarithm of a cycle's seconds: mean and standard deviation."""
    seconds = np.array([[sum(one.phases.get(n, 0.0) for n in row) for one in timed] for row in rows], dtype=np.float64)
    least = 1e-4 * seconds.sum(axis=0).mean()
    belief = fit(axes, _places(axes, timed), np.log(np.maximum(seconds, least))).believing(pending).at(points)
    return summed(belief.mean, belief.variance)


def summed(means: Array, variances: Array) -> tuple[Array, Array]:
    """Logarithm's mean and standard deviation of a sum of log-normal times, one a row, by its first two moments
    (Fenton, IRE Transactions on Communications Systems 8, 1960)."""
    first = np.exp(means + 0.5 * variances)
    second = np.expm1(np.minimum(variances, 20.0)) * first**2
    total = first.sum(axis=0)
    variance = np.log1p(second.sum(axis=0) / total**2)
    return np.log(total) - 0.5 * variance, np.sqrt(variance)


def _as_a_whole(
    axes: Axes, lessons: Sequence[Lesson], held: Sequence[Lesson], pending: Array, points: Array
) -> tuple[Array, Array]:
    values = np.array([[one.value for one in held]], dtype=np.float64)
    bounds = [one for one in lessons if one.standing is OptunaTrialStatus.CENSORED and math.isfinite(one.value)]
    surface = fit(axes, _places(axes, held), values)
    surface = surface.bounded(_places(axes, bounds), np.array([one.value for one in bounds]), -1).believing(pending)
    belief = surface.at(points)
    return belief.mean[0], np.sqrt(belief.variance[0])


def passes(axes: Axes, lessons: Sequence[Lesson], points: Array) -> Array:
    """Probability of no failure: a surface through 1 where a trial held and -1 where it failed, read as a frequency."""
    decided = [one for one in lessons if one.standing is not OptunaTrialStatus.PENDING]
    marks = np.array([[-1.0 if one.standing is OptunaTrialStatus.INFEASIBLE else 1.0 for one in decided]])
    if not (marks < 0).any():
        return np.ones(len(points))
    belief = fit(axes, _places(axes, decided), marks, means=np.array([OPTIMISM]), steps=MARK_STEPS).at(points)
    found: Array = np.clip(0.5 + 0.5 * belief.mean[0], 0.02, 0.98)
    return found


def _peaks(lessons: Sequence[Lesson]) -> list[Lesson]:
    """Observations with a measured peak; none while there are too few for a surface."""
    seen = [
        one for one in lessons if one.peak and one.standing in (OptunaTrialStatus.FEASIBLE, OptunaTrialStatus.CENSORED)
    ]
    return seen if len(seen) >= PEAKS_FROM else []


def _fits(axes: Axes, lessons: Sequence[Lesson], peaks: Sequence[Lesson], points: Array, limit: float) -> Array:
    """Probability of a peak below the limit, by a surface through the measured ones; failures are bounds."""
    failed = _places(axes, [one for one in lessons if one.memory])
    surface = fit(axes, _places(axes, peaks), np.log([[float(one.peak or 1.0) for one in peaks]]))
    belief = surface.bounded(failed, np.full(len(failed), math.log(limit)), +1).at(points)
    return normal_below((math.log(limit) - belief.mean[0]) / np.sqrt(belief.variance[0]))


def _places(axes: Axes, lessons: Sequence[Lesson]) -> Array:
    return columns([one.place for one in lessons], len(axes.ordered))
