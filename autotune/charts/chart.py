"""A chart: a drawing, and the same content as a sentence and as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.charts.assets import STYLE
from autotune.charts.scales import Scale
from autotune.charts.svg import Svg, group, label, line, tag
from autotune.wording.text import clean

Href = Callable[[int], str]
"""Function from a trial's number to the address of its page; empty without one."""

WIDTH = 860.0
"""Width of every drawing, in its own units: about pixels on a laptop."""


def nowhere(_: int) -> str:
    """Returns no link."""
    return ""


@dataclass(frozen=True)
class Mark:
    """Entry of the legend: a class of the style sheet, and its meaning."""

    style: str
    words: str
    glyph: str = "■"


@dataclass(frozen=True)
class Chart:
    """A drawing, with the same content as a sentence and as a table for readers who cannot see the drawing."""

    name: str
    """Name of the kind of chart, in lower-case letters and hyphens."""
    title: str
    says: str
    """Content of the drawing, in one sentence."""
    drawing: Svg
    """The drawing; empty if there is nothing to draw, for the reason in ``note``."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[Mark, ...] = ()
    note: str = ""

    def _repr_html_(self) -> str:
        return f"<figure><figcaption>{self.says or self.note}</figcaption>{self.drawing}</figure>"


def empty(name: str, title: str, why: str) -> Chart:
    """Returns a chart without a drawing; ``why`` is the reason that it states."""
    return Chart(name, title, why, Svg(""), (), (), note=why)


ALONE = """:root { color-scheme: light; --paper: #ffffff; --ink: #15202b; --soft: #566370; --line: #dfe4ea; }
.chart { background: var(--paper); font-family: sans-serif; }
"""
"""Style sheet of a drawing outside a page, with the colours that a page would set."""


def file_of(chart: Chart) -> str:
    """Returns the drawing as a separate SVG file; without a drawing, a file with the reason."""
    drawn = chart.drawing or drawing(40.0, [label(12.0, 24.0, chart.note)], chart.says, chart.name)
    head, _, inside = drawn.partition(">")
    style = ALONE + STYLE.read_text(encoding="utf-8")
    return f'{head} xmlns="http://www.w3.org/2000/svg">\n<style>\n{style}</style>\n{inside}\n'


def drawing(height: float, parts: Sequence[str], says: str, name: str) -> Svg:
    """Builds the ``<svg>`` around ``parts``, with accessible name ``says``; role group if it has links, else image."""
    linked = any("<a " in part for part in parts)
    return tag(
        "svg",
        *parts,
        class_=f"chart chart-{name}",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="group" if linked else "img",
        aria_label=clean(says),
    )


@dataclass(frozen=True)
class Frame:
    """The area inside the axes."""

    left: float
    right: float
    top: float
    bottom: float


def left_axis(frame: Frame, scale: Scale, words: Callable[[float], str], title: str) -> Svg:
    """Draws horizontal grid lines at round values, with the values to the left."""
    parts: list[str] = [label(frame.left - 62, frame.top - 10, title, "axis-title")]
    last = ""
    for value in scale.ticks():
        if (said := words(value)) == last:  # figures too coarse for the scale, as of no values at all
            continue
        y, last = scale.at(value), said
        parts.append(line(frame.left, y, frame.right, y, "grid"))
        parts.append(label(frame.left - 8, y + 4, said, "tick", "end"))
    return group(parts, class_="axis", aria_hidden="true")


def bottom_axis(frame: Frame, scale: Scale, words: Callable[[float], str], title: str, about: int = 7) -> Svg:
    """Draws vertical grid lines at round values, with the values below."""
    middle = (frame.left + frame.right) / 2
    parts: list[str] = [label(middle, frame.bottom + 34, title, "axis-title", "middle")] if title else []
    for value in scale.ticks(about):
        if said := words(value):  # nothing is said of half a trial
            x = scale.at(value)
            parts.append(line(x, frame.top, x, frame.bottom, "grid"))
            parts.append(label(x, frame.bottom + 16, said, "tick", "middle"))
    return group(parts, class_="axis", aria_hidden="true")
