"""Parallel coordinates: a line for each configuration through its knobs' values to its tokens/hour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, drawing, empty, nowhere
from autotune.charts.scales import Bands, linear, logarithmic, thinned
from autotune.charts.svg import Svg, group, label, line, linked, path, tag
from autotune.domain import Trial, TrialState
from autotune.insights.feasibility import cause, has_verdict
from autotune.insights.ranking import ranked, speed
from autotune.wording.numbers import counted, rate
from autotune.wording.text import knob_value, short_name
from search_spaces.configuration import KnobValue

NAME, TITLE = "parallel", "Configurations: knobs and what they give"
HEIGHT = 360.0
FRAME = Frame(left=56.0, right=790.0, top=44.0, bottom=300.0)
MOST_AXES = 12
MOST_LINES = 120
MOST_FAILED = 40
SPEED = "tokens/hour"
MOST_TICKS = 9
FAILED_AT = FRAME.bottom + 26
SPAN = (FRAME.bottom, FRAME.top)

LEGEND = (
    Mark("quarter-4", "fastest quarter", "━"),
    Mark("quarter-3", "second", "━"),
    Mark("quarter-2", "third", "━"),
    Mark("quarter-1", "slowest quarter", "━"),
    Mark("line-failed", "failed", "┅"),
)


@dataclass(frozen=True)
class Axis:
    """An axis of the chart, a knob or the speed: where each value lies, and which are labelled."""

    name: str
    places: Mapping[str, float]
    """Of a knob: value as text -> y."""
    ticks: tuple[tuple[float, str], ...]


def can_be_log(name: str, trials: Sequence[Trial]) -> bool:
    """Whether the knob has several numbers above zero and nothing else."""
    found = {t.configuration.get(name) for t in trials}
    numbers = [v for v in found if isinstance(v, int | float) and not isinstance(v, bool) and v > 0]
    return len(numbers) == len(found) > 1


def parallel(trials: Sequence[Trial], names: Sequence[str], logs: frozenset[str], href: Href = nowhere) -> Chart:
    """The chart.

    Args:
        trials: of one study; one line for each configuration, ``MOST_LINES`` of them, and ``MOST_FAILED`` that failed.
        names: knobs, one axis each, ``MOST_AXES`` at most.
        logs: axes (``tokens/hour`` too) by ratios instead of differences.
        href: where a trial is told of.
    """
    names = list(names)[:MOST_AXES]
    whole = ranked(trials)
    lines, failed = _some(whole, MOST_LINES), _some(_failed(trials), MOST_FAILED)
    if not names or not (lines or failed):
        return empty(NAME, TITLE, "There is nothing to compare yet: no knob differs between finished trials.")
    axes = [_knob_axis(n, [*lines, *failed], n in logs) for n in names]
    speeds = [speed(t) for t in lines]
    up = logarithmic(speeds, *SPAN) if SPEED in logs else linear(speeds, *SPAN, zero=False)
    ends = Axis(SPEED, {}, _apart(tuple((up.at(v), rate(v)) for v in up.ticks(6))))
    xs = Bands(len(names) + 1, FRAME.left - 30, FRAME.right + 50)
    places = [xs.centre(i) for i in range(len(names) + 1)]
    says = _says(len(lines), len(whole), len(failed), names)
    parts = [_line(t, axes, places, FAILED_AT, "line-failed", href) for t in failed]
    for i, t in reversed(list(enumerate(lines))):  # drawn last lies on top: the fastest
        parts.append(_line(t, axes, places, up.at(speed(t)), _quarter(i, len(lines)), href))
    parts += [_axis(a, x) for a, x in zip([*axes, ends], places, strict=True)]
    if failed:
        parts.append(label(places[-1] + 8, FAILED_AT + 4, "failed", "tick"))
    heads = ("trial", *names, SPEED)
    rows = tuple((f"#{t.number}", *_values(t, names), rate(speed(t))) for t in lines)
    rows += tuple((f"#{t.number}", *_values(t, names), _cause(t)) for t in failed)
    seen = {_quarter(i, len(lines)) for i in range(len(lines))} | ({"line-failed"} if failed else set())
    legend = tuple(m for m in LEGEND if m.style in seen)
    return Chart(NAME, TITLE, says, drawing(HEIGHT if failed else HEIGHT - 34, parts, says, NAME), heads, rows, legend)


def _values(trial: Trial, names: Sequence[str]) -> list[str]:
    return [knob_value(trial.configuration.get(n)) for n in names]


def _cause(trial: Trial) -> str:
    return cause(trial.outcome) if trial.outcome is not None else "failed"


def _failed(trials: Sequence[Trial]) -> list[Trial]:
    return [t for t in trials if t.state is TrialState.FAIL and t.kind.is_searched and has_verdict(t)]


def _some(trials: Sequence[Trial], most: int) -> list[Trial]:
    """The first half of ``most`` and then evenly spread ones; all if there are no more."""
    if len(trials) <= most:
        return list(trials)
    kept, rest = list(trials[: most // 2]), trials[most // 2 :]
    wanted = most - len(kept)
    return kept + [rest[i * len(rest) // wanted] for i in range(wanted)]


def _says(lines: int, every: int, failed: int, names: Sequence[str]) -> str:
    some = "" if lines == every else f" of {every}, the fastest {MOST_LINES // 2} among them,"
    if not lines:
        return f"{counted(failed, 'configuration')} failed, over {counted(len(names), 'knob')}; none held."
    also = f" and {failed} that failed" if failed else ""
    return f"{counted(lines, 'configuration')}{some}{also} over {counted(len(names), 'knob')}."


def _quarter(place: int, count: int) -> str:
    return f"quarter-{4 - min(3, 4 * place // max(1, count))}"


def _knob_axis(name: str, trials: Sequence[Trial], log: bool) -> Axis:
    found: dict[str, KnobValue | None] = {}
    for trial in trials:
        value = trial.configuration.get(name)
        found.setdefault(knob_value(value), value)
    numbers = [v for v in found.values() if _is_number(v)]
    if len(numbers) == len(found) > 1:
        amounts = {word: float(v) for word, v in found.items() if isinstance(v, int | float)}
        values = amounts.values()
        by_ratio = log and min(values) > 0
        scale = logarithmic(values, *SPAN) if by_ratio else linear(values, *SPAN, zero=False, room=0.0)
        places = {word: scale.at(v) for word, v in amounts.items()}
    else:
        bands = Bands(len(found), *SPAN)
        places = {word: bands.centre(i) for i, word in enumerate(sorted(found))}
    by_height = sorted(places.items(), key=lambda item: -item[1])
    ticks = tuple((by_height[i][1], by_height[i][0]) for i in thinned(len(by_height), MOST_TICKS))
    return Axis(name, places, _apart(ticks))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _apart(ticks: Sequence[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """Without those whose words would lie on others."""
    kept: list[tuple[float, str]] = []
    for tick in ticks:
        if not kept or abs(tick[0] - kept[-1][0]) >= 13:
            kept.append(tick)
    return tuple(kept)


def _line(trial: Trial, axes: Sequence[Axis], places: Sequence[float], end: float, style: str, href: Href) -> Svg:
    ys = [a.places[knob_value(trial.configuration.get(a.name))] for a in axes]
    points = list(zip(places, [*ys, end], strict=True))
    words = f"{rate(trial.tokens_per_hour)} tokens/hour" if style != "line-failed" else _cause(trial)
    drawn = tag("path", d=path(points), class_=f"coordinate {style}")
    return linked(drawn, href(trial.number), f"#{trial.number}: {words}")


def _axis(axis: Axis, x: float) -> Svg:
    short = axis.name if axis.name == SPEED else short_name(axis.name)
    head = group([tag("title", axis.name), label(x, FRAME.top - 18, short, "axis-title", "middle")])
    parts = [head, line(x, FRAME.top, x, FRAME.bottom, "coordinate-axis")]
    parts += [label(x + 5, y + 4, words, "tick on-line") for y, words in axis.ticks]
    return group(parts, class_="axis")
