"""Chart of the highest memory by phase against the limit, by trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty, nowhere
from autotune.charts.phase_bars import ordered, style
from autotune.charts.scales import Bands, Scale, linear
from autotune.charts.svg import Svg, group, label, line, linked, tag
from autotune.domain import Configuration, Pool, Trial
from autotune.domain.measures import peaks_by_phase
from autotune.insights.ranking import chosen, name_of
from autotune.wording.numbers import counted, format_size, percent

GIB = float(1 << 30)
ROW = 26.0
WHOLE = "cycle"
"""Key of the whole cycle's peaks."""
POOL_WORDS = {Pool.HOST: "host memory (PSS of the process tree)", Pool.DEVICE: "GPU memory"}


@dataclass(frozen=True)
class Capacity:
    """The pool that limits a study, and its bytes; ``None`` if no limit is known."""

    pool: Pool
    limit: int | None


def by_phase(trial: Trial, pool: Pool) -> dict[str, int]:
    """Returns the highest bytes by phase over all cycles; for a GPU allocated bytes, as reserved ones do not fall."""
    found = peaks_by_phase(trial.cycles, lambda peaks: peaks.device_allocated) if pool is Pool.DEVICE else {}
    found = found or trial.peaks_by_phase(pool)
    return {name: found[name] for name in ordered(found) if name != WHOLE}


def memory(trials: Sequence[Trial], baseline: Configuration, capacity: Capacity, href: Href = nowhere) -> Chart:
    """Draws the fastest trials and the latest out-of-memory failures: a bar up to the peak, a dot for each phase."""
    pool = capacity.pool
    failed = [t for t in trials if t.outcome is not None and t.outcome.pool is pool and t.peak(pool) is not None][-3:]
    shown = [t for t in (*chosen(trials, baseline), *failed) if t.peak(pool) is not None]
    title = f"Peak of the {POOL_WORDS.get(pool, pool.value)}, by phase"
    if not shown:
        return empty("memory", title, "No peak was measured.")
    frame = Frame(130.0, 840.0, 16.0, 16.0 + ROW * len(shown))
    tops = [t.peak(pool) or 0 for t in shown] + ([capacity.limit] if capacity.limit else [])
    across = linear([v / GIB for v in tops], frame.left, frame.right)
    lines = Bands(len(shown), frame.top, frame.bottom)
    names = ordered(n for t in shown for n in by_phase(t, pool))
    says = _says(shown, capacity)
    parts = [bottom_axis(frame, across, lambda v: f"{v:g}", "GiB")]
    parts += [_row(t, baseline, pool, across, lines.centre(i), href) for i, t in enumerate(shown)]
    if capacity.limit:
        parts.append(_limit(across.at(capacity.limit / GIB), frame))
    rows = tuple(
        (
            name_of(t, baseline) + ("" if t.feasible else " (failed)"),
            format_size(t.peak(pool) or 0),
            *(_size(by_phase(t, pool).get(n)) for n in names),
        )
        for t in shown
    )
    legend = (
        Mark("memory-bar", "whole trial", "━"),
        *(Mark(f"phase-{style(n)}", n, "●") for n in names),
        *((Mark("capacity", f"limit, {format_size(capacity.limit)}", "┃"),) if capacity.limit else ()),
    )
    heads = ("trial", "whole trial", *names)
    return Chart("memory", title, says, drawing(frame.bottom + 42, parts, says, "memory"), heads, rows, legend)


def _says(entries: Sequence[Trial], capacity: Capacity) -> str:
    most = max(entries, key=lambda t: t.peak(capacity.pool) or 0)
    used = most.peak(capacity.pool) or 0
    share = f", {percent(used / capacity.limit)} of the limit" if capacity.limit else ""
    return f"Of {counted(len(entries), 'trial')} #{most.number} used most: {format_size(used)}{share}."


def _size(used: int | None) -> str:
    return "" if used is None else format_size(used)


def _row(trial: Trial, baseline: Configuration, pool: Pool, across: Scale, y: float, href: Href) -> Svg:
    used = trial.peak(pool) or 0
    name = name_of(trial, baseline) + ("" if trial.feasible else " ✕")
    words = f"{name}: {format_size(used)} in all"
    style_ = "memory-bar" if trial.feasible else "memory-bar over"
    width = max(0.0, across.at(used / GIB) - across.start)
    bar = tag("rect", x=across.start, y=y - 3, width=width, height=6, class_=style_)
    parts: list[str] = [linked(bar, "", words)]
    for phase, bytes_ in by_phase(trial, pool).items():
        dot = tag("circle", cx=across.at(bytes_ / GIB), cy=y, r=5, class_=f"dot phase-{style(phase)}")
        parts.append(linked(dot, "", f"{name}: {phase} {format_size(bytes_)}"))
    said = label(across.start - 8, y + 4, name, "row-name", "end")
    where = href(trial.number)
    return group([linked(said, where, f"trial {name}") if where else said, *parts])


def _limit(x: float, frame: Frame) -> Svg:
    words = label(x - 4, frame.top - 2, "limit", "tick", "end")
    return group([line(x, frame.top - 6, x, frame.bottom, "capacity"), words])
