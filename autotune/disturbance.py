"""How far what the clock guard objected to can have moved the figures a gain rests on; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotune import evidence
from autotune.domain import Configuration, CycleRecord, Gain, Protocol, Trial
from autotune.student import t95

Cycles = Sequence[tuple[Protocol, CycleRecord]]
"""Speed cycles of a configuration, each with how it was to be measured."""


class Disturbed(NamedTuple):
    """Cycles that were kept for want of repeats: their time is what was there, not what the configuration needs."""

    cycles: int
    of: int
    objected: int
    """Of them, those the clock guard objected to; in the others something was compiled, or they were not warm yet."""
    shift: float
    """Share by which they may have moved a gain, as far as the guard sees: by how much faster the reference kernel was
    around the cycles of one configuration than around the other's, with what so few readings leave open (95 %); and for
    each configuration the largest share of the CPU that others took. Where readings were not recorded, for each
    configuration the largest drift or share of any of its disturbed cycles. The guard looks at both ends of a cycle and
    not into it, so this is an estimate. Infinite where it saw nothing."""

    @property
    def cause(self) -> str:
        return "other programs" if self.objected == self.cycles else "other programs, or what is done but once,"

    @property
    def few(self) -> bool:
        """Whether at least half of the cycles were undisturbed."""
        return 2 * self.cycles <= self.of

    def leaves(self, gain: Gain) -> bool:
        """Whether ``gain`` can be told from the disturbances: few cycles had any; or it was measured in rounds, which
        take out what lasts, and even its lower bound is more than they may have moved it."""
        return self.few or (gain.pairs > 0 and gain.low > self.shift)


def disturbed(trials: Sequence[Trial], configurations: Iterable[Configuration]) -> Disturbed:
    """Of the speed cycles behind the configurations' figures."""
    held = evidence.feasible(trials)
    groups = [
        [(t.protocol, c) for t in evidence.basis(held.get(one, ())) for c in t.speed_cycles()] for one in configurations
    ]
    cycles = [pair for group in groups for pair in group]
    objected = [how.objects(c.drift, c.outside_cpu) for how, c in cycles if c.noisy]
    apart = _apart(groups)
    if apart is None:
        moved = sum(max(_moved(how, c) for how, c in group) for group in groups if group)
    else:
        moved = apart + sum(max(_taken(how, c) for how, c in group) for group in groups)
    return Disturbed(len(objected), len(cycles), sum(objected), math.expm1(moved) if moved < math.inf else math.inf)


def _apart(groups: Sequence[Cycles]) -> float | None:
    """How far apart the machine's speed may have been while two configurations were measured: the difference of their
    mean logarithms of the reference kernel's seconds, and half of its 95 % interval (Student's t, variance of both
    pooled); ``None`` without two, or where a cycle has no reading."""
    logs = [[math.log(c.reference_seconds) for _, c in group if c.reference_seconds] for group in groups]
    if len(groups) != 2 or any(not one or len(one) < len(group) for one, group in zip(logs, groups, strict=True)):
        return None
    degrees = sum(len(one) - 1 for one in logs)
    if degrees < 1:
        return None
    variance = sum(statistics.pvariance(one) * len(one) for one in logs) / degrees
    difference = abs(statistics.fmean(logs[0]) - statistics.fmean(logs[1]))
    return difference + t95(degrees) * math.sqrt(variance * sum(1 / len(one) for one in logs))


def _taken(how: Protocol, cycle: CycleRecord) -> float:
    """``_moved`` of what a reading beside the cycle cannot show: what others took of the CPU within it."""
    if not cycle.noisy:
        return 0.0
    if not how.objects(cycle.drift, cycle.outside_cpu):
        return math.inf
    return math.log1p(cycle.outside_cpu or 0.0) if how.objects(None, cycle.outside_cpu) else 0.0


def _moved(how: Protocol, cycle: CycleRecord) -> float:
    """Logarithm of what a cycle's time may be off by."""
    if not cycle.noisy:
        return 0.0
    if not how.objects(cycle.drift, cycle.outside_cpu):
        return math.inf
    return math.log1p(max(cycle.drift or 0.0, cycle.outside_cpu or 0.0))
