"""Scatter plot: speed against memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty, left_axis, nowhere
from autotune.charts.memory_dots import GIB, POOL_WORDS
from autotune.charts.scales import Scale, linear
from autotune.charts.svg import Svg, linked, path, tag
from autotune.domain import Pool, Trial
from autotune.insights.ranking import pareto, ranked, speed
from autotune.wording.numbers import format_size, rate

HEIGHT = 330.0
FRAME = Frame(left=78.0, right=840.0, top=26.0, bottom=276.0)
MOST_POINTS = 400
NEAR = 0.05
"""Largest error of a good prediction, as a share."""
AS_PREDICTED = (Mark("best", "as predicted", "━"), Mark("band", "within 5 %", "▒"))
"""Legend of ``as_predicted``."""


@dataclass(frozen=True)
class ScatterPoint:
    """A trial by its peak and its speed."""

    number: int
    x: float
    y: float
    words: str
    front: bool = False


def memory_front(trials: Sequence[Trial], pool: Pool, href: Href = nowhere) -> Chart:
    """Draws tokens/hour against the peak, and joins the points of the Pareto front."""
    title = f"Speed against {POOL_WORDS.get(pool, pool.value)}"
    best = {p.trial for p in pareto(trials, pool)}
    points = []
    for trial in ranked(trials):
        used = trial.peak(pool)
        if used is not None:
            words = f"{rate(speed(trial))} tokens/hour, {format_size(used)}"
            points.append(ScatterPoint(trial.number, used / GIB, speed(trial), words, trial.number in best))
    if not points:
        return empty("pareto", title, "No feasible trial has both a speed and a peak.")
    front = sorted((p for p in points if p.front), key=lambda p: p.x)
    says = _front_words(len(points), front)
    rows = tuple((f"#{p.number}", rate(p.y), format_size(p.x * GIB)) for p in reversed(front))
    across = linear([p.x for p in points], FRAME.left, FRAME.right)
    up = linear([p.y for p in points], FRAME.bottom, FRAME.top)
    parts = [left_axis(FRAME, up, rate, "tokens/hour"), bottom_axis(FRAME, across, plain, "peak, GiB")]
    if len(front) > 1:
        parts.append(tag("path", d=path(_stairs([(across.at(p.x), up.at(p.y)) for p in front])), class_="best"))
    parts += [_point(p, across, up, href) for p in thin(points)]
    beaten = (Mark("many", "beaten by another", "●"),) if len(front) < len(points) else ()
    legend = (Mark("ok", "on the front", "●"), *beaten) if front else ()
    drawn = drawing(HEIGHT, parts, says, "pareto")
    return Chart("pareto", title, says, drawn, ("trial", "tokens/hour", "peak"), rows, legend)


def _front_words(count: int, front: Sequence[ScatterPoint]) -> str:
    if count == 1:
        return f"Only #{front[0].number} has both a speed and a peak so far."
    if len(front) == 1:
        return f"Of {count} configurations #{front[0].number} is the fastest, and none needs less memory."
    return (
        f"Of {count} configurations {len(front)} are on the front: nothing is both faster and smaller than one of them."
    )


def as_predicted(across: Scale, up: Scale, low: float, high: float) -> list[Svg]:
    """Draws the line of equality from ``low`` to ``high``, with a band of ``NEAR`` on both sides."""
    band = [(across.at(v), up.at(v * (1 + NEAR))) for v in (low, high)]
    band += [(across.at(v), up.at(v * (1 - NEAR))) for v in (high, low)]
    same = path((across.at(v), up.at(v)) for v in (low, high))
    return [tag("path", d=path(band) + "Z", class_="band"), tag("path", d=same, class_="best")]


def thin(points: Sequence[ScatterPoint]) -> list[ScatterPoint]:
    """Returns all points of the front, and an even selection of at most ``MOST_POINTS`` of the others."""
    rest = [p for p in points if not p.front]
    return rest[:: max(1, math.ceil(len(rest) / MOST_POINTS))] + [p for p in points if p.front]


def _stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [points[0]]
    for x, y in points[1:]:
        found += [(x, found[-1][1]), (x, y)]
    return found


def _point(point: ScatterPoint, across: Scale, up: Scale, href: Href) -> Svg:
    x, y = across.at(point.x), up.at(point.y)
    style = "point ok" if point.front else "point many-dot"
    return dot(x, y, style, f"#{point.number}: {point.words}", href(point.number))


def dot(x: float, y: float, style: str, words: str, where: str) -> Svg:
    """Draws a point with its tooltip, and a link to ``where`` if given."""
    return linked(tag("circle", cx=x, cy=y, r=4, class_=style), where, words)


def plain(value: float) -> str:
    """Formats a figure of an axis."""
    return f"{value:g}"
