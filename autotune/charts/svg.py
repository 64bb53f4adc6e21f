"""Writes SVG elements as text. Only this module escapes text from outside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from autotune.wording.text import clean

LONGEST = 200
"""Most characters of a foreign text; the rest is cut."""


class Svg(str):
    """Markup that is already escaped; templates insert it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def tag(name: str, *children: str, **attributes: object) -> Svg:
    """Returns an element; children that are not ``Svg`` are escaped. ``class_`` is ``class``, other underscores are
    hyphens; ``None`` and empty attributes are omitted. Raises ``ValueError`` for a number that is not finite."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    inner = "".join(child if isinstance(child, Svg) else text(child) for child in children)
    return Svg(f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>")


def text(words: object) -> Svg:
    """Converts foreign text to one line of at most ``LONGEST`` characters, without control characters."""
    bare = clean(words)
    return Svg(escape(bare if len(bare) <= LONGEST else bare[: LONGEST - 1] + "…", quote=True))


def number(value: float) -> str:
    """Formats a coordinate with one digit after the point. Raises ``ValueError`` if it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} has no place in a drawing")
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def path(points: Iterable[tuple[float, float]]) -> str:
    """Returns the ``d`` attribute of a line through ``points``."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def group(children: Iterable[str], **attributes: object) -> Svg:
    """Returns a ``<g>``."""
    return tag("g", *children, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Svg:
    """Draws a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label(x: float, y: float, words: object, class_: str = "", anchor: str = "") -> Svg:
    """Draws text at a position; ``anchor`` is ``middle`` or ``end``."""
    return tag("text", text(words), x=x, y=y, class_=class_, text_anchor=anchor)


def linked(inner: str, href: str, says: str) -> Svg:
    """Returns ``inner`` with a tooltip, and as a link if ``href`` is set; the Tab key stops only at the whole chart."""
    named = group([tag("title", says), Svg(inner)], class_="mark")
    return tag("a", named, href=href, tabindex=-1) if href else named


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    return escape(str(value), quote=True)
