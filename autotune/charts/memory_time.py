"""Chart of memory over the time of an attempt, with its limit and the phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from autotune.charts.chart import Chart, Frame, Mark, bottom_axis, drawing, empty, left_axis
from autotune.charts.memory_dots import GIB, Capacity
from autotune.charts.phase_bars import KNOWN, ordered, style
from autotune.charts.scales import Scale, linear
from autotune.charts.svg import Svg, label, line, linked, path, tag
from autotune.documents import memory_timeline
from autotune.documents.memory_timeline import MemoryTimeline, Point
from autotune.domain import Pool
from autotune.wording.numbers import format_duration, format_size, percent
from trainer.child.contract import StartupPart

NAME, TITLE = "memory-time", "Memory over time"
FRAME = Frame(left=74.0, right=840.0, top=26.0, bottom=220.0)
MOST_ROWS = 60
"""Most rows of each series in the table."""
FINE_S = 0.25
"""Length of an interval in seconds up to which it needs no explanation, because it is too short to see."""
STARTING, OTHER = "start-up", "other"

_PARTS = frozenset(part.value for part in StartupPart) | {""}
_NAMES = {Pool.HOST: "process tree", Pool.DEVICE: "fullest GPU"}
_LIMITS = {Pool.HOST: "limit of the process tree", Pool.DEVICE: "memory of a GPU"}
_STYLES = {Pool.HOST: "of-host", Pool.DEVICE: "of-device"}
_GLYPHS = {Pool.HOST: "━", Pool.DEVICE: "┅"}

Series = Mapping[Pool, tuple[Point, ...]]
"""Series with points, in order of time."""


@dataclass(frozen=True)
class Band:
    """Consecutive points of one phase of one cycle."""

    start: float
    """Begin of the band in seconds."""
    end: float
    """End of the band in seconds, where the next one begins."""
    highest: Point


def over_time(timeline: MemoryTimeline | None, capacity: Capacity) -> Chart:
    """Draws a line for each series, and a band behind it for each phase. A ``timeline`` of ``None`` has no records."""
    if timeline is None or not timeline.host:
        return empty(NAME, TITLE, "No memory over time was written down, or not yet.")
    series: Series = {Pool.HOST: timeline.host} | ({Pool.DEVICE: timeline.device} if timeline.device else {})
    end = max(points[-1].seconds for points in series.values())
    across = Scale(0.0, max(end, 1.0), FRAME.left, FRAME.right)
    tops = [point.used / GIB for points in series.values() for point in points]
    up = linear([*tops, *([capacity.limit / GIB] if capacity.limit else [])], FRAME.bottom, FRAME.top)
    says, shown = _says(series, capacity), bands(timeline.host, end)
    parts = [
        *(_band(band, across) for band in shown),
        left_axis(FRAME, up, lambda v: f"{v:g}", "GiB"),
        bottom_axis(FRAME, across, lambda v: f"{v:g}", "seconds since the attempt began"),
        *_limit(capacity, up),
        *(mark for pool, points in series.items() for mark in _line(pool, points, across, up)),
    ]
    return Chart(
        NAME,
        TITLE,
        says,
        drawing(FRAME.bottom + 42, parts, says, NAME),
        ("after", "phase", *(_NAMES[pool] for pool in series)),
        _rows(series),
        _legend(shown, series, capacity),
        _note(series),
    )


def bands(points: Sequence[Point], end: float) -> tuple[Band, ...]:
    """Returns the phases in order. Each ends where the next one begins, the last at ``end`` seconds."""
    runs = [tuple(run) for _, run in groupby(points, key=lambda point: (point.phase, point.cycle))]
    starts = [run[0].seconds for run in runs]
    ends = [*starts[1:], end]
    return tuple(
        Band(start, stop, max(run, key=lambda point: point.used))
        for start, stop, run in zip(starts, ends, runs, strict=True)
    )


def kind(phase: str) -> str:
    """Returns the legend entry of a phase."""
    return phase if phase in KNOWN else STARTING if phase in _PARTS else OTHER


def _band(band: Band, across: Scale) -> Svg:
    x, phase = across.at(band.start), band.highest.phase
    box = tag(
        "rect",
        x=x,
        y=FRAME.top,
        width=max(0.0, across.at(band.end) - x),
        height=FRAME.bottom - FRAME.top,
        class_=f"stage phase-{style(phase)}",
    )
    when = f"{format_duration(band.start)} to {format_duration(band.end)}"
    return linked(box, "", f"{when}: {_phase(band.highest)}, at most {format_size(band.highest.used)}")


def _limit(capacity: Capacity, up: Scale) -> list[Svg]:
    if not capacity.limit:
        return []
    y = up.at(capacity.limit / GIB)
    words = label(FRAME.right - 4, y - 5, "limit", "tick", "end")
    return [line(FRAME.left, y, FRAME.right, y, "capacity"), words]


def _line(pool: Pool, points: Sequence[Point], across: Scale, up: Scale) -> list[Svg]:
    """Draws a line with a dot at its highest point."""
    places = [(across.at(point.seconds), up.at(point.used / GIB)) for point in points]
    top = max(points, key=lambda point: point.used)
    dot = tag("circle", cx=across.at(top.seconds), cy=up.at(top.used / GIB), r=4, class_=f"dot {_STYLES[pool]}")
    words = f"highest of the {_NAMES[pool]}: {format_size(top.used)} {memory_timeline.moment_words(top)}"
    return [tag("path", d=path(places), class_=f"line {_STYLES[pool]}"), linked(dot, "", words)]


def _says(series: Series, capacity: Capacity) -> str:
    said = []
    for pool, points in series.items():
        if (top := memory_timeline.peak(points)) is not None:
            limit = capacity.limit if capacity.pool is pool else None
            share = f", {percent(top.used / limit)} of the limit" if limit else ""
            said.append(
                f"the {_NAMES[pool]} held most {memory_timeline.moment_words(top)}: {format_size(top.used)}{share}"
            )
    words = "; ".join(said)
    return f"{words[:1].upper()}{words[1:]}."


def _phase(point: Point) -> str:
    return memory_timeline.phase_words(point) or STARTING


def _rows(series: Series) -> tuple[tuple[str, ...], ...]:
    """Returns the rows of the table in order of time; each figure is in the column of its series."""
    points = [(point, pool) for pool, every in series.items() for point in memory_timeline.thinned(every, MOST_ROWS)]
    points.sort(key=lambda found: found[0].seconds)
    return tuple(
        (
            f"{point.seconds:.1f} s",
            _phase(point),
            *(format_size(point.used) if column is pool else "" for column in series),
        )
        for point, pool in points
    )


def _legend(entries: Sequence[Band], series: Series, capacity: Capacity) -> tuple[Mark, ...]:
    lines = [Mark(_STYLES[pool], _NAMES[pool], _GLYPHS[pool]) for pool in series]
    if capacity.limit:
        lines.append(Mark("capacity", f"{_LIMITS[capacity.pool]}, {format_size(capacity.limit)}", "┃"))
    names = ordered(kind(band.highest.phase) for band in entries)
    return (*lines, *(Mark(f"phase-{style(name)}", name) for name in names))


def _note(series: Series) -> str:
    each = memory_timeline.stretch(series[Pool.HOST][-1].seconds, memory_timeline.MOST_POINTS)
    notes = []
    if each > FINE_S:
        notes.append(
            f"A point is the highest of about {format_duration(each)}, its band the phase it was in then; what was "
            "shorter may have none."
        )
    if any(len(points) > MOST_ROWS for points in series.values()):
        notes.append("The table has the highest of longer stretches of time.")
    return " ".join(notes)
