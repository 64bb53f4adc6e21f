"""Ratios that were measured in turns, with their interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autotune.statistics.distributions import t95


def interval(logs: Sequence[float]) -> tuple[float, float, float]:
    """Returns (ratio, low, high) of the logarithms of rounds: Student's t, 95 %, two-sided; the ends are NaN of one."""
    middle = statistics.fmean(logs)
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)
