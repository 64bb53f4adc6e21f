"""Charts of one recommended row: the interval of its gain, the phases of a cycle, and shares of changed knobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, bottom_axis, drawing, empty
from autotune.charts.scales import Bands, linear
from autotune.charts.svg import label, line, linked, tag
from autotune.domain import Gain
from autotune.insights.why import range_words, share_words, summary_words
from autotune.statistics.knob_shares import KnobShares
from autotune.wording.numbers import tells_nothing
from autotune.wording.text import clean
from trainer.child.contract import Phase

ROW = 24.0
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


def knob_chart(shares: KnobShares | None) -> Chart:
    """Draws the share of each changed knob in the first answer's gain, with its interval where that is of use."""
    title = "What each changed knob contributes"
    if shares is None:
        return empty("knobs", title, "No knob is changed, or what it was changed from has no figure.")
    narrow = [share for share in shares.shares if not tells_nothing(1.0 + share.low, 1.0 + share.high)]
    frame = Frame(230.0, 800.0, 6.0, 6.0 + ROW * max(1, len(narrow)))
    lines = Bands(len(narrow), frame.top, frame.bottom)
    across = linear([end for share in narrow for end in (share.low, share.high)], frame.left, frame.right)
    parts = [bottom_axis(frame, across, lambda v: f"{v:+.0%}", "", 5)]
    for place, share in enumerate(narrow):
        y, ends = lines.centre(place), sorted((across.at(0.0), across.at(share.value)))
        bar = tag("rect", x=ends[0], y=y - 7, width=max(1.0, ends[1] - ends[0]), height=14, class_="share")
        reach = line(across.at(share.low), y, across.at(share.high), y, "anchor")
        parts.append(linked(bar + reach, "", share_words(shares, share)))
        more = f" with {len(share.knobs) - 1} more" if share.knobs[1:] else ""
        parts.append(label(frame.left - 8, y + 4, share.knobs[0] + more, "row-name", "end"))
    says = f"{summary_words(shares).capitalize()}."
    rows = tuple((", ".join(share.knobs), range_words(share)) for share in shares.shares)
    drawn = drawing(frame.bottom + 26, parts, says, "knobs")
    return Chart("knobs", title, says, drawn, ("knob", "share"), rows, note="By one model; intervals are 95 % ones.")
