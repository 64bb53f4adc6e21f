"""Peaks of memory that were predicted from earlier trials, against what was then measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, counted, drawing, empty, left_axis, nowhere
from autotune.charts.memory_dots import GIB, POOL_WORDS
from autotune.charts.scales import Scale, linear
from autotune.charts.svg import Svg, group, line, linked, path, tag
from autotune.domain import Pool
from autotune.wording.numbers import format_size, signed_percent

NAME = "predicted-peaks"
HEIGHT = 330.0
FRAME = Frame(left=78.0, right=840.0, top=26.0, bottom=276.0)
NEAR = 0.05
"""What counts as predicted well, as a share."""


@dataclass(frozen=True)
class Foretold:
    """A measured peak and what was expected of it; bytes."""

    number: int
    known: int
    """Trials that had ended before, which it was predicted from; 0: by formulas alone."""
    predicted: float
    low: float
    high: float
    """95 % interval of the prediction."""
    measured: float

    @property
    def inside(self) -> bool:
        """The interval holds what was measured."""
        return self.low <= self.measured <= self.high


def predicted_peaks(foretold: Sequence[Foretold], pool: Pool, href: Href = nowhere) -> Chart:
    """Measured against predicted peaks; the line is where both are the same, the band 5 % to either side."""
    title = f"Predicted against measured {POOL_WORDS.get(pool, pool.value)}"
    if not foretold:
        return empty(NAME, title, "No trial has been measured through its longest completions yet.")
    near = sum(abs(f.measured / f.predicted - 1) <= NEAR for f in foretold)
    inside = sum(f.inside for f in foretold)
    says = (
        f"Of {counted(len(foretold), 'peak')} {near} within {NEAR:.0%} of what the trials before them predicted, "
        f"{inside} inside the 95 % interval."
    )
    values = [v / GIB for f in foretold for v in (f.low, f.high, f.predicted, f.measured)]
    across = linear([v for v in values if v <= 4 * max(f.measured for f in foretold) / GIB], FRAME.left, FRAME.right)
    up = linear([v for f in foretold for v in (f.predicted / GIB, f.measured / GIB)], FRAME.bottom, FRAME.top)
    parts = [
        left_axis(FRAME, up, _plain, "measured, GiB"),
        bottom_axis(FRAME, across, _plain, "predicted, GiB"),
        *_as_predicted(across, up),
        *(_point(one, across, up, href) for one in foretold),
    ]
    heads = ("trial", "trials before", "predicted", "95 % interval", "measured", "difference")
    legend = (Mark("best", "as predicted", "━"), Mark("band", "within 5 %", "▒"))
    note = "Each is predicted by the memory model from trials before it alone; with none, by formulas."
    rows = tuple(_row(one) for one in foretold)
    return Chart(NAME, title, says, drawing(HEIGHT, parts, says, NAME), heads, rows, legend, note)


def _as_predicted(across: Scale, up: Scale) -> list[Svg]:
    end = min(across.high, up.high / (1 + NEAR))
    band = [(across.at(v), up.at(v * (1 + NEAR))) for v in (0.0, end)]
    band += [(across.at(v), up.at(v * (1 - NEAR))) for v in (end, 0.0)]
    return [
        tag("path", d=path(band) + "Z", class_="band"),
        tag("path", d=path((across.at(v), up.at(v)) for v in (0.0, end)), class_="best"),
    ]


def _point(one: Foretold, across: Scale, up: Scale, href: Href) -> Svg:
    x, y = across.at(one.predicted / GIB), up.at(one.measured / GIB)
    words = f"#{one.number}: {format_size(one.measured)} measured, {_predicted(one)} predicted from {_before(one)}"
    dot = linked(tag("circle", cx=x, cy=y, r=4, class_="point ok"), href(one.number), words)
    return group([line(across.at(one.low / GIB), y, across.at(one.high / GIB), y, "whisker"), dot])


def _row(one: Foretold) -> tuple[str, ...]:
    interval = f"{format_size(one.low)} to {format_size(one.high)}"
    difference = signed_percent(one.measured / one.predicted - 1)
    figures = (format_size(one.predicted), interval, format_size(one.measured), difference)
    return (f"#{one.number}", str(one.known), *figures)


def _predicted(one: Foretold) -> str:
    return f"{format_size(one.predicted)} ({format_size(one.low)} to {format_size(one.high)})"


def _before(one: Foretold) -> str:
    return counted(one.known, "trial") if one.known else "formulas alone"


def _plain(value: float) -> str:
    return f"{value:g}"
