"""Estimates from recorded lengths how much a lower limit of completions would cut; runs no trial. Pure.

A lower ``max_completion_length`` is another algorithm: rows that reach it are cut, and rewarded or masked as such. The
gain in speed depends on the longest row of each generation, and takes a trial to measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantiles of the lengths that are examined as limits: shares of rows that are not cut."""
ROWS = 64
"""Fewest lengths; fewer do not show the longest ones."""


@dataclass(frozen=True)
class LowerLimit:
    """A lower limit of completions and the share that it cuts, by recorded lengths."""

    tokens: int
    rows_cut: float
    """Share of the rows that are longer than ``tokens``."""
    tokens_saved: float
    """Share of the completion tokens beyond the limit."""


def lower_limits(lengths: Sequence[int]) -> tuple[LowerLimit, ...]:
    """Returns a limit at each of ``QUANTILES`` of ``lengths``, lowest first, without duplicates; each cuts something.

    Args:
        lengths: completion tokens of rows that the model ended itself; fewer than ``ROWS`` give no limits.
    """
    ordered, total = sorted(lengths), sum(lengths)
    if len(ordered) < ROWS or total <= 0:
        return ()
    at = sorted({ordered[min(len(ordered), max(1, math.ceil(q * len(ordered)))) - 1] for q in QUANTILES})
    found = []
    for limit in at:
        longer = [n - limit for n in ordered if n > limit]
        if longer:
            found.append(LowerLimit(limit, len(longer) / len(ordered), sum(longer) / total))
    return tuple(found)
