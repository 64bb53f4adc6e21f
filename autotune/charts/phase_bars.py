"""Charts of a cycle's time: stacked bars in seconds, by trial or by cycle, and bars for the recommendation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty, nowhere
from autotune.charts.scales import Bands, Scale, linear
from autotune.charts.svg import Svg, group, label, linked, tag
from autotune.domain import Configuration, CycleRecord, Gain, Phase, Trial
from autotune.insights.ranking import chosen, name_of
from autotune.wording.numbers import format_duration, percent, tells_nothing
from autotune.wording.text import CYCLE_WORDS, clean

KNOWN = tuple(phase.value for phase in Phase)
BAR = 20.0
LEFT, RIGHT, TOP = 130.0, 840.0, 8.0
MOST_CYCLES = 60


@dataclass(frozen=True)
class Bar:
    """A bar of the chart: seconds by phase."""

    name: str
    seconds: Mapping[str, float]
    number: int | None = None
    """Number of the trial that the bar links to."""
    faint: bool = False
    """True for a cycle that is left out of every figure."""


def by_trial(trials: Sequence[Trial], baseline: Configuration, href: Href = nowhere) -> Chart:
    """Draws the mean seconds by phase over the speed cycles, for the baseline and the fastest configurations."""
    shown = [t for t in chosen(trials, baseline) if t.speed_cycles()]
    bars = [Bar(name_of(t, baseline), mean_phases(t.speed_cycles()), t.number) for t in shown]
    title = "Seconds of a cycle, by phase"
    if not bars:
        return empty("phases", title, "No speed cycle was measured.")
    return stacked("phases", title, bars, href, "A cycle is as much work in every trial, so shorter is faster.")


def by_cycle(trial: Trial) -> Chart:
    """Draws every cycle of a trial as rank 0 measured it; discarded cycles are faint."""
    own = [c for c in trial.cycles if c.rank == 0]
    bars = [Bar(f"{c.index} {CYCLE_WORDS[c.cycle_kind]}", c.phases, None, not c.accepted) for c in own[:MOST_CYCLES]]
    title = "Cycles, by phase"
    if not bars:
        return empty("cycles", title, "No cycle was measured.")
    more = f" Of {len(own)} cycles the first {MOST_CYCLES} are drawn." if len(own) > MOST_CYCLES else ""
    left_out = " Faint ones were discarded by the clock guard." if any(b.faint for b in bars) else ""
    return stacked("cycles", title, bars, nowhere, f"Cycles differ in their lengths.{left_out}{more}")


def mean_phases(cycles: Sequence[CycleRecord]) -> dict[str, float]:
    """Returns the mean seconds of the cycles by phase, known phases first in the order of a cycle."""
    names = ordered(name for cycle in cycles for name in cycle.phases)
    return {n: statistics.fmean(max(0.0, c.phases.get(n, 0.0)) for c in cycles) for n in names}


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Returns phases in the order of a cycle, then unknown ones by name."""
    found = set(names)
    return (*(n for n in KNOWN if n in found), *sorted(found - set(KNOWN)))


def stacked(name: str, title: str, bars: Sequence[Bar], href: Href, note: str) -> Chart:
    """Draws horizontal stacked bars, with phases in the order of a cycle."""
    frame = Frame(LEFT, RIGHT, TOP, TOP + len(bars) * (BAR + 6))
    across = linear([sum(_clean(b).values()) for b in bars], frame.left, frame.right)
    lines = Bands(len(bars), frame.top, frame.bottom)
    names = ordered(n for b in bars for n in _clean(b))
    says = "; ".join(_says(b) for b in bars[:4]) + (f"; and {len(bars) - 4} more." if len(bars) > 4 else ".")
    parts = [bottom_axis(frame, across, lambda v: f"{v:g} s", "seconds")]
    parts += [_bar(b, lines.centre(i), across, href) for i, b in enumerate(bars)]
    rows = tuple(
        (b.name, format_duration(sum(_clean(b).values())), *(f"{_clean(b).get(n, 0.0):.2f}" for n in names))
        for b in bars
    )
    return Chart(
        name,
        title,
        says,
        drawing(frame.bottom + 42, parts, says, name),
        ("", "whole", *(f"{n}, s" for n in names)),
        rows,
        tuple(Mark(f"phase-{style(n)}", n) for n in names),
        note,
    )


def style(phase: str) -> str:
    """Returns the class of a phase's colour."""
    return phase if phase in KNOWN else "other"


def _clean(bar: Bar) -> dict[str, float]:
    return {n: s for n, s in bar.seconds.items() if 0.0 < s < 1e9}


def _says(bar: Bar) -> str:
    seconds = _clean(bar)
    total = sum(seconds.values())
    if total <= 0:
        return f"{bar.name} no time"
    largest = max(seconds, key=lambda n: seconds[n])
    return f"{bar.name} {format_duration(total)}, of it {percent(seconds[largest] / total)} {largest}"


def _bar(bar: Bar, middle: float, across: Scale, href: Href) -> Svg:
    parts: list[str] = []
    begun = 0.0
    seconds = _clean(bar)
    for name in ordered(seconds):
        x, end = across.at(begun), across.at(begun + seconds[name])
        begun += seconds[name]
        box = tag(
            "rect",
            x=x,
            y=middle - BAR / 2,
            width=max(0.0, end - x),
            height=BAR,
            class_=f"box phase-{style(name)}" + (" faint" if bar.faint else ""),
        )
        parts.append(linked(box, "", f"{bar.name}: {name} {format_duration(seconds[name])}"))
    parts.append(label(across.at(begun) + 6, middle + 4, format_duration(begun), "tick"))
    name_words = label(LEFT - 8, middle + 4, bar.name, "row-name", "end")
    where = href(bar.number) if bar.number is not None else ""
    return group([linked(name_words, where, f"trial {bar.name}") if where else name_words, *parts])


CARD_WIDTH = 1000.0
"""Width of the drawings in a recommendation's card, in their own units."""

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
    """An interval on a line with a zero mark; positions are 0 to ``CARD_WIDTH``."""

    zero: str
    low: str
    value: str
    width: str


def gain_bar(gain: Gain | None) -> GainBar | None:
    """Computes positions on a line that spans the gain's interval and zero; ``None`` for an uninformative interval."""
    if gain is None:
        return None
    points = (gain.low, gain.value, gain.high)
    if not all(math.isfinite(p) for p in points) or tells_nothing(1.0 + gain.low, 1.0 + gain.high):
        return None
    low, high = min(0.0, *points), max(0.0, *points)
    room = (high - low) * 0.06 or 1.0
    start, span = low - room, (high - low) + 2 * room

    def at(point: float) -> float:
        return CARD_WIDTH * (point - start) / span

    width = max(4.0, at(gain.high) - at(gain.low))
    return GainBar(_units(at(0.0)), _units(at(gain.low)), _units(at(gain.value)), _units(width))


def phase_bars(shares: Mapping[str, float]) -> tuple[PhaseBar, ...]:
    """Lists the phases with a visible share, largest first, as adjacent bars."""
    known = {n: s for n, s in shares.items() if math.isfinite(s) and s > 0}
    total = sum(known.values())
    found, x = [], 0.0
    for name, share in sorted(known.items(), key=lambda item: (-item[1], item[0])):
        width = CARD_WIDTH * share / total
        if share >= SMALLEST_SHARE:
            found.append(PhaseBar(clean(name), style(name), percent(share), _units(x), _units(width)))
        x += width
    return tuple(found)


def _units(value: float) -> str:
    return f"{value:.1f}"
