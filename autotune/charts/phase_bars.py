"""Where the time of a cycle goes: stacked bars in seconds, by trial or by cycle."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty, nowhere
from autotune.charts.scales import Bands, Scale, linear
from autotune.charts.svg import Svg, group, label, linked, tag
from autotune.domain import Configuration, CycleRecord, Phase, Trial
from autotune.insights.ranking import chosen, name_of
from autotune.wording.numbers import format_duration

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
    """Trial it leads to."""
    faint: bool = False
    """Left out of every figure."""


def by_trial(trials: Sequence[Trial], baseline: Configuration, href: Href = nowhere) -> Chart:
    """Draws the mean seconds of a speed cycle by phase, for the baseline and the fastest configurations."""
    shown = [t for t in chosen(trials, baseline) if t.speed_cycles()]
    bars = [Bar(name_of(t, baseline), mean_phases(t.speed_cycles()), t.number) for t in shown]
    title = "Seconds of a cycle, by phase"
    if not bars:
        return empty("phases", title, "No speed cycle was measured.")
    return stacked("phases", title, bars, href, "A cycle is as much work in every trial, so shorter is faster.")


def by_cycle(trial: Trial) -> Chart:
    """Draws every cycle of a trial as rank 0 saw it; discarded ones are faint."""
    own = [c for c in trial.cycles if c.rank == 0]
    bars = [Bar(f"{c.index} {c.cycle_kind.value}", c.phases, None, not c.accepted) for c in own[:MOST_CYCLES]]
    title = "Cycles, by phase"
    if not bars:
        return empty("cycles", title, "No cycle was measured.")
    more = f" Of {len(own)} cycles the first {MOST_CYCLES} are drawn." if len(own) > MOST_CYCLES else ""
    left_out = " Faint ones were discarded by the clock guard." if any(b.faint for b in bars) else ""
    return stacked("cycles", title, bars, nowhere, f"Cycles differ in their lengths.{left_out}{more}")


def mean_phases(cycles: Sequence[CycleRecord]) -> dict[str, float]:
    """Returns seconds by phase in the mean of the cycles, known phases first and in their order."""
    names = ordered(name for cycle in cycles for name in cycle.phases)
    return {n: statistics.fmean(max(0.0, c.phases.get(n, 0.0)) for c in cycles) for n in names}


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Returns phases in the order a cycle goes through them, then others by name."""
    found = set(names)
    return (*(n for n in KNOWN if n in found), *sorted(found - set(KNOWN)))


def stacked(name: str, title: str, bars: Sequence[Bar], href: Href, note: str) -> Chart:
    """Draws bars from the left, phases in the order of a cycle."""
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
    return f"{bar.name} {format_duration(total)}, of it {seconds[largest] / total:.0%} {largest}"


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
