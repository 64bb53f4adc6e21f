"""Compares predictions without measurements with recorded trials on the same kind of GPU. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from autotune.domain import Pool
from autotune.forecast.answer import Accuracy
from autotune.insights.ranking import ranked
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import PhaseTimes
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import percent

NONE = "not yet compared with a recorded table on this GPU"
FEWEST = 5
"""Fewest configurations of a study that are compared."""


Unfitted = Callable[[Task], tuple[PhaseTimes, MemoryModel]]
"""Function that returns a plan's models for a task, fitted to no trial."""


def accuracy(recorded: Iterable[StudyReading], models: Unfitted) -> Accuracy:
    """Returns median errors of predicted cycle seconds and peaks over measured configurations, and rank correlation.

    Errors are factors: ``within 30 %`` means that half of the predictions are at most 1.3 times too high or too low.
    """
    times: list[float] = []
    peaks: list[float] = []
    orders: list[float] = []
    for one in recorded:
        found, sizes = _errors(one, models)
        if len(found) >= FEWEST:
            times += [predicted - measured for predicted, measured in found]
            orders.append(_rank_correlation(found))
            peaks += sizes
    if not times:
        return Accuracy(NONE)
    said = f"on {len(times)} configurations recorded on this GPU half of the predicted times were within {_half(times)}"
    said += f", rank correlation {statistics.fmean(orders):.2f}"
    if peaks:
        said += f"; half of the {len(peaks)} peaks within {_half(peaks)}"
    return Accuracy(said, len(times))


def _errors(one: StudyReading, models: Unfitted) -> tuple[list[tuple[float, float]], list[float]]:
    """Returns (predicted, measured) log seconds of each configuration, and the log errors of the measured peaks."""
    task = replace(Task.of(one.study.spec), lengths=one.study.lengths)
    chosen = [t for t in ranked(one.trials) if t.speed_cycles()]
    if not chosen:
        return [], []
    times, sizes = models(task)
    configurations = [t.configuration for t in chosen]
    seconds = times.forecast(configurations).log_seconds
    bytes_ = sizes.forecast(configurations).peak
    measured = [math.log(statistics.fmean(c.seconds for c in t.speed_cycles())) for t in chosen]
    pool = Pool.DEVICE if task.resources.device == "cuda" else Pool.HOST
    seen = [t.peak(pool) for t in chosen]
    return (
        [(float(s), m) for s, m in zip(seconds, measured, strict=True)],
        [math.log(float(b)) - math.log(s) for b, s in zip(bytes_, seen, strict=True) if s],
    )


def _half(errors: Sequence[float]) -> str:
    return percent(math.expm1(statistics.median(abs(e) for e in errors)))


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns Spearman's rank correlation; ties keep their order."""
    first, second = (np.argsort(np.argsort(some, kind="stable")) for some in zip(*pairs, strict=True))
    return float(np.corrcoef(first, second)[0, 1])
