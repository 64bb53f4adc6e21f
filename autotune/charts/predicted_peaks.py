"""Chart of measured memory peaks against peaks predicted from earlier trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Href, bottom_axis, drawing, empty, left_axis, nowhere
from autotune.charts.memory_dots import GIB, POOL_WORDS
from autotune.charts.scales import Scale, linear
from autotune.charts.scatter import AS_PREDICTED, FRAME, HEIGHT, NEAR, as_predicted, dot, plain
from autotune.charts.svg import Svg, group, line
from autotune.domain import Pool
from autotune.wording.numbers import counted, format_size, percent, signed_percent

NAME = "predicted-peaks"


@dataclass(frozen=True)
class PredictedPeak:
    """A measured peak and its prediction, in bytes."""

    number: int
    known: int
    """Number of earlier trials that the prediction uses; 0: formulas alone."""
    predicted: float
    low: float
    high: float
    """95 % interval of the prediction: ``low`` to ``high``."""
    measured: float

    @property
    def inside(self) -> bool:
        """True if the interval contains the measured peak."""
        return self.low <= self.measured <= self.high


def predicted_peaks(peaks: Sequence[PredictedPeak], pool: Pool, href: Href = nowhere) -> Chart:
    """Draws measured against predicted peaks, with the line of equality and a band of ±5 %."""
    title = f"Predicted against measured {POOL_WORDS.get(pool, pool.value)}"
    if not peaks:
        return empty(NAME, title, "No trial has been measured through its longest completions yet.")
    near = sum(abs(f.measured / f.predicted - 1) <= NEAR for f in peaks)
    inside = sum(f.inside for f in peaks)
    says = (
        f"Of {counted(len(peaks), 'peak')} {near} within {percent(NEAR)} of what the trials before them predicted, "
        f"{inside} inside the 95 % interval."
    )
    values = [v / GIB for f in peaks for v in (f.low, f.high, f.predicted, f.measured)]
    across = linear([v for v in values if v <= 4 * max(f.measured for f in peaks) / GIB], FRAME.left, FRAME.right)
    up = linear([v for f in peaks for v in (f.predicted / GIB, f.measured / GIB)], FRAME.bottom, FRAME.top)
    parts = [
        left_axis(FRAME, up, plain, "measured, GiB"),
        bottom_axis(FRAME, across, plain, "predicted, GiB"),
        *as_predicted(across, up, 0.0, min(across.high, up.high / (1 + NEAR))),
        *(_point(one, across, up, href) for one in peaks),
    ]
    heads = ("trial", "trials before", "predicted", "95 % interval", "measured", "difference")
    note = "Each is predicted by the memory model from trials before it alone; with none, by formulas."
    rows = tuple(_row(one) for one in peaks)
    return Chart(NAME, title, says, drawing(HEIGHT, parts, says, NAME), heads, rows, AS_PREDICTED, note)


def _point(one: PredictedPeak, across: Scale, up: Scale, href: Href) -> Svg:
    x, y = across.at(one.predicted / GIB), up.at(one.measured / GIB)
    words = f"#{one.number}: {format_size(one.measured)} measured, {_predicted(one)} predicted from {_before(one)}"
    found = dot(x, y, "point ok", words, href(one.number))
    return group([line(across.at(one.low / GIB), y, across.at(one.high / GIB), y, "whisker"), found])


def _row(one: PredictedPeak) -> tuple[str, ...]:
    interval = f"{format_size(one.low)} to {format_size(one.high)}"
    difference = signed_percent(one.measured / one.predicted - 1)
    figures = (format_size(one.predicted), interval, format_size(one.measured), difference)
    return (f"#{one.number}", str(one.known), *figures)


def _predicted(one: PredictedPeak) -> str:
    return f"{format_size(one.predicted)} ({format_size(one.low)} to {format_size(one.high)})"


def _before(one: PredictedPeak) -> str:
    return counted(one.known, "trial") if one.known else "formulas alone"
