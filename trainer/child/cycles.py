"""Decides the kind of the next cycle and the length of each of its completions. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

from .contract import CycleKind, Protocol


@dataclass
class CyclePlan:
    """Walks through a protocol: warm-up, natural, then recorded and maximum cycles in turn (R M R M ...), then double.

    A disturbed cycle is discarded and repeated at once, at most ``max_repeats`` times over the whole trial, and not at
    all where all natural cycles, two at least, were disturbed: on such a machine a repeat is, too.
    """

    protocol: Protocol
    done: Dict[CycleKind, int] = field(default_factory=lambda: dict.fromkeys(CycleKind, 0))
    repeats: int = 0
    noisy: int = 0
    """Natural cycles that were disturbed."""
    ended: bool = False
    """Whether the parent has ended the recorded cycles."""

    @property
    def longest(self) -> int:
        """Most cycles the trial can take, repeats included."""
        p = self.protocol
        return p.warmup + p.natural + p.recorded + p.maximum + p.double + p.max_repeats

    def next(self) -> Optional[CycleKind]:
        """Returns the kind of the next cycle; ``None`` after the last."""
        p, done = self.protocol, self.done
        if self.ended:
            return None
        if done[CycleKind.WARMUP] < p.warmup:
            return CycleKind.WARMUP
        if done[CycleKind.NATURAL] < p.natural:
            return CycleKind.NATURAL
        recorded, maximum = done[CycleKind.RECORDED], done[CycleKind.MAXIMUM]
        if recorded < p.recorded and (recorded <= maximum or maximum >= p.maximum):
            return CycleKind.RECORDED
        if maximum < p.maximum:
            return CycleKind.MAXIMUM
        return CycleKind.DOUBLE if done[CycleKind.DOUBLE] < p.double else None

    def judge(self, kind: CycleKind, outside_cpu: Optional[float], compiled: bool = False) -> Tuple[bool, bool]:
        """Counts a finished cycle and returns (accepted, noisy); ``compiled``: a compiler ran in it, which happens
        once.

        Only timed cycles are repeated: a disturbed natural cycle has true lengths and rewards, so it is kept and
        marked.
        """
        p, natural = self.protocol, kind is CycleKind.NATURAL
        disturbed = kind is not CycleKind.WARMUP and (compiled or p.objects(outside_cpu))
        self.noisy += natural and disturbed
        in_vain = not compiled and 2 <= self.noisy == self.done[CycleKind.NATURAL]
        if disturbed and not natural and not in_vain and self.repeats < p.max_repeats:
            self.repeats += 1
            return False, False
        self.done[kind] += 1
        return True, disturbed

    def take_back(self) -> bool:
        """Marks a counted recorded cycle to be repeated after all; False if no repeats are left."""
        if self.repeats >= self.protocol.max_repeats:
            return False
        self.repeats += 1
        self.done[CycleKind.RECORDED] -= 1
        return True


def resample(lengths: Sequence[int], rows: int, seed: int) -> Tuple[int, ...]:
    """Returns ``lengths`` for ``rows`` rows: unchanged if the number fits, else evenly spaced quantiles.

    Quantiles keep the distribution, and so the work of a cycle, as close as the rows allow; the seed only decides the
    order.
    """
    if len(lengths) == rows:
        return tuple(lengths)
    ordered = sorted(lengths)
    picked = [ordered[int((i + 0.5) * len(ordered) / rows)] for i in range(rows)]
    _shuffle(picked, "%d/resample" % seed)
    return tuple(picked)


def assign(lengths: Sequence[int], rows: int, seed: int, turn: int) -> Tuple[int, ...]:
    """Returns the completion length of each row of the ``turn``-th recorded cycle.

    Depends only on the arguments: every configuration with the same rows has the same lengths in the same turn, for any
    micro-batch or group size; each turn is another order of the same multiset.
    """
    dealt = list(resample(lengths, rows, seed))
    _shuffle(dealt, "%d/%d" % (seed, turn))
    return tuple(dealt)


def doubled(lengths: Sequence[int], longest: int) -> Tuple[int, ...]:
    """Returns twice the lengths, at most ``longest``, as of a policy that has learned longer completions."""
    return tuple(min(2 * length, longest) for length in lengths)


def _shuffle(values: List[int], key: str) -> None:
    random.Random(key).shuffle(values)  # noqa: S311  (a repeatable order is the point)
