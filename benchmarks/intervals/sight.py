"""What the clock guard sees of a cycle, by recordings: the CPU that others took, and the drift of its reference."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.intervals.recordings import SWEEPS, TABLES, Array, Cycle, runs_of

DISTURBED = TABLES / "disturbed-cpu-2026-11-29.jsonl"
CLEAN = 0.05
"""Others take more of the CPU in a disturbed cycle."""
RESTLESS = 0.03
"""Median drift from which on a table's reference kernel tells nothing of its cycles."""


class Slope(NamedTuple):
    """Log slowdown of a cycle for each unit of the CPU that others take beyond their usual share, by so many disturbed
    cycles, and the standard deviation of the logarithm of a cycle's own."""

    cycles: int
    slope: float
    scatter: float


@dataclass(frozen=True)
class Sight:
    """What a guard reads on one kind of device."""

    slope: Slope
    background: Array
    """Shares of the CPU taken by others in cycles that nobody disturbed."""
    drifts: Array
    """Of the reference kernel where it is steady ..."""
    spurious: Array
    """... and where it drifts though cycles do not."""


@cache
def sight(on_gpu: bool) -> Sight:
    """Reads the recordings. No GPU was recorded beside other programs, so its slope is the CPU's."""
    runs = runs_of(sorted(TABLES.glob("h?00-*.jsonl"))) if on_gpu else disturbed_runs()
    sweeps = [_values(runs_of([path]), "drift") for path in sorted(TABLES.glob(SWEEPS))]
    spurious = np.concatenate([drifts for drifts in sweeps if np.median(drifts) > RESTLESS])
    shares = _values(runs, "outside_cpu")
    return Sight(slope_of(disturbed_runs()), shares[shares <= CLEAN], _values(runs, "drift"), spurious)


def disturbed_runs() -> list[list[Cycle]]:
    """The cycles of each trial on a disturbed machine, and on the same when it was quiet."""
    runs: dict[tuple[str, int], list[Cycle]] = {}
    for row in map(json.loads, DISTURBED.read_text().splitlines()):
        runs.setdefault((row["machine"], row["trial"]), []).append(row)
    return list(runs.values())


def slope_of(runs: Iterable[Sequence[Cycle]]) -> Slope:
    """Fits, through the origin, the disturbed cycles of each run against the clean ones of the same run."""
    points: list[tuple[float, float]] = []
    for run in runs:
        timed = [c for c in run if c["cycle_kind"] in ("natural", "recorded") and not c.get("rank")]
        xs = np.array([c["outside_cpu"] or 0.0 for c in timed])
        ys = np.array([math.log(c["seconds"] / c["completion_tokens"]) for c in timed])
        far = xs > CLEAN
        if far.any() and not far.all():
            points += zip(xs[far] - xs[~far].mean(), ys[far] - ys[~far].mean(), strict=True)
    slope = sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    own = [math.log(y / (slope * x)) for x, y in points if y > 0.0]
    return Slope(len(points), slope, statistics.stdev(own))


def _values(runs: Iterable[Iterable[Cycle]], name: str) -> Array:
    return np.array([c[name] for run in runs for c in run if c[name] is not None and not c.get("rank")])
