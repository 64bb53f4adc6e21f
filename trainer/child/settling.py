"""Withholds the first timed cycle until the second is measured; if the second is much faster, the first becomes a
warm-up.

One warm-up cycle does not always do all that is done once. On an H100 the cycle after it took 32 s with transformers'
generation, and the next two, with the same lengths, 17 s (``benchmarks/tables/h100-studies-2026-11-22.md``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, List

from .contract import CycleKind, CycleRecord
from .cycles import CyclePlan

UNSETTLED = 0.3
"""Share by which a cycle must be slower than the next to be dropped: above the noise of cycles (13 % on the noisiest
recorded machine), below observed start-up effects (0.9)."""


class Settling:
    """Withholds the first timed cycle of one rank.

    Nothing is withheld if a natural or maximum-length cycle stands between the warm-up and the first timed one.

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
        """Records that may be written now, in order; ``record`` of the cycle just judged may be withheld."""
        timed = record.cycle_kind is CycleKind.RECORDED and record.accepted
        if not self._held:
            if timed and self._is_first():
                self._held.append(record)
            return [] if self._held else [record]
        self._held.append(record)
        return self._compared() if timed else []

    def rest(self) -> List[CycleRecord]:
        """Records still withheld when no further cycle comes."""
        left, self._held = self._held, []
        return left

    def _is_first(self) -> bool:
        protocol, done = self._plan.protocol, self._plan.done
        first = done[CycleKind.RECORDED] == 1 and not done[CycleKind.NATURAL]
        return first and protocol.warmup > 0 and protocol.maximum == 0 and protocol.recorded > 1

    def _compared(self) -> List[CycleRecord]:
        """Compares the withheld cycle with the next; a cycle that replaces a dropped one is compared in turn."""
        first, last = self._held[0], self._held[-1]
        if not self._agree(first.seconds > (1.0 + UNSETTLED) * last.seconds):
            return self.rest()
        if not self._plan.take_back():
            self._held[0] = replace(first, noisy=True)
            return self.rest()
        found = [replace(first, accepted=False), *self._held[1:-1]]
        self._held = [last]
        return found
