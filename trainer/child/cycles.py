"""Decides the kind of the next cycle and the length of each of its completions. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

from .contract import CycleKind, Protocol


@dataclass
class CyclePlan:
    """Walks through a protocol: warm-up, natural, then recorded and maximum cycles in turn (R M R M ...), then double.

    A disturbed cycle is discarded and repeated at once, at most ``max_repeats`` times over the whole trial.
    """

    protocol: Protocol
    done: Dict[CycleKind, int] = field(default_factory=lambda: dict.fromkeys(CycleKind, 0))
    repeats: int = 0
    ended: bool = False
    """Set when the parent says that the recorded cycles made so far are enough."""

    @property
    def longest(self) -> int:
        """Most cycles the trial can take, repeats included."""
        p = self.protocol
        return p.warmup + p.natural + p.recorded + p.maximum + p.double + p.max_repeats

    def next(self) -> Optional[CycleKind]:
        """The kind of the next cycle; ``None`` when the protocol is fulfilled."""
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
        """(accepted, noisy) of a finished cycle, counted. ``compiled``: a compiler took part of it, which it does once.

        Only cycles whose time is reported are worth repeating: a disturbed natural cycle still has true
        lengths and rewards, so it is kept, marked; the warm-up is not timed at all.
        """
        p = self.protocol
        disturbed = kind is not CycleKind.WARMUP and (compiled or p.objects(outside_cpu))
        if disturbed and kind is not CycleKind.NATURAL and self.repeats < p.max_repeats:
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
    """``lengths`` for ``rows`` rows: as they are if they fit, else evenly spaced quantiles of them.

    Quantiles keep the distribution, and with it the work of a cycle, as close as so few rows allow;
    the seed only decides their order.
    """
    if len(lengths) == rows:
        return tuple(lengths)
    ordered = sorted(lengths)
    picked = [ordered[int((i + 0.5) * len(ordered) / rows)] for i in range(rows)]
    _shuffle(picked, "%d/resample" % seed)
    return tuple(picked)


def assign(lengths: Sequence[int], rows: int, seed: int, turn: int) -> Tuple[int, ...]:
    """Completion length of each row of the ``turn``-th recorded cycle.

    Depends on nothing but the arguments, so every configuration with the same rows meets the same
    lengths in the same turn, whatever its micro-batch or group size; each turn is another order of
    the same multiset.
    """
    dealt = list(resample(lengths, rows, seed))
    _shuffle(dealt, "%d/%d" % (seed, turn))
    return tuple(dealt)


def doubled(lengths: Sequence[int], longest: int) -> Tuple[int, ...]:
    """Twice the lengths, none above ``longest``: what a policy that has learned to write more would give."""
    return tuple(min(2 * length, longest) for length in lengths)


def _shuffle(values: List[int], key: str) -> None:
    random.Random(key).shuffle(values)  # noqa: S311  (a repeatable order is the point)
