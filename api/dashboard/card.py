"""One answer of a study as the page draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain import Configuration, Gain, Recommendation, RecommendationRow
from autotune.wording.numbers import rate, signed_percent
from autotune.wording.sentences import evidence_words, lengths_words, memory_words, over, row_gain_words, speed_words
from autotune.wording.text import changes, clean
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


@dataclass(frozen=True)
class Card:
    """A configuration with its evidence, in words and positions."""

    title: str
    rate: str
    speed: str
    lengths: str
    gain: str
    gain_short: str
    gain_bar: GainBar | None
    over: str
    changes: tuple[tuple[str, str, str], ...]
    evidence: str
    confirmed: bool
    memory: str
    limit: str
    phases: tuple[PhaseBar, ...]


def card(row: RecommendationRow, recommendation: Recommendation, baseline: Configuration) -> Card:
    """A row of the answer."""
    return Card(
        title=clean(row.title),
        rate=rate(row.tokens_per_hour),
        speed=speed_words(row),
        lengths=lengths_words(row),
        gain=row_gain_words(row),
        gain_short=signed_percent(row.gain.value) if row.gain is not None else "",
        gain_bar=gain_bar(row.gain) if row.gain is not None else None,
        over=over(recommendation),
        changes=changes(row.configuration, baseline),
        evidence=evidence_words(row),
        confirmed=row.confirmed,
        memory=memory_words(row),
        limit=clean(row.limit),
        phases=phase_bars(row.phase_shares),
    )


def gain_bar(gain: Gain) -> GainBar | None:
    """Where the interval lies on a line that reaches a little beyond it and zero; ``None`` if it has no place."""
    points = (gain.low, gain.value, gain.high)
    if not all(math.isfinite(p) for p in points) or max(abs(p) for p in points) > 1e6:
        return None
    low, high = min(0.0, *points), max(0.0, *points)
    room = (high - low) * 0.06 or 1.0
    start, span = low - room, (high - low) + 2 * room

    def at(point: float) -> float:
        return WIDTH * (point - start) / span

    width = max(4.0, at(gain.high) - at(gain.low))
    return GainBar(_units(at(0.0)), _units(at(gain.low)), _units(at(gain.value)), _units(width))


def phase_bars(shares: Mapping[str, float]) -> tuple[PhaseBar, ...]:
    """Phases worth seeing, largest first, side by side."""
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
