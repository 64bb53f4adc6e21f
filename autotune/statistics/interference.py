"""Upper bound on how much cycles flagged by the clock guard can have changed a stated gain. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotune.domain import Configuration, CycleRecord, Gain, Protocol, Trial
from autotune.statistics import evidence


class Disturbed(NamedTuple):
    """Disturbed cycles behind a gain. They were kept because no repeats were left, and may be slower than undisturbed
    ones."""

    cycles: int
    """Disturbed cycles."""
    of: int
    """All speed cycles."""
    objected: int
    """Disturbed cycles that the clock guard flagged; the others compiled something, or were not warm yet."""
    shift: float
    """Largest share by which they may have changed the gain: summed over the configurations, the largest drift of the
    reference kernel, or share of the CPU used by others, in a disturbed cycle. An estimate, because the guard measures
    at both ends of a cycle only. Infinite if a cycle was disturbed and the guard did not flag it."""

    @property
    def cause(self) -> str:
        return "other programs" if self.objected == self.cycles else "other programs, or what is done but once,"

    @property
    def few(self) -> bool:
        """Whether at least half of the cycles were undisturbed."""
        return 2 * self.cycles <= self.of

    def leaves(self, gain: Gain) -> bool:
        """Whether ``gain`` is larger than the disturbances explain: few cycles were disturbed, or it was measured in
        rounds, where a lasting slowdown cancels, and its lower bound is above ``shift``."""
        return self.few or (gain.pairs > 0 and gain.low > self.shift)


def disturbed(trials: Sequence[Trial], configurations: Iterable[Configuration]) -> Disturbed:
    """Counts the disturbed cycles behind the speeds of ``configurations``."""
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
