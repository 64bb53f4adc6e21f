"""By how much readers slow a writer: alone and beside the server, in turns.

A writer that is measured for a minute alone and for a minute beside readers differs by more than they take: the machine
drifts. So one process writes all the time, each round has a short turn of both kinds, and a turn is compared with the
lone one of its own round. Clients take processor time too, of the same few cores.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.api.writer import Write
from benchmarks.ratios import interval

ALONE, SERVED = "alone", "served"
KINDS = (ALONE, SERVED)
SETTLE_S = 1.0
"""Of each turn that counts for none: connections are made, and what the turn before left is done."""


@dataclass(frozen=True)
class Turn:
    """A stretch of time that counts."""

    kind: str
    round: int
    begin: float
    end: float


def take(rounds: int, seconds: float, act: Callable[[str, float], None], now: Callable[[], float]) -> list[Turn]:
    """Takes ``rounds`` of one turn of each kind, every second round in reverse order; ``act`` does for
    so many seconds what its kind says."""
    turns = []
    for number in range(rounds):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            begin = now()
            act(kind, seconds)
            turns.append(Turn(kind, number, begin + min(SETTLE_S, seconds / 2), begin + seconds))
    return turns


def slower(writes: Sequence[Write], turns: Sequence[Turn]) -> tuple[float, float, float]:
    """Returns (value, low, high): how many times as long as alone in the same round a write takes beside readers,
    minus 1, with a 95 % interval over the rounds. Rounds in which one of the two has no write are left out; of fewer
    than two the ends are NaN, of none all three."""
    means = {(turn.round, turn.kind): statistics.fmean(took) for turn in turns if (took := _within(writes, turn))}
    rounds = sorted({turn.round for turn in turns})
    both = [number for number in rounds if all((number, kind) in means for kind in KINDS)]
    logs = [math.log(means[number, SERVED] / means[number, ALONE]) for number in both]
    value, low, high = interval(logs) if logs else (math.nan,) * 3
    return value - 1.0, low - 1.0, high - 1.0


def _within(writes: Sequence[Write], turn: Turn) -> list[float]:
    return [took for at, took in writes if turn.begin <= at < turn.end]
