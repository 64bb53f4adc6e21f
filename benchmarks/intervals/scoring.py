"""Counts how often the stated interval of a gain holds the truth, and how soon it proves one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.intervals.noises import NOISES
from benchmarks.intervals.product import ROUNDS
from benchmarks.intervals.studies import Course, run

RATIOS = (1.0, 1.1, 1.25, 1.5, 2.33)
LOOKS = (0, 1, 2, 3, ROUNDS)
"""Rounds at most; 0: a gain that nothing has confirmed."""
Row = dict[str, float | str | None]


def scored(name: str, studies: int, seed: int) -> Iterator[Row]:
    """A row for each true ratio. A study draws the same whatever other studies and noises are asked for."""
    for ratio in RATIOS:
        keys = ([seed, int(100 * ratio), n, *name.encode()] for n in range(studies))
        yield row_of(name, ratio, [run(NOISES[name], ratio, np.random.default_rng(key)) for key in keys])


def row_of(name: str, ratio: float, courses: Sequence[Course]) -> Row:
    """Of studies with one noise and one true ratio; shares are 0 to 1, half widths logarithms; ``None``: no figure.

    A study that may make so many rounds makes no more once it has decided.
    """
    truth, count = math.log(ratio), len(courses)
    row: Row = {"noise": name, "ratio": ratio, "studies": count}
    for look in LOOKS:
        some = [s for c in courses if (s := c.statements[min(look, len(c.statements) - 1)]) is not None]
        row[f"stated_{look}"] = len(some) / count
        row[f"covers_{look}"] = sum(s.low <= truth <= s.high for s in some) / len(some) if some else None
        row[f"faster_{look}"] = sum(s.faster for s in some) / count
        row[f"undecided_{look}"] = 1.0 - sum(s.faster or s.high < 0.0 for s in some) / count
        row[f"half_width_{look}"] = _median([0.5 * (s.high - s.low) for s in some])
        row[f"stated_over_true_{look}"] = _median([math.exp(s.middle - truth) for s in some])
    row["faster_at_any_look"] = sum(any(s is not None and s.faster for s in c.statements[1:]) for c in courses) / count
    row["rounds"] = statistics.fmean(len(c.statements) - 1 for c in courses)
    cycles = [cycle for c in courses for cycle in c.cycles]
    row["cycles"] = len(cycles) / count
    row["discarded_share"] = sum(not c.accepted for c in cycles) / len(cycles)
    row["noisy_share"] = sum(c.noisy for c in cycles) / len(cycles)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def _median(values: Sequence[float]) -> float | None:
    middle = statistics.median(values) if values else math.inf
    return middle if math.isfinite(middle) else None
