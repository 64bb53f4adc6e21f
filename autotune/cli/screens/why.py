"""The reasons of a recommendation below it: limits, each knob's contribution, ruled-out configurations."""

from __future__ import annotations

from rich.console import RenderableType

from autotune.cli.screens.grid import LabelGrid
from autotune.insights.why import RowReasons, Why
from autotune.insights.why_words import knob_lines, ruled_words

MOST_LINES = 12
MOST_RULED = 8


def why_screen(why: Why) -> RenderableType:
    """Shows a block for each row of the recommendation, then the ruled-out configurations."""
    grid = LabelGrid()
    grid.gap()
    for row in why.rows:
        if len(why.rows) > 1:
            grid.add("why", row.title, "bold")
        _add_row(grid, row)
    for place, words in enumerate(why.began):
        grid.add("" if place else "began with", words)
    _add_ruled(grid, why)
    return grid.table


def _add_row(grid: LabelGrid, row: RowReasons) -> None:
    for place, limit in enumerate(row.limits[1:]):
        grid.add("" if place else "no further", limit)
    lines = knob_lines(row)
    for place, line in enumerate(lines[:MOST_LINES]):
        grid.add("" if place else "each knob", line)
    if len(lines) > MOST_LINES:
        grid.add("", f"{len(lines) - MOST_LINES} more in --json")


def _add_ruled(grid: LabelGrid, why: Why) -> None:
    about = "" if why.exact else "about "
    space = f"{about}{why.combinations:,} combinations, {about}{why.legal:,} legal, {why.tried:,} run"
    if not why.ruled_out:
        grid.add("space", space)
        return
    grid.add("ruled out", f"{space}; what ruled out others, with overlaps:")
    for ruled in why.ruled_out[:MOST_RULED]:
        grid.add("", ruled_words(ruled))
    more = len(why.ruled_out) - MOST_RULED
    if more > 0:
        grid.add("", f"{more} more in --json")
