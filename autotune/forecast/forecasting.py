"""Forecasts of many configurations at once: tokens/hour, and whether they fit. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain import Configuration
from autotune.forecast.answer import Predicted
from autotune.proposals.forecasts import SURE, Column, PeakForecast, TimeForecast
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import PhaseTimes
from autotune.statistics.distributions import NORMAL95


@dataclass(frozen=True)
class Forecasts:
    """Models of a plan, fitted to no trial."""

    times: PhaseTimes
    peaks: MemoryModel
    tokens: Callable[[Sequence[Configuration]], Column]
    """Function that returns the completion tokens of one cycle of each configuration."""
    capacity: int
    """Memory of one GPU in bytes."""

    def table(self, configurations: Sequence[Configuration]) -> Table:
        """Returns forecasts of all ``configurations``, in their order."""
        times, peaks = self.times.forecast(configurations), self.peaks.forecast(configurations)
        log_tokens = np.log(3600.0 * self.tokens(configurations))
        return Table(tuple(configurations), times, peaks, log_tokens - times.log_seconds)

    def predicted(self, table: Table, index: int) -> Predicted:
        """Returns the whole forecast of one configuration of ``table``."""
        times, peaks, configuration = table.times, table.peaks, table.configurations[index]
        rate, spread = float(table.log_rate[index]), float(times.spread[index])
        phases = {name: float(column[index]) for name, column in times.phases.items()}
        peak, wide = float(peaks.peak[index]), math.exp(NORMAL95 * float(peaks.spread[index]))
        device, host = self.peaks.breakdown(configuration)
        return Predicted(
            configuration=configuration,
            tokens_per_hour=math.exp(rate),
            low=math.exp(rate - NORMAL95 * spread),
            high=math.exp(rate + NORMAL95 * spread),
            cycle_s=math.exp(float(times.log_seconds[index])),
            phases=_largest_first({n: s for n, s in phases.items() if s > 0}),
            peak=peak,
            peak_low=peak / wide,
            peak_high=peak * wide,
            fits=float(peaks.fits[index]),
            parts=_largest_first({n: b for n, b in device.at_peak.items() if b > 0}),
            host=host.peak,
            moment=device.moment.value,
            capacity=self.capacity,
        )


@dataclass(frozen=True)
class Table:
    """Forecasts of many configurations, in columns."""

    configurations: tuple[Configuration, ...]
    times: TimeForecast
    peaks: PeakForecast
    log_rate: Column
    """Natural logarithm of tokens/hour; median."""

    def score(self) -> Column:
        """Returns the score to maximise: tokens/hour if likely to fit, else a lower score that falls with the peak."""
        likely = self.peaks.fits >= SURE
        return np.where(likely, self.log_rate, -1e6 - np.log(self.peaks.peak))

    def fitting(self) -> int:
        """Counts the configurations that are likely to fit."""
        return int(np.count_nonzero(self.peaks.fits >= SURE))


def _largest_first(values: Mapping[str, float]) -> Mapping[str, float]:
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
