"""Decides the kind of the next cycle, the length of each of its completions, and whether the first timed cycle counts.
Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from .contract import CycleKind, CycleRecord, Protocol

UNSETTLED = 0.3
"""Share by which a cycle must be slower than the next to be dropped: above the noise of cycles (13 % on the noisiest
recorded machine), below observed start-up effects (0.9)."""


@dataclass
class CyclePlan:
    """Orders a protocol's cycles: warm-up, recorded, natural, maximum, double; natural first if it gives the lengths.

    The recorded cycles, which give the speed, thus have the same prompts in all trials that are compared.

    A disturbed cycle is discarded and repeated at once, at most ``max_repeats`` times over the whole trial. It is not
    repeated if all natural cycles, at least two, were disturbed: such a machine disturbs repeats too.
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
        """Largest number of cycles of the trial, including repeats."""
        p = self.protocol
        return p.warmup + p.natural + p.recorded + p.maximum + p.double + p.max_repeats

    def next(self) -> Optional[CycleKind]:
        """Returns the kind of the next cycle; ``None`` after the last."""
        p, done = self.protocol, self.done
        if self.ended:
            return None
        if done[CycleKind.WARMUP] < p.warmup:
            return CycleKind.WARMUP
        wanted = [(CycleKind.RECORDED, p.recorded), (CycleKind.NATURAL, p.natural)]
        wanted = wanted if p.lengths else wanted[::-1]
        wanted += [(CycleKind.MAXIMUM, p.maximum), (CycleKind.DOUBLE, p.double)]
        return next((kind for kind, count in wanted if done[kind] < count), None)

    def judge(self, kind: CycleKind, outside_cpu: Optional[float], compiled: bool = False) -> Tuple[bool, bool]:
        """Counts a finished cycle and returns (accepted, noisy); ``compiled``: a one-time compilation ran in it.

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
        """Marks a counted recorded cycle for a repeat; returns False if no repeats are left."""
        if self.repeats >= self.protocol.max_repeats:
            return False
        self.repeats += 1
        self.done[CycleKind.RECORDED] -= 1
        return True


class Settling:
    """Withholds the first timed cycle of one rank until the second is measured; if that is much faster, the first
    becomes a warm-up.

    One warm-up cycle does not always contain all one-time work. On an H100 the cycle after it took 32 s with
    transformers' generation, and the next two, with the same lengths, 17 s
    (``benchmarks/tables/h100-studies-2026-11-22.md``).

    Nothing is withheld if a natural cycle is between the warm-up and the first timed one.

    Args:
        plan: plan of the cycles, which adds a cycle for a dropped one.
        agree: returns the common answer of all ranks; called by all ranks after the same cycles.
    """

    def __init__(self, plan: CyclePlan, agree: Callable[[bool], bool]) -> None:
        self._plan = plan
        self._agree = agree
        self._held: List[CycleRecord] = []
        """The withheld cycle, and later cycles that the clock guard has discarded."""

    def pass_on(self, record: CycleRecord) -> List[CycleRecord]:
        """Returns the records that may be written now, in order; the latest ``record`` may be withheld."""
        timed = record.cycle_kind is CycleKind.RECORDED and record.accepted
        if not self._held:
            if timed and self._is_first():
                self._held.append(record)
            return [] if self._held else [record]
        self._held.append(record)
        return self._compared() if timed else []

    def rest(self) -> List[CycleRecord]:
        """Returns the records still withheld when no further cycle comes."""
        left, self._held = self._held, []
        return left

    def _is_first(self) -> bool:
        protocol, done = self._plan.protocol, self._plan.done
        first = done[CycleKind.RECORDED] == 1 and not done[CycleKind.NATURAL]
        return first and protocol.warmup > 0 and protocol.recorded > 1

    def _compared(self) -> List[CycleRecord]:
        """Compares the withheld cycle with the next; a cycle that replaces a dropped one is then compared as well."""
        first, last = self._held[0], self._held[-1]
        if not self._agree(first.seconds > (1.0 + UNSETTLED) * last.seconds):
            return self.rest()
        if not self._plan.take_back():
            self._held[0] = replace(first, noisy=True)
            return self.rest()
        found = [replace(first, accepted=False), *self._held[1:-1]]
        self._held = [last]
        return found


def resample(lengths: Sequence[int], rows: int, seed: int) -> Tuple[int, ...]:
    """Returns ``rows`` completion lengths in tokens: ``lengths`` if their number fits, else evenly spaced quantiles.

    Quantiles keep the distribution, and so the work of a cycle, as close as ``rows`` allows; the seed only decides the
    order.
    """
    if len(lengths) == rows:
        return tuple(lengths)
    ordered = sorted(lengths)
    picked = [ordered[int((i + 0.5) * len(ordered) / rows)] for i in range(rows)]
    _shuffle(picked, "%d/resample" % seed)
    return tuple(picked)


def assign(lengths: Sequence[int], rows: int, seed: int, turn: int) -> Tuple[int, ...]:
    """Returns the completion length, in tokens, of each row of the ``turn``-th recorded cycle.

    Depends only on the arguments: every configuration with the same rows has the same lengths in the same turn, for any
    micro-batch or group size; each turn is another order of the same multiset.
    """
    dealt = list(resample(lengths, rows, seed))
    _shuffle(dealt, "%d/%d" % (seed, turn))
    return tuple(dealt)


def doubled(lengths: Sequence[int], longest: int) -> Tuple[int, ...]:
    """Returns each length doubled, at most ``longest`` tokens, as if the policy had learned longer completions."""
    return tuple(min(2 * length, longest) for length in lengths)


def _shuffle(values: List[int], key: str) -> None:
    random.Random(key).shuffle(values)  # noqa: S311  (a repeatable order is the point)
