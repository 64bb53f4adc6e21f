"""Fits text into terminal cells, draws bars that are readable without colour, and rows of labels and wrapped text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from autotune.wording.numbers import cells_for
from autotune.wording.text import clean
from trainer.child.contract import Phase

LABEL_WIDTH = 12

_LETTERS: Mapping[str, tuple[str, str]] = {
    Phase.GENERATE.value: ("G", "blue"),
    Phase.REWARD.value: ("R", "magenta"),
    Phase.LOGPROB.value: ("L", "cyan"),
    Phase.UPDATE.value: ("U", "green"),
    Phase.SYNC.value: ("S", "yellow"),
    Phase.WAIT.value: ("W", "red"),
    Phase.IDLE.value: (".", "dim"),
}

LEGEND = " ".join(f"{letter} {name}" for name, (letter, _) in _LETTERS.items())

SMALLEST_SHARE = 0.005
"""Share of a cycle below which a phase gets no line."""


class LabelGrid:
    """Rows of (label, text), as wide as the console; cuts nothing off."""

    def __init__(self) -> None:
        self.table = Table.grid(padding=0, expand=True)
        self.table.add_column(width=LABEL_WIDTH, no_wrap=True, style="dim")
        self.table.add_column(overflow="fold", ratio=1)

    def add(self, label: str, text: str | Text, style: str = "") -> None:
        """Adds a row. Plain text is cleaned here; ``Text`` must already be clean."""
        self.table.add_row(label, Text(clean(text), style) if isinstance(text, str) else text)

    def block(self, label: str, texts: Iterable[str | Text], style: str = "") -> None:
        """Adds a row for each text; the first has the label."""
        for place, text in enumerate(texts):
            self.add("" if place else label, text, style)

    def gap(self) -> None:
        """Adds an empty line."""
        self.table.add_row("", "")


def fit(text: object, width: int) -> str:
    """Cuts ``clean`` text to at most ``width`` terminal cells, with an ellipsis."""
    safe = clean(text)
    if cell_len(safe) <= width:
        return safe
    return set_cell_size(safe, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def clock_time(at: float, *, today: float | None = None) -> str:
    """Formats local time as ``16:42``; adds the date if it is not the day of ``today``."""
    try:
        moment = time.localtime(at)
    except (OverflowError, ValueError, OSError):
        return "?"
    if today is not None and time.localtime(today)[:3] != moment[:3]:
        return time.strftime("%Y-%m-%d %H:%M", moment)
    return time.strftime("%H:%M", moment)


def bar(share: float, width: int) -> str:
    """Draws a plain bar of ``width`` cells, filled to ``share`` (clamped to 0..1)."""
    filled = round(width * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    return "█" * filled + "░" * (width - filled)


def stacked(phases: Mapping[str, float], width: int) -> Text:
    """Draws one bar of ``width`` cells with a letter for each phase; ``?`` for an unknown phase."""
    names = [*(n for n in _LETTERS if n in phases), *(n for n in phases if n not in _LETTERS)]
    found = Text(no_wrap=True)
    for name, cells in zip(names, cells_for([phases[n] for n in names], width), strict=True):
        letter, style = _LETTERS.get(name, ("?", ""))
        found.append(letter * cells, style)
    return found
