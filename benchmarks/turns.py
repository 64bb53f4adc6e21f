"""By how much readers slow a writer, in turns: alone, beside the server, and beside a stand-in that reads nothing.

A writer that is measured for a minute alone and for a minute beside readers differs by more than they take: the machine
drifts. So one process writes all the time, each round has a short turn of every kind, and a turn is compared with the
lone one of its own round. Clients take processor time too, of the same few cores; the stand-in answers them the same
bytes from memory, so what it slows the writer by would be there whatever answered.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.statistics.distributions import t95
from benchmarks.writer import Write

ALONE, SERVED, STAND_IN = "alone", "served", "stand-in"
KINDS = (ALONE, SERVED, STAND_IN)
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
    """``rounds`` of one turn of every kind, each round beginning with another; ``act`` does what its kind says for so
    many seconds."""
    turns = []
    for number in range(rounds):
        first = number % len(KINDS)
        for kind in (*KINDS[first:], *KINDS[:first]):
            begin = now()
            act(kind, seconds)
            turns.append(Turn(kind, number, begin + min(SETTLE_S, seconds / 2), begin + seconds))
    return turns


def slower(writes: Sequence[Write], turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    """By kind, how many times as long a write takes as alone in the same round, minus 1, with a 95 % interval over the
    rounds (NaN of fewer than two); rounds in which one of the two has no write are left out."""
    means = {(turn.round, turn.kind): statistics.fmean(took) for turn in turns if (took := _within(writes, turn))}
    found = {}
    for kind in (SERVED, STAND_IN):
        logs = [
            math.log(means[number, kind] / means[number, ALONE])
            for number in sorted({turn.round for turn in turns})
            if (number, kind) in means and (number, ALONE) in means
        ]
        if logs:
            found[kind] = interval(logs)
    return found


def _within(writes: Sequence[Write], turn: Turn) -> list[float]:
    return [took for at, took in writes if turn.begin <= at < turn.end]


def interval(logs: Sequence[float]) -> dict[str, float]:
    """Of ratios, given by a logarithm for each round: their mean minus 1 with its 95 % interval (NaN of one round)."""
    middle = statistics.fmean(logs)
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    ends = {"value": middle, "low": middle - half, "high": middle + half}
    return {name: math.expm1(value) for name, value in ends.items()} | {"rounds": float(len(logs))}


def words(found: dict[str, Any]) -> list[str]:
    """For people."""
    said = {SERVED: "beside the server", STAND_IN: "beside one that answers from memory, so by the clients alone"}
    return [
        f"- writes in turns, {one['rounds']:.0f} rounds, {said[kind]}: {100 * one['value']:+.1f} % (95 % interval "
        f"{100 * one['low']:+.1f} to {100 * one['high']:+.1f} %)"
        for kind, one in found.items()
    ]
