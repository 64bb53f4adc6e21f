"""What the benchmark prints: each table's criteria, and one table of arms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.search.arms import OURS, best_peer
from benchmarks.search.discrimination import Criterion, counts
from benchmarks.search.replay import FIRST, SHARES, Course, Interval, medians, ratio

HALF = 0.05
"""The goal by which arms are compared with each other: this share missing."""
AT = 20
"""Trials after which it is told what is still missing."""
HEADS = (
    *("table", "arm", *(f"to {share:.0%}" for share in SHARES), f"lacks at {AT}", f"OOMs in {FIRST}", "lost"),
    "x best peer",
)


@dataclass(frozen=True)
class Line:
    """One arm on one table."""

    world: str
    arm: str
    trials: tuple[Interval, ...]
    """To each of ``SHARES``."""
    lacks: Interval
    """Share of the best missing after ``AT`` trials, or after all where there are fewer."""
    ooms: float
    """In the first trials, mean over seeds."""
    lost: float
    """Share of their seconds, all seeds pooled."""
    against: Interval | None
    """Median trials of the best peer with our filter / of ours, for ``OURS`` alone."""
    peer: str = ""


def lines(courses: Sequence[Course]) -> list[Line]:
    """A line for each table and arm, in the order they were run."""
    found = []
    for world in dict.fromkeys(c.world for c in courses):
        here: dict[str, list[Course]] = {}
        for course in courses:
            if course.world == world:
                here.setdefault(course.arm, []).append(course)
        to_half = {arm: [_trials(c, HALF) for c in runs] for arm, runs in here.items()}
        peer = best_peer(to_half)
        found += [_line(world, arm, runs, to_half, peer) for arm, runs in here.items()]
    return found


def _line(
    world: str, arm: str, runs: Sequence[Course], to_half: Mapping[str, Sequence[float]], peer: str | None
) -> Line:
    draws = np.random.default_rng(0)
    trials = tuple(medians([_trials(c, share) for c in runs], draws) for share in SHARES)
    against = ratio(to_half[arm], to_half[peer], draws) if arm == OURS and peer is not None else None
    return Line(
        world=world,
        arm=arm,
        trials=trials,
        lacks=medians([c.missing[min(AT, len(c.missing)) - 1] if c.missing else 1.0 for c in runs], draws),
        ooms=statistics.fmean(c.first_ooms() for c in runs),
        lost=_pooled(runs),
        against=against,
        peer=peer or "",
    )


def _pooled(runs: Sequence[Course]) -> float:
    spent = sum(sum(c.seconds[:FIRST]) for c in runs)
    return sum(sum(c.wasted[:FIRST]) for c in runs) / spent if spent else 0.0


def _trials(course: Course, share: float) -> float:
    found = course.reached(share)
    return math.inf if found is None else float(found)


def drawn(found: Sequence[Line], most: int) -> str:
    """The table as aligned text; medians over seeds, with their 95 % bootstrap intervals."""
    rows = [HEADS, *(_cells(line, most) for line in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    aligned = ("  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
               for row in rows)  # fmt: skip
    return "\n".join(line.rstrip() for line in aligned)


def _cells(line: Line, most: int) -> tuple[str, ...]:
    against = "" if line.against is None else f"{_interval(line.against, math.inf, '.2f')} {line.peer}"
    goals = (_interval(one, most, "g") for one in line.trials)
    lacks = _interval(line.lacks, math.inf, ".1%")
    return (line.world, line.arm, *goals, lacks, f"{line.ooms:.1f}", f"{line.lost:.1%}", against)


def _interval(one: Interval, most: float, form: str) -> str:
    def shown(value: float) -> str:
        return f">{most:g}" if math.isinf(value) else f"{value:{form}}"

    return f"{shown(one.middle)} ({shown(one.low)} to {shown(one.high)})"


def judged(name: str, found: Sequence[Criterion]) -> str:
    """The criteria of a table, each with its figure, and whether it counts."""
    verdict = "counts" if counts(found) else "DOES NOT COUNT: figures on it say nothing about searches"
    return "\n".join([f"{name}: {verdict}", *each(found)])


def each(found: Sequence[Criterion]) -> list[str]:
    """A line for each criterion."""
    width = max(len(c.name) for c in found)
    return [f"  {'pass' if c.passed else 'FAIL'}  {c.name.ljust(width)}  {c.figure} ({c.limit})" for c in found]
