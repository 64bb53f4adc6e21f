"""Detects device memory so full that cycle times measure the allocator, not the configuration.

If the driver refuses memory, CUDA's caching allocator frees its cache and retries (``num_alloc_retries`` of
``torch.cuda.memory_stats``). One retry may be an accident of the order of allocations; retries in two consecutive
cycles belong to the configuration, which is close to running out of memory.
"""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence

from .contract import CycleKind, Phase
from .failures import ThrashError


def thrashing(retries: Sequence[Optional[int]]) -> Optional[str]:
    """Returns a sentence if the allocator thrashes; ``None`` if it does not, or if unknown.

    ``retries`` are those of each timed cycle so far, in order; ``None`` if they cannot be counted (on a CPU).
    """
    before, last = [None, None, *retries][-2:]
    if not before or not last:
        return None
    return "allocator retried %d and %d times in two consecutive cycles" % (before, last)


def worst_phase(retries: Mapping[str, int]) -> Optional[Phase]:
    """Returns the phase with the most retries, the first of equals; ``None`` without retries."""
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
