"""Detects device memory so full that cycle times measure the allocator, not the configuration.

CUDA's caching allocator, refused by the driver, gives back all it has cached and tries again
(``num_alloc_retries`` of ``torch.cuda.memory_stats``). One such retry is an accident of the order things came in;
in two cycles on end it is how the configuration runs, and it is about to run out of memory.
"""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence

from .contract import CycleKind, Phase
from .failures import ThrashError


def thrashing(retries: Sequence[Optional[int]]) -> Optional[str]:
    """The sentence saying that the allocator thrashes; ``None`` if it does not, or nothing is known.

    Args:
        retries: of each timed cycle so far, in order; ``None`` where they cannot be counted (on a CPU).
    """
    if len(retries) < 2:
        return None
    before, last = retries[-2], retries[-1]
    if not before or not last:
        return None
    return "allocator retried %d and %d times in two consecutive cycles" % (before, last)


def worst_phase(retries: Mapping[str, int]) -> Optional[Phase]:
    """The phase with the most retries; the first of several, ``None`` without any."""
    most = max(retries.values(), default=0)
    return next((Phase(name) for name, count in retries.items() if count == most and most > 0), None)


class ThrashWatch:
    """The retries of a trial's timed cycles."""

    def __init__(self) -> None:
        self._seen: List[Optional[int]] = []

    def cycle(self, kind: CycleKind, retries: Optional[Mapping[str, int]]) -> None:
        """Adds a finished cycle.

        Args:
            kind: the warm-up is not timed, and fills the cache for the first time.
            retries: by ``Phase`` value; ``None`` where they cannot be counted.

        Raises:
            ThrashError: this cycle and the one before thrashed, in the phase that did so most.
        """
        if kind is CycleKind.WARMUP:
            return
        self._seen.append(None if retries is None else sum(retries.values()))
        sentence = thrashing(self._seen)
        if sentence is not None:
            raise ThrashError(sentence, worst_phase(retries or {}))
