"""Detects memory peaks that rise from cycle to cycle, and may exceed the limit late in a run. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain import CycleRecord, Pool
from autotune.domain.measures import DEVICE_FIGURES, PeakOf, peaks_by_phase
from autotune.statistics.distributions import NORMAL95

LEAST_CYCLES = 8
"""Fewest cycles after the first third; fewer do not distinguish a rise from chance."""
MOST_POINTS = 300
"""Most points whose pairs give slopes; more cycles are grouped in blocks, each represented by its highest peak."""


@dataclass(frozen=True)
class Growth:
    """Trend of one memory pool's peak over a run."""

    pool: Pool
    early: int
    """Highest peak of the first third of the cycles, in bytes."""
    late: int
    """Highest peak of the last third of the cycles, in bytes."""
    slope: float
    """Bytes per cycle after the first third, in which caches and engines settle: the median of the slopes between all
    pairs of cycles (Theil and Sen), which no single long completion moves."""
    low: float
    high: float
    """95 % interval of ``slope`` (Sen, J. Am. Stat. Assoc. 63, 1968), for independent cycles."""
    cycles: int
    """Number of cycles that ``slope`` rests on."""
    limit: int | None
    """Limit of the pool in bytes; ``None``: no limit, or not known."""

    @property
    def rises(self) -> bool:
        """True if the lower end of the slope's interval lies above zero."""
        return self.low > 0.0

    @property
    def cycles_left(self) -> float | None:
        """Cycles until the peak reaches the limit at this slope; ``None`` if it does not rise or has no limit."""
        return max(0.0, self.limit - self.late) / self.slope if self.rises and self.limit is not None else None


def growths(cycles: Sequence[CycleRecord], host_limit: int | None, device_limit: int | None) -> tuple[Growth, ...]:
    """Estimates the growth of memory in each pool over the cycles of one rank, in their order.

    Args:
        cycles: cycles of one kind, because other kinds have other lengths.
        host_limit: bytes for the process tree.
        device_limit: bytes of one device.

    Returns:
        The pools with a peak in every cycle and at least ``LEAST_CYCLES`` cycles after the first third.
    """
    host = [_highest(c, lambda p: p.host) for c in cycles]
    device = next((s for s in ([_highest(c, of) for c in cycles] for of in DEVICE_FIGURES) if None not in s), [])
    found = (_growth(Pool.HOST, host, host_limit), _growth(Pool.DEVICE, device, device_limit))
    return tuple(growth for growth in found if growth is not None)


def _highest(cycle: CycleRecord, of: PeakOf) -> int | None:
    return max(peaks_by_phase([cycle], of).values(), default=None)


def _growth(pool: Pool, peaks: Sequence[int | None], limit: int | None) -> Growth | None:
    seen = [peak for peak in peaks if peak is not None]
    third = len(seen) // 3
    if len(seen) < len(peaks) or len(seen) - third < LEAST_CYCLES:
        return None
    slope, low, high = sen(seen[third:])
    return Growth(pool, max(seen[:third]), max(seen[-third:]), slope, low, high, len(seen) - third, limit)


def sen(values: Sequence[float]) -> tuple[float, float, float]:
    """Estimates the slope of at least two ``values`` over their index. Returns (slope, low, high), a 95 % interval."""
    block = math.ceil(len(values) / MOST_POINTS)
    points = [max(values[i : i + block]) for i in range(0, len(values), block)]
    count = len(points)
    slopes = sorted((points[j] - points[i]) / (j - i) / block for i in range(count) for j in range(i + 1, count))
    # half of the width in ranks, from the variance of Kendall's statistic without ties
    reach = NORMAL95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    first = max(0, math.floor((len(slopes) - reach) / 2.0))
    last = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2.0))
    middle = len(slopes) // 2
    median = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2.0
    return median, slopes[first], slopes[last]
