"""Predicts the seconds of a configuration's cycle at given completion lengths, phase by phase. Pure.

A long run has other lengths than the recorded ones that a figure was measured at. The cost of longer completions comes
from the supporting trials' cycles at 1x, 2x and the maximum. The seconds T of a cycle in each phase p are a function of
an amount of work w:

T_p(w) = s · piecewise linear through (w_1x, t_1x), (w_2x, t_2x), (w_max, t_max)

* generate: w = a · M + b · N, with M the longest completion of each generation, summed over the cycle's generations,
  and N the cycle's completion tokens: a batch runs until its longest row ends, and a step costs more the more rows
  still run. a, b >= 0 are the least-squares fit of the seconds beyond the same process's mean at 1x;
* logprob, update: w = tokens of the update's forward passes, padding included;
* reward: w = N;
* sync, wait, idle: the mean at 1x for all lengths.

t_1x is the mean at 1x. t_2x and t_max are t_1x plus the mean difference to 1x within one process, so that differences
between processes enter no slope, and any trial of the configuration can contribute. Below 1x the line continues with
the mean slope of all cycles at other lengths, natural ones included (recorded lengths hold the longest rows in every
cycle, natural ones do not). It continues so above 1x if 2x and the maximum are no more work. Natural cycles that other
programs disturbed are used only if no other cycle has other lengths, because a disturbed slope is closer than a
assumed one. A slope is never negative, and below 1x never steeper than proportional. If only 1x was measured, time is
proportional to work (to M for generate). s is one factor for all phases, which makes the cycle at the mean work of 1x
take the time of the stated tokens/hour.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import CycleKind, CycleRecord, Phase, Trial
from autotune.domain.measures import phase_seconds
from autotune.statistics.lengths import MAXIMUM, ONCE, TWICE, cycles_at
from autotune.verify.compare_run import CycleShape, longest_rows

ALIKE = 0.02
"""Share by which the work of two cycles must differ to give a slope."""
SINGULAR = 1e-3
"""Two regressors count as one if 1 minus their squared correlation is below this."""

_KINDS = {TWICE: CycleKind.DOUBLE, MAXIMUM: CycleKind.MAXIMUM}
_PASSES = (Phase.LOGPROB.value, Phase.UPDATE.value)


@dataclass(frozen=True)
class CycleWork:
    """Amounts of work of one cycle, which the times of its phases depend on."""

    longest: float
    """Completion tokens of the longest row of each generation, summed."""
    tokens: float
    """Completion tokens of all rows."""
    computed: float
    """Prompt and completion tokens of the update's forward passes, padding included."""

    def minus(self, other: CycleWork) -> CycleWork:
        return CycleWork(self.longest - other.longest, self.tokens - other.tokens, self.computed - other.computed)

    def plus(self, other: CycleWork) -> CycleWork:
        return CycleWork(self.longest + other.longest, self.tokens + other.tokens, self.computed + other.computed)


@dataclass(frozen=True)
class Curve:
    """Seconds of a phase as a piecewise linear function of its work."""

    points: tuple[tuple[float, float], ...]
    """(work, seconds), ascending in work, never falling in seconds; the first point is that of 1x."""
    slope: float = 0.0
    """Seconds per unit of work below the first point, and beyond it if there is no other point."""

    def at(self, work: float) -> float:
        """Returns the seconds at an amount of work, never below zero."""
        w0, t0 = self.points[0]
        if work <= w0 or len(self.points) == 1:
            return max(0.0, t0 + (work - w0) * self.slope)
        place = next((i for i in range(1, len(self.points)) if work <= self.points[i][0]), len(self.points) - 1)
        (w0, t0), (w1, t1) = self.points[place - 1], self.points[place]
        return t0 + (work - w0) * (t1 - t0) / (w1 - w0)


@dataclass(frozen=True)
class LengthPrediction:
    """Predicts a configuration's seconds per cycle, by phase, at given completion and prompt lengths."""

    shape: CycleShape
    tokens_per_hour: float
    """Stated tokens/hour, at the recorded lengths."""
    at_once: CycleWork
    """Mean work of the cycles at 1x."""
    mean_length: float
    """Mean completion tokens of a row at 1x."""
    curves: Mapping[str, Curve]
    weights: tuple[float, float]
    """Seconds of generation per token of the longest rows, and per completion token (a and b)."""
    scale: float
    cycles: Mapping[str, int]
    """Number of cycles behind the prediction, by ``1x``, ``2x``, ``maximum``."""

    def seconds(self, cycle: CycleRecord) -> dict[str, float]:
        """Predicts the seconds by phase at the lengths and rows of ``cycle``; the cycle's own times are not used."""
        return self.seconds_of(work_of(cycle, self.shape))

    def seconds_of(self, work: CycleWork) -> dict[str, float]:
        """Predicts the seconds by phase of an amount of work."""
        each = amounts(work, self.weights)
        return {phase: self.scale * curve.at(each.get(phase, 0.0)) for phase, curve in self.curves.items()}

    @property
    def rests_on(self) -> str:
        """Description of the measured cycles: ``9 cycles at 1x, 3 at 2x, 3 at maximum``."""
        said = [f"{count}{'' if place else ' cycles'} at {at}" for place, (at, count) in enumerate(self.cycles.items())]
        return ", ".join(said)


def work_of(cycle: CycleRecord, shape: CycleShape) -> CycleWork:
    """Returns the amounts of work of one cycle, from its lengths and rows."""
    longest = sum(longest_rows(cycle.lengths, shape)) if cycle.lengths else 0
    return CycleWork(longest, cycle.completion_tokens, cycle.computed_tokens)


def amounts(work: CycleWork, weights: tuple[float, float]) -> dict[str, float]:
    """Returns the amount of work of each phase that depends on lengths."""
    generate = weights[0] * work.longest + weights[1] * work.tokens
    return {
        Phase.GENERATE.value: generate,
        Phase.REWARD.value: work.tokens,
        **dict.fromkeys(_PASSES, work.computed),
    }


def predict_from(
    supporting: Sequence[Trial], tokens_per_hour: float, shape: CycleShape, alike: Sequence[Trial] = ()
) -> LengthPrediction | None:
    """Fits the length model of a stated figure; ``None`` without cycles at the recorded lengths.

    Args:
        supporting: trials of one configuration that give the figure.
        alike: other trials of the configuration. Only their differences are used: the additional time of each at other
            lengths over its own time at 1x.
    """
    once = [c for t in supporting for c in t.speed_cycles()]
    lengths = [n for c in once for n in c.lengths]
    if not lengths or tokens_per_hour <= 0:
        return None
    base, times = _mean_work(once, shape), _mean_phases(once)
    own = {t.number for t in supporting}
    telling = [*supporting, *(t for t in alike if t.number not in own)]
    found = {at: _differences(telling, kind, shape) for at, kind in _KINDS.items()}
    free = _differences(telling, CycleKind.NATURAL, shape)
    every = [difference for group in (free, *found.values()) for difference in group]
    every = every or _differences(telling, CycleKind.NATURAL, shape, disturbed=True)
    weights = _weights(every, base, times.get(Phase.GENERATE.value, 0.0))
    curves = {
        phase: _curve(phase, seconds, base, found, _slope(phase, seconds, base, every, weights), weights)
        for phase, seconds in times.items()
    }
    stated_s = 3600.0 * base.tokens / tokens_per_hour
    counts = {ONCE: len(once), **{at: len(group) for at, group in found.items()}}
    scale = stated_s / sum(times.values())
    return LengthPrediction(shape, tokens_per_hour, base, statistics.fmean(lengths), curves, weights, scale, counts)


_Difference = tuple[CycleWork, dict[str, float]]
"""Work and seconds by phase of a longer cycle, minus the means of the same process at 1x."""


def _differences(
    telling: Sequence[Trial], kind: CycleKind, shape: CycleShape, *, disturbed: bool = False
) -> list[_Difference]:
    """Returns the additional work and seconds of the cycles of one kind over their process's mean at 1x. ``disturbed``
    includes natural cycles that other programs disturbed."""
    found = []
    for trial in telling:
        own = trial.speed_cycles()
        if not own:
            continue
        work, times = _mean_work(own, shape), _mean_phases(own)
        for cycle in cycles_at(trial, kind):
            if cycle.noisy and kind is CycleKind.NATURAL and not disturbed:
                continue
            beyond = {p: cycle.phases.get(p, 0.0) - times.get(p, 0.0) for p in {*times, *cycle.phases}}
            found.append((work_of(cycle, shape).minus(work), beyond))
    return found


def _weights(differences: Sequence[_Difference], base: CycleWork, seconds: float) -> tuple[float, float]:
    """Fits a and b by non-negative least squares to the seconds that generation took beyond 1x.

    If the longest rows are the same in all cycles, assumes that time is proportional to them.
    """
    proportional = seconds / base.longest if base.longest > 0 else 0.0
    points = [(d.longest, d.tokens, times.get(Phase.GENERATE.value, 0.0)) for d, times in differences]
    mm, nn = sum(m * m for m, _, _ in points), sum(n * n for _, n, _ in points)
    mt, nt = sum(m * t for m, _, t in points), sum(n * t for _, n, t in points)
    if mm <= len(points) * (ALIKE * base.longest) ** 2:
        left = sum(n * (t - proportional * m) for m, n, t in points)
        return proportional, max(0.0, left / nn) if nn > 0 else 0.0
    mn = sum(m * n for m, n, _ in points)
    determinant = mm * nn - mn * mn
    found = [(mt / mm, 0.0)]
    found += [(0.0, nt / nn)] if nn > 0 else []
    if determinant > SINGULAR * mm * nn:  # else longest and tokens grew alike, and one of them says it all
        found.append(((mt * nn - nt * mn) / determinant, (nt * mm - mt * mn) / determinant))
    allowed = [pair for pair in found if min(pair) >= 0 and max(pair) > 0]
    error = {w: sum((t - w[0] * m - w[1] * n) ** 2 for m, n, t in points) for w in allowed}
    return min(allowed, key=error.__getitem__, default=(proportional, 0.0))


def _slope(
    phase: str, seconds: float, base: CycleWork, differences: Sequence[_Difference], weights: tuple[float, float]
) -> float:
    start = amounts(base, weights).get(phase, 0.0)
    if start <= 0:
        return 0.0
    beyond = [(amounts(base.plus(d), weights)[phase] - start, times.get(phase, 0.0)) for d, times in differences]
    points = [(work, time) for work, time in beyond if abs(work) > ALIKE * start]
    if not points:
        return seconds / start
    mean = sum(time if work > 0 else -time for work, time in points) / sum(abs(work) for work, _ in points)
    return min(max(mean, 0.0), seconds / start)


def _curve(
    phase: str,
    seconds: float,
    base: CycleWork,
    found: Mapping[str, list[_Difference]],
    slope: float,
    weights: tuple[float, float],
) -> Curve:
    start = amounts(base, weights).get(phase)
    if start is None:
        return Curve(((0.0, seconds),))
    points = [(start, seconds)]
    for group in (found[TWICE], found[MAXIMUM]):
        if not group:
            continue
        beyond = statistics.fmean(times.get(phase, 0.0) for _, times in group)
        work = statistics.fmean(amounts(base.plus(d), weights)[phase] for d, _ in group)
        if work > points[-1][0] * (1 + ALIKE):
            points.append((work, max(points[-1][1], seconds + beyond)))
    return Curve(tuple(points), slope)


def _mean_work(cycles: Sequence[CycleRecord], shape: CycleShape) -> CycleWork:
    each = [work_of(c, shape) for c in cycles]
    return CycleWork(
        statistics.fmean(w.longest for w in each),
        statistics.fmean(w.tokens for w in each),
        statistics.fmean(w.computed for w in each),
    )


def _mean_phases(cycles: Sequence[CycleRecord]) -> dict[str, float]:
    """Returns the mean seconds of a cycle by phase; time outside any phase is already counted as idle."""
    return {phase: seconds / len(cycles) for phase, seconds in phase_seconds(cycles).items()}
