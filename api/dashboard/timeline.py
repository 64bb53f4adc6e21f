"""Timeline of a study: for each slot its trials one after another, with start-up, phases, and the time between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty
from autotune.charts.phase_bars import LEFT, RIGHT, ordered, style
from autotune.charts.scales import Scale
from autotune.charts.svg import Svg, group, label, linked, tag
from autotune.domain import Trial
from autotune.insights.usage import trial_use
from autotune.wording.numbers import format_duration, percent

PAUSE_S = 300.0
"""Seconds without any trial above which the gap counts as a pause of the tuner and is left out."""
ROW, BAR, TOP = 30.0, 22.0, 8.0
MOST_PLACES, MOST_TRIALS = 64, 200
"""Most slots and trials that are drawn."""
STARTUP, BETWEEN, GAP = "start-up", "other", "no trial"
NAME, TITLE = "timeline", "Trials over time"


def timeline_chart(trials: Sequence[Trial], places: Mapping[int, str], href: Href) -> Chart:
    """Draws the trials that have begun. ``places``: trial number -> name of its slot, such as ``GPU 3``."""
    begun = [t for t in trials[-MOST_TRIALS:] if t.started_at is not None and _end(t) > t.started_at]
    if not begun:
        return empty(NAME, TITLE, "No trial has measured anything yet.")
    moment = _moments([(t.started_at or 0.0, _end(t)) for t in begun])
    whole_s = max(moment(_end(t)) for t in begun)
    unit_s, unit = (3600.0, "hours") if whole_s > 7200 else (60.0, "minutes")
    lanes = [(place, list(some)) for place, some in groupby(sorted(begun, key=_by(places)), key=_place(places))]
    lanes = lanes[:MOST_PLACES]
    frame = Frame(LEFT, RIGHT, TOP, TOP + len(lanes) * ROW)
    across = Scale(0.0, whole_s / unit_s, frame.left, frame.right)
    parts = [bottom_axis(frame, across, lambda v: f"{v:g}", f"{unit} of the study")]
    for i, (place, some) in enumerate(lanes):
        y = TOP + i * ROW + (ROW - BAR) / 2
        parts.append(label(LEFT - 8, y + BAR / 2 + 4, place, "row-name", "end"))
        parts.append(tag("rect", x=frame.left, y=y, width=frame.right - frame.left, height=BAR, class_="lane"))
        parts += [_trial(t, moment(t.started_at or 0.0) / unit_s, unit_s, across, y, href) for t in some]
    shares = [(place, len(some), *_shares(some, whole_s)) for place, some in lanes]
    seen = {name for _, _, seconds, _ in shares for name in seconds}
    names = tuple(name for name in (STARTUP, *ordered(seen - {STARTUP, BETWEEN, GAP}), BETWEEN) if name in seen)
    says = "; ".join(_sentence(place, seconds) for place, _, seconds, _ in shares[:4])
    rows = tuple(
        (place, str(count), *(percent(seconds.get(name, 0.0)) for name in (*names, GAP)), busy)
        for place, count, seconds, busy in shares
    )
    marks = [Mark("phase-startup", n, "□") if n == STARTUP else Mark(f"phase-{style(n)}", n) for n in names]
    note = "Within a trial each phase is drawn in one piece, in the order of a cycle; empty is a place without a trial."
    note += f" The latest {MOST_TRIALS} of {len(trials)} trials are drawn." if len(trials) > MOST_TRIALS else ""
    heads = ("", "trials", *names, GAP, "GPU busy in cycles")
    return Chart(
        NAME, TITLE, f"{says}.", drawing(frame.bottom + 42, parts, says, NAME), heads, rows, tuple(marks), note
    )


def _place(places: Mapping[int, str]) -> Callable[[Trial], str]:
    return lambda trial: places.get(trial.number) or "machine"


def _by(places: Mapping[int, str]) -> Callable[[Trial], tuple[int, str, float]]:
    """Returns a sort key: by slot, with ``GPU 10`` after ``GPU 9``, then by time."""
    return lambda trial: (len(_place(places)(trial)), _place(places)(trial), trial.started_at or 0.0)


def _end(trial: Trial) -> float:
    """Returns the time at which a trial ended, or, while it runs, at which its last cycle ended."""
    cycles = [c.started + c.seconds for c in trial.cycles]
    return trial.finished_at or max(cycles, default=trial.started_at or 0.0)


def _moments(spans: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Returns a function from a time to seconds since the first trial began, without pauses of the tuner."""
    first = last = min(spans)[0]
    pauses: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if begin - last > PAUSE_S:
            pauses.append((begin, begin - last))
        last = max(last, end)
    return lambda at: at - first - sum(length for begin, length in pauses if at >= begin)


def _seconds(trial: Trial) -> dict[str, float]:
    """Returns the seconds of a trial by part, in drawing order; their sum is the length of the trial."""
    whole = _end(trial) - (trial.started_at or 0.0)
    parts = {STARTUP: sum(trial.startup.values())}
    own = [c for c in trial.cycles if c.rank == 0]
    parts |= {name: sum(c.phases.get(name, 0.0) for c in own) for name in ordered(n for c in own for n in c.phases)}
    factor = min(1.0, whole / (sum(parts.values()) or 1.0))
    parts = {name: seconds * factor for name, seconds in parts.items() if seconds > 0}
    return {**parts, BETWEEN: max(0.0, whole - sum(parts.values()))}


def _shares(trials: Sequence[Trial], whole_s: float) -> tuple[dict[str, float], str]:
    """Returns a slot's shares of the study's time by part, including ``GAP``, and its GPU utilization in cycles."""
    every = [_seconds(t) for t in trials]
    shares = {n: sum(s.get(n, 0.0) for s in every) / whole_s for n in dict.fromkeys(n for s in every for n in s)}
    uses = [(use.whole.gpu.busy, use.whole.seconds) for t in trials if (use := trial_use(t)) is not None]
    known = [(busy, seconds) for busy, seconds in uses if busy is not None and seconds]
    busy = sum(b * s for b, s in known) / sum(s for _, s in known) if known else None
    return {**shares, GAP: max(0.0, 1.0 - sum(shares.values()))}, percent(busy) if busy is not None else "-"


def _sentence(place: str, shares: Mapping[str, float]) -> str:
    cycles = sum(share for name, share in shares.items() if name not in (STARTUP, BETWEEN, GAP))
    starting, gap = shares.get(STARTUP, 0.0), shares[GAP]
    parts = {"of the time in cycles": cycles, "starting up": starting, "without a trial": gap}
    return f"{place}: {', '.join(f'{percent(share)} {words}' for words, share in parts.items())}"


def _trial(trial: Trial, begin: float, unit_s: float, across: Scale, y: float, href: Href) -> Svg:
    boxes = []
    seconds = _seconds(trial)
    for name, length in seconds.items():
        x, end = across.at(begin), across.at(begin + length / unit_s)
        begin += length / unit_s
        shade = "phase-startup" if name == STARTUP else f"phase-{style(name)}"
        box = tag("rect", x=x, y=y, width=max(0.0, end - x), height=BAR, class_=f"box {shade}")
        boxes.append(group([tag("title", f"#{trial.number}: {name} {format_duration(length)}"), box]))
    return linked(group(boxes), href(trial.number), f"trial #{trial.number}, {format_duration(sum(seconds.values()))}")
