"""Recognises timed cycles at a trial's start that were still a warm-up."""

from __future__ import annotations

from collections.abc import Sequence

UNSETTLED = 0.3
"""By how much more than the slowest later cycle each of the first has to take; the limit of ``trainer.child.settling``,
which sees two cycles at a time and only those that no other kind of cycle preceded."""
LEAST_CYCLES = 3
"""With two it is not known which of them is the odd one."""


def still_warming(costs: Sequence[float]) -> int:
    """Number of first cycles that were still a warm-up; at most half of them.

    A steady process loses a cycle so in 0.2 % of the trials of benchmarks/tables/search-cpu-*.jsonl.gz
    (``python -m benchmarks.intervals``); that one cycle is slow by chance is as likely for the last as for the first.

    Args:
        costs: seconds per token of each timed cycle, in order.
    """
    if len(costs) < LEAST_CYCLES:
        return 0
    for first in range(len(costs) // 2, 0, -1):
        slowest_later = max(costs[first:])
        if slowest_later > 0.0 and min(costs[:first]) > (1.0 + UNSETTLED) * slowest_later:
            return first
    return 0
