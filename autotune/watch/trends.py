"""Trends of a run's lengths and memory, and the step at which memory runs out. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.insights.growth import sen
from autotune.statistics.distributions import NORMAL95
from autotune.watch.series import Step

WARMING = 2
"""Number of first steps that are ignored: engines start, kernels are compiled, allocators fill."""
FEWEST = 20
"""Fewest steps for a trend: the longest completion of a step varies by a third from step to step."""
FEWEST_RECORDS, WIDENING = 5, 0.2
"""Fewest record lengths (each longer than all before) for a fit of memory, and the least relative increase from the
first to the last; with less, the slope is too uncertain to extrapolate."""
STRAIGHT = 0.8
"""Least R² of that fit; below it, memory depends on something that the log lacks."""


@dataclass(frozen=True)
class Trend:
    """Straight line fitted to a metric over the later steps."""

    step: int
    """Last step."""
    level: float
    """Value of the line at ``step``."""
    slope: float
    """Change per step: the median of the slopes between all pairs (Theil-Sen)."""
    low: float
    high: float
    """95 % interval of ``slope``: ``low`` to ``high``."""
    reach: float
    """Largest distance of a value above the line."""

    @property
    def rises(self) -> bool:
        """True if the lower end of the slope's interval lies above zero."""
        return self.low > 0.0

    def record_at(self, step: float, slope: float | None = None) -> float:
        """Returns the highest value to expect by ``step``."""
        return self.level + self.reach + (self.slope if slope is None else slope) * (step - self.step)

    def step_of(self, record: float, slope: float) -> float:
        """Returns the step by which to expect ``record`` at the given slope; infinite if never."""
        missing = record - self.level - self.reach
        return self.step + (max(0.0, missing) / slope if slope > 0.0 else 0.0 if missing <= 0.0 else math.inf)


def trend(steps: Sequence[Step], figure: str) -> Trend | None:
    """Fits a metric's trend; ``None`` with fewer than ``FEWEST`` steps that have it.

    Lengths grow and then level off: the last quarter is fitted if it rises less than the last half.
    """
    known = [(s.number, value) for s in steps[WARMING:] if (value := getattr(s, figure)) is not None]
    if len(known) < FEWEST:
        return None
    half, quarter = (_line(known[-max(FEWEST, len(known) // part) :]) for part in (2, 4))
    flattens = not quarter.rises or quarter.high < half.slope
    return quarter if half.rises and flattens else half


def _line(points: Sequence[tuple[int, float]]) -> Trend:
    last, spacing = points[-1][0], (points[-1][0] - points[0][0]) / (len(points) - 1)
    slope, low, high = (each / spacing for each in sen([value for _, value in points]))
    levels = [value - slope * (number - last) for number, value in points]
    level = statistics.median(levels)
    return Trend(last, level, slope, low, high, max(levels) - level)


@dataclass(frozen=True)
class MemoryLine:
    """Memory as a linear function of the longest completion so far: a constant part, and a part proportional to the
    length."""

    rest: float
    """Bytes at length 0."""
    each: float
    """Bytes per token of the longest completion."""
    spread: float
    """Standard deviation around the line, in bytes."""

    def lengths_at(self, limit: float) -> tuple[float, float, float]:
        """Returns the longest completion that fits in ``limit`` bytes, with a 95 % interval."""
        middle, reach = (limit - self.rest) / self.each, NORMAL95 * self.spread / self.each
        return middle, middle - reach, middle + reach

    def share_that_fits(self, longest: float, limit: float) -> float:
        """Returns the share of a micro-batch's completions that fits at a length; memory grows with their number."""
        return (limit - self.rest - NORMAL95 * self.spread) / (self.each * longest)


def memory_line(steps: Sequence[Step]) -> MemoryLine | None:
    """Fits memory over the longest completion so far; ``None`` if they do not correlate in the log."""
    records: dict[float, float] = {}
    longest = 0.0
    for step in steps[WARMING:]:
        longest = max(longest, step.longest or 0.0)
        if step.memory is not None and step.longest is not None:
            records[longest] = max(records.get(longest, 0.0), step.memory)
    if len(records) < FEWEST_RECORDS or max(records) < (1.0 + WIDENING) * min(records):
        return None
    lengths, bytes_ = list(records), list(records.values())
    if len(set(bytes_)) < FEWEST_RECORDS or statistics.correlation(lengths, bytes_) ** 2 < STRAIGHT:
        return None
    each, rest = statistics.linear_regression(lengths, bytes_)
    away = [b - rest - each * n for n, b in records.items()]
    return MemoryLine(rest, each, math.sqrt(sum(a * a for a in away) / (len(away) - 2))) if each > 0.0 else None
