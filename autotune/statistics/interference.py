"""How far what the clock guard objected to can have moved the figures a gain rests on; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotune.domain import Configuration, CycleRecord, Gain, Protocol, Trial
from autotune.statistics import evidence


class Disturbed(NamedTuple):
    """Cycles that were kept for want of repeats: their time is what was there, not what the configuration needs."""

    cycles: int
    of: int
    objected: int
    """Of them, those the clock guard objected to; in the others something was compiled, or they were not warm yet."""
    shift: float
    """Share by which they may have moved a gain, as far as the guard sees: for each configuration the largest drift of
    the reference kernel, or share of the CPU that others took, of any of its disturbed cycles. It looks at both ends of
    a cycle and not into it, so this is an estimate. Infinite where it saw nothing."""

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
    moved = sum(max(_moved(how, c) for how, c in group) for group in groups if group)
    return Disturbed(len(objected), len(cycles), sum(objected), math.expm1(moved) if moved < math.inf else math.inf)


def _moved(how: Protocol, cycle: CycleRecord) -> float:
    """Logarithm of what a cycle's time may be off by."""
    if not cycle.noisy:
        return 0.0
    if not how.objects(cycle.drift, cycle.outside_cpu):
        return math.inf
    return math.log1p(max(cycle.drift or 0.0, cycle.outside_cpu or 0.0))
