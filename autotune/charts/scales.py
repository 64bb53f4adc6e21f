"""Maps values to positions: linear scales with round ticks, and bands for names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DECADE = (1.0, 2.0, 5.0)
MOST_TICKS = 40


@dataclass(frozen=True)
class Scale:
    """Maps values from ``low`` to ``high`` to positions from ``start`` to ``end``; clamps values outside."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Returns the position of a finite value."""
        point = min(self.high, max(self.low, value))
        return self.start + (self.end - self.start) * (point - self.low) / (self.high - self.low)

    def ticks(self, about: int = 5) -> tuple[float, ...]:
        """Returns about ``about`` round values within the scale, ascending."""
        step = _step((self.high - self.low) / max(1, about))
        first = math.ceil(self.low / step - 1e-9)
        count = min(MOST_TICKS, math.floor(self.high / step + 1e-9) - first + 1)
        return tuple((first + i) * step for i in range(count))


def linear(values: Iterable[float], start: float, end: float, *, zero: bool = True, room: float = 0.06) -> Scale:
    """Builds a scale that contains all finite ``values`` with a margin of ``room``, and zero on request."""
    known = [v for v in values if math.isfinite(v)] + ([0.0] if zero else [])
    low, high = min(known, default=0.0), max(known, default=1.0)
    margin = (high - low) * room or abs(high) * room or 1.0
    return Scale(0.0 if zero and low >= 0 else low - margin, high + margin, start, end)


@dataclass(frozen=True)
class Bands:
    """Divides ``start`` to ``end`` into ``count`` equal parts."""

    count: int
    start: float
    end: float

    @property
    def width(self) -> float:
        return (self.end - self.start) / max(1, self.count)

    def centre(self, place: int) -> float:
        """Returns the centre of the part with index ``place``."""
        return self.start + self.width * (place + 0.5)

    def left_edge(self, place: int) -> float:
        """Returns the left edge of the part with index ``place``."""
        return self.start + self.width * place


def _step(rough: float) -> float:
    """Returns the smallest of 1, 2 and 5 times a power of ten that is at least ``rough``."""
    if not math.isfinite(rough) or rough <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    return next((m * size for m in (*DECADE, 10.0) if m * size >= rough * (1 - 1e-9)), 10.0 * size)
