"""How well the rows of a table are known: what runs of one row differ by, and what the time of day adds. Pure.

Repeats go in rounds over the same rows, so rounds differ by the machine and not by what was run in them. First runs are
left out: rows are repeated because theirs were fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.search.world import World, holds, judging

LEAST_ROWS = 3


@dataclass(frozen=True)
class Noise:
    """Of log tokens/hour."""

    run: float
    """Standard deviation of one run around its row's mean, what its round has in common left out."""
    round: float
    """Standard deviation between rounds."""
    widest: float
    """The fastest round over the slowest."""
    judged_by: int
    """Runs a repeated row's figure is the mean of."""

    @property
    def repeated(self) -> float:
        """Standard deviation of a repeated row's figure; all of them are of the same rounds."""
        return self.run / math.sqrt(self.judged_by)

    @property
    def single(self) -> float:
        """Of the figure of a row that was run once, at some time."""
        return math.hypot(self.run, self.round)


def noise_of(world: World) -> Noise | None:
    """By the rows that hold and have most repeats; ``None`` where fewer than three have two of them."""
    held = [row for row in world.table.rows if holds(row) and row.repeats]
    most = max((len(row.repeats) for row in held), default=0)
    rows = [row for row in held if len(row.repeats) == most and all(run.tokens_per_hour for run in row.repeats)]
    if most < 2 or len(rows) < LEAST_ROWS:
        return None
    logs = np.log([[run.tokens_per_hour or 1.0 for run in row.repeats] for row in rows])
    rounds = logs.mean(axis=0)
    beyond = logs - logs.mean(axis=1, keepdims=True) - rounds + logs.mean()
    freedom = (len(rows) - 1) * (most - 1)
    run = math.sqrt(float((beyond**2).sum()) / freedom)
    between = max(0.0, float(rounds.var(ddof=1)) - run**2 / len(rows))
    return Noise(run, math.sqrt(between), float(rounds.max() - rounds.min()), len(judging(rows[0])))


def sentence(found: Noise | None) -> str:
    """What a figure of the table can be told from."""
    if found is None:
        return "  noise: not known, for no rows were repeated in rounds"
    widest = math.expm1(found.widest)
    return (
        f"  noise: a run of a row scatters by {found.run:.1%}, the fastest round of repeats was {widest:.1%} faster "
        f"than the slowest; so a repeated row is known to ± {found.repeated:.1%} beside another one, and one that was "
        f"run once to ± {found.single:.1%}"
    )
