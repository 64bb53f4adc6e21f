"""Estimates what a lower limit of completions would cut, from recorded lengths; runs no trial. Pure.

A lower ``max_completion_length`` is another algorithm: rows that reach it are cut, and are rewarded or masked as such.
How much faster a cycle would be is not said: that depends on the longest row of each generation, and takes a trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Shares of the rows that are not cut, at least."""
ROWS = 64
"""Fewer lengths say too little about the longest of them."""


@dataclass(frozen=True)
class LowerLimit:
    """A lower limit and what it would cut, by recorded lengths."""

    tokens: int
    rows_cut: float
    """Share of the rows that are longer."""
    tokens_saved: float
    """Share of the completion tokens beyond it."""


def lower_limits(lengths: Sequence[int]) -> tuple[LowerLimit, ...]:
    """A limit at each of ``QUANTILES`` of ``lengths``, lowest first; each once, and none that cuts nothing.

    Args:
        lengths: completion tokens of rows whose model ended them itself; fewer than ``ROWS`` give no limits.
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
