"""What the search is meant to reach on every table, set before any was recorded, and whether it does. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.search.arms import FILTER, OURS
from benchmarks.search.replay import FIRST, Course, Interval, difference
from benchmarks.search.report import AT, HALF, Line

GOALS = {0.10: 4.0, 0.05: 10.0, 0.02: 30.0}
"""Share missing -> trials."""
OOMS, LOST = 2.0, 0.05
TIMES_PEER = 2.0
WRONG, WRONG_PEER = "grey-wrong", "gp" + FILTER
"""The prior turned round, and whom it may not be worse than."""


@dataclass(frozen=True)
class Target:
    """One thing to reach."""

    name: str
    figure: str
    limit: str
    met: bool | None
    """``None``: so many seeds do not tell."""

    @property
    def word(self) -> str:
        return "open" if self.met is None else "pass" if self.met else "MISS"


def targets(lines: Sequence[Line], courses: Sequence[Course]) -> list[Target]:
    """Of one table; only those whose arms were run.

    Args:
        lines: of the table.
        courses: of the same table.
    """
    ours = next((line for line in lines if line.arm == OURS), None)
    found = [] if ours is None else _of_ours(ours)
    wrong, peer = (_lacks(courses, arm) for arm in (WRONG, WRONG_PEER))
    seeds = sorted(set(wrong) & set(peer))
    if seeds:
        away = difference([wrong[s] for s in seeds], [peer[s] for s in seeds], np.random.default_rng(0))
        found.append(_not_worse(away))
    return found


def _of_ours(line: Line) -> list[Target]:
    found = []
    for one, (share, limit) in zip(line.trials, GOALS.items(), strict=True):
        shown = "not reached" if math.isinf(one.middle) else f"{one.middle:g}"
        found.append(Target(f"trials to {share:.0%}", shown, f"<= {limit:g}", one.middle <= limit))
    found += [
        Target(f"OOMs in {FIRST} trials", f"{line.ooms:.1f}", f"<= {OOMS:g}", line.ooms <= OOMS),
        Target("seconds lost to them", f"{line.lost:.1%}", f"<= {LOST:.0%}", line.lost <= LOST),
    ]
    if line.against is not None:
        figure = f"{line.against.middle:.2f} x fewer than {line.peer}"
        name = f"trials to {HALF:.0%} of the best peer"
        found.append(Target(name, figure, f">= {TIMES_PEER:g} x", line.against.middle >= TIMES_PEER))
    return found


def _not_worse(away: Interval) -> Target:
    figure = f"{100 * away.middle:+.1f} points ({100 * away.low:+.1f} to {100 * away.high:+.1f})"
    met = True if away.middle <= 0.0 else None if away.low <= 0.0 else False
    return Target(f"{WRONG} lacks over {WRONG_PEER} at {AT}", figure, "<= 0, mean over seeds", met)


def _lacks(courses: Sequence[Course], arm: str) -> dict[int, float]:
    """By seed, what is missing after ``AT`` trials."""
    return {c.seed: c.missing[min(AT, len(c.missing)) - 1] for c in courses if c.arm == arm and c.missing}


def said(name: str, found: Sequence[Target]) -> list[str]:
    """A line for each, under the table's name."""
    if not found:
        return []
    width = max(len(t.name) for t in found)
    each = (f"  {t.word}  {t.name.ljust(width)}  {t.figure} ({t.limit})" for t in found)
    return [f"{name}: what a search is to reach", *each]
