"""Charts of one recommended row: the interval of its gain, and the phases of a cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain import Gain
from autotune.wording.numbers import tells_nothing
from autotune.wording.text import clean
from trainer.child.contract import Phase

WIDTH = 1000.0
"""Of every drawing, in its own units."""

KNOWN_PHASES = frozenset(phase.value for phase in Phase)
SMALLEST_SHARE = 0.005


@dataclass(frozen=True)
class PhaseBar:
    """A phase's part of a cycle."""

    name: str
    style: str
    percent: str
    x: str
    width: str


@dataclass(frozen=True)
class GainBar:
    """An interval on a line that has a zero; positions are 0 to ``WIDTH``."""

    zero: str
    low: str
    value: str
    width: str


def gain_bar(gain: Gain | None) -> GainBar | None:
    """Computes places on a line a little wider than the gain's interval and zero; ``None`` for a useless interval."""
    if gain is None:
        return None
    points = (gain.low, gain.value, gain.high)
    if not all(math.isfinite(p) for p in points) or tells_nothing(1.0 + gain.low, 1.0 + gain.high):
        return None
    low, high = min(0.0, *points), max(0.0, *points)
    room = (high - low) * 0.06 or 1.0
    start, span = low - room, (high - low) + 2 * room

    def at(point: float) -> float:
        return WIDTH * (point - start) / span

    width = max(4.0, at(gain.high) - at(gain.low))
    return GainBar(_units(at(0.0)), _units(at(gain.low)), _units(at(gain.value)), _units(width))


def phase_bars(shares: Mapping[str, float]) -> tuple[PhaseBar, ...]:
    """Lists phases worth seeing, largest first, side by side."""
    known = {n: s for n, s in shares.items() if math.isfinite(s) and s > 0}
    total = sum(known.values())
    found, x = [], 0.0
    for name, share in sorted(known.items(), key=lambda item: (-item[1], item[0])):
        width = WIDTH * share / total
        if share >= SMALLEST_SHARE:
            style = name if name in KNOWN_PHASES else "other"
            found.append(PhaseBar(clean(name), style, f"{share:.0%}", _units(x), _units(width)))
        x += width
    return tuple(found)


def _units(value: float) -> str:
    return f"{value:.1f}"
