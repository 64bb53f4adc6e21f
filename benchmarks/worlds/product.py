"""All of the product's search that this folder touches: who proposes, what likely fits, and what is forecast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.ports import Proposer
from autotune.proposals.samplers.grey import models_for
from autotune.wiring import proposer_for
from benchmarks.decisions.studies import Place

LIKELY = 0.7
"""Probability of fitting from which a configuration passes the memory filter."""

Likely = Callable[[Configuration], bool]
Column = NDArray[np.float64]


def proposer(sampler: str, place: Place, seed: int) -> Proposer:
    """The proposer of ``autotune start``."""
    return proposer_for(replace(place.spec, sampler=sampler, seed=seed), place.prior_data)


@lru_cache(maxsize=8)
def _models(place: Place) -> Any:
    return models_for(place.task, place.prior_data)


def likely(place: Place, history: Sequence[Trial]) -> Likely:
    """The product's memory filter after ``history``."""
    peaks = _models(place).peaks.fitted(place.task, history)
    return lambda configuration: bool(peaks.forecast([configuration]).fits[0] >= LIKELY)


def forecast(
    place: Place, history: Sequence[Trial], configurations: Sequence[Configuration]
) -> tuple[Column, Column, Column]:
    """Mean and standard deviation of the logarithm of a cycle's seconds, and the probability of fitting."""
    models = _models(place)
    times = models.times.fitted(place.task, history).forecast(configurations)
    fits = models.peaks.fitted(place.task, history).forecast(configurations).fits
    return times.log_seconds, times.spread, fits
