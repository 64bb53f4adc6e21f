"""Bars of where time goes, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.text import Text

from autotune.cli.screens.text import bar
from autotune.wording.numbers import cells_for
from autotune.wording.text import clean
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
    """One bar of ``width`` cells, a letter for each phase; a phase we do not know is ``?``."""
    names = [*(n for n in _LETTERS if n in phases), *(n for n in phases if n not in _LETTERS)]
    found = Text(no_wrap=True)
    for name, cells in zip(names, cells_for([phases[n] for n in names], width), strict=True):
        letter, style = _LETTERS.get(name, ("?", ""))
        found.append(letter * cells, style)
    return found


def phase_lines(shares: Mapping[str, float], width: int = 30) -> Text:
    """A line for each phase worth one, largest first: name, bar, percent."""
    worth = [(n, s) for n, s in shares.items() if math.isfinite(s) and s >= SMALLEST_SHARE]
    lines = [
        Text.assemble(f"{clean(name):<9}", (bar(share, width), _LETTERS.get(name, ("?", ""))[1]), f" {share:4.0%}")
        for name, share in sorted(worth, key=lambda item: (-item[1], item[0]))
    ]
    return Text("\n").join(lines)
