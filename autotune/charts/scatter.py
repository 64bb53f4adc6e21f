"""Points in a plane: speed against memory, or against the share of groups that teach."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty, left_axis, nowhere
from autotune.charts.memory_dots import GIB, POOL_WORDS
from autotune.charts.scales import Scale, linear
from autotune.charts.svg import Svg, group, line, linked, path, tag
from autotune.domain import CycleKind, Pool, Trial
from autotune.insights.ranking import pareto, ranked, speed
from autotune.statistics.distributions import NORMAL95 as Z
from autotune.wording.numbers import counted, format_size, rate

HEIGHT = 330.0
FRAME = Frame(left=78.0, right=840.0, top=26.0, bottom=276.0)
MOST_POINTS = 400
GRID = 48
"""Of more points, one in each of GRID x GRID parts of the plane is drawn."""
ENOUGH_GROUPS = 100
"""Below this, the share of groups that teach is too uncertain to rank on."""
NEAR = 0.05
"""What counts as predicted well, as a share."""
AS_PREDICTED = (Mark("best", "as predicted", "━"), Mark("band", "within 5 %", "▒"))
"""Legend of ``as_predicted``."""


@dataclass(frozen=True)
class ScatterPoint:
    """A trial in the plane; ``low`` and ``high`` are an interval across, where there is one."""

    number: int
    x: float
    y: float
    words: str
    front: bool = False
    low: float | None = None
    high: float | None = None


def memory_front(trials: Sequence[Trial], pool: Pool, href: Href = nowhere) -> Chart:
    """Tokens/hour against the peak; what nothing beats in both is joined."""
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
    return _plane("pareto", title, says, points, ("peak, GiB", plain), ("trial", "tokens/hour", "peak"), rows, href)


def _front_words(count: int, front: Sequence[ScatterPoint]) -> str:
    if count == 1:
        return f"Only #{front[0].number} has both a speed and a peak so far."
    if len(front) == 1:
        return f"Of {count} configurations #{front[0].number} is the fastest, and none needs less memory."
    return (
        f"Of {count} configurations {len(front)} are on the front: nothing is both faster and smaller than one of them."
    )


def teaching_front(trials: Sequence[Trial], href: Href = nowhere) -> Chart:
    """Tokens/hour against the share of groups whose rewards differ, with its interval; few groups rank nobody."""
    title = "Speed against the share of groups that teach"
    points: list[ScatterPoint] = []
    rows: list[tuple[str, ...]] = []
    least = 0
    for trial in ranked(trials):
        found = teaching(trial)
        if found is None:
            continue
        share, low, high, groups = found
        least = groups if not rows else min(least, groups)
        words = f"{rate(speed(trial))} tokens/hour, {share:.0%} of {groups} groups ({low:.0%} to {high:.0%})"
        points.append(ScatterPoint(trial.number, share, speed(trial), words, False, low, high))
        rows.append((f"#{trial.number}", rate(speed(trial)), f"{share:.0%}", f"{low:.0%} to {high:.0%}", str(groups)))
    if not points:
        return empty("pareto", title, "No feasible trial ran at natural lengths, where alone rewards can be read.")
    says = f"{counted(len(points), 'configuration')} with the 95 % interval of their share."
    if least < ENOUGH_GROUPS:
        says += f" Some rest on {least} groups; below {ENOUGH_GROUPS} nothing is ranked on them."
    heads = ("trial", "tokens/hour", "share", "95 % interval", "groups")
    axis = ("share of groups whose rewards differ", _percent)
    return _plane("pareto", title, says, points, axis, heads, tuple(rows[:MOST_POINTS]), href)


def teaching(trial: Trial) -> tuple[float, float, float, int] | None:
    """(share, low, high, groups) of groups whose rewards differ, by Wilson's 95 % interval (JASA 22, 1927)."""
    own = [c for c in trial.cycles if c.cycle_kind is CycleKind.NATURAL and c.rank == 0]
    groups = sum(c.groups for c in own)
    if groups <= 0:
        return None
    share = min(1.0, max(0.0, 1.0 - sum(c.zero_std_groups for c in own) / groups))
    centre = (share + Z * Z / (2 * groups)) / (1 + Z * Z / groups)
    half = Z / (1 + Z * Z / groups) * math.sqrt(share * (1 - share) / groups + Z * Z / (4 * groups * groups))
    return share, max(0.0, centre - half), min(1.0, centre + half), groups


def as_predicted(across: Scale, up: Scale, low: float, high: float) -> list[Svg]:
    """The diagonal from ``low`` to ``high`` on which measured equals predicted, with a band ``NEAR`` to either side."""
    band = [(across.at(v), up.at(v * (1 + NEAR))) for v in (low, high)]
    band += [(across.at(v), up.at(v * (1 - NEAR))) for v in (high, low)]
    same = path((across.at(v), up.at(v)) for v in (low, high))
    return [tag("path", d=path(band) + "Z", class_="band"), tag("path", d=same, class_="best")]


def thin(points: Sequence[ScatterPoint]) -> list[ScatterPoint]:
    """All points, or one for each cell of the plane and every point of the front."""
    if len(points) <= MOST_POINTS:
        return list(points)
    xs, ys = [p.x for p in points], [p.y for p in points]
    wide, tall = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    kept: dict[tuple[int, int], ScatterPoint] = {}
    for point in points:
        place = (int(GRID * (point.x - min(xs)) / wide), int(GRID * (point.y - min(ys)) / tall))
        kept.setdefault(place, point)
    front = [p for p in points if p.front]
    rest = [p for p in kept.values() if not p.front]
    every = max(1, math.ceil(len(rest) / max(1, MOST_POINTS - len(front))))
    return rest[::every] + front


def _plane(
    name: str,
    title: str,
    says: str,
    points: Sequence[ScatterPoint],
    axis: tuple[str, Callable[[float], str]],
    heads: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    href: Href,
) -> Chart:
    spans = [v for p in points for v in (p.x, p.low, p.high) if v is not None]
    across = linear(spans, FRAME.left, FRAME.right, zero=False)
    up = linear([p.y for p in points], FRAME.bottom, FRAME.top)
    front = sorted((p for p in points if p.front), key=lambda p: p.x)
    parts = [left_axis(FRAME, up, rate, "tokens/hour"), bottom_axis(FRAME, across, axis[1], axis[0])]
    if len(front) > 1:
        parts.append(tag("path", d=path(_stairs([(across.at(p.x), up.at(p.y)) for p in front])), class_="best"))
    parts += [_point(p, across, up, href) for p in thin(points)]
    beaten = (Mark("many", "beaten by another", "●"),) if len(front) < len(points) else ()
    legend = (Mark("ok", "on the front", "●"), *beaten) if front else ()
    return Chart(name, title, says, drawing(HEIGHT, parts, says, name), heads, rows, legend)


def _stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [points[0]]
    for x, y in points[1:]:
        found += [(x, found[-1][1]), (x, y)]
    return found


def _point(point: ScatterPoint, across: Scale, up: Scale, href: Href) -> Svg:
    x, y = across.at(point.x), up.at(point.y)
    style = "point ok" if point.front or point.low is not None else "point many-dot"
    found = dot(x, y, style, f"#{point.number}: {point.words}", href(point.number))
    if point.low is None or point.high is None:
        return found
    return group([line(across.at(point.low), y, across.at(point.high), y, "whisker"), found])


def dot(x: float, y: float, style: str, words: str, where: str) -> Svg:
    """A point with its words, and a link where there is one to follow."""
    return linked(tag("circle", cx=x, cy=y, r=4, class_=style), where, words)


def plain(value: float) -> str:
    """A figure of an axis."""
    return f"{value:g}"


def _percent(value: float) -> str:
    return f"{value:.0%}"
