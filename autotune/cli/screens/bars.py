"""Bars of where time goes, readable without colour."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from autotune.wording.numbers import cells_for
from trainer.child.contract import Phase

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
"""Phases below this share of a cycle are not worth a line."""


def stacked(phases: Mapping[str, float], width: int) -> Text:
    """Draws one bar of ``width`` cells, a letter for each phase; an unknown phase is ``?``."""
    names = [*(n for n in _LETTERS if n in phases), *(n for n in phases if n not in _LETTERS)]
    found = Text(no_wrap=True)
    for name, cells in zip(names, cells_for([phases[n] for n in names], width), strict=True):
        letter, style = _LETTERS.get(name, ("?", ""))
        found.append(letter * cells, style)
    return found
