"""What the phase-time model says of one configuration before any trial, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain import Configuration
from autotune.proposals.forecasts import Task
from autotune.proposals.times import Hardware, PhaseTimes, features


@dataclass(frozen=True)
class PredictedCycle:
    """Seconds of one steady cycle."""

    seconds: float
    low: float
    high: float
    """Between ``low`` and ``high`` with a probability of 0.9, by the model's own account."""
    phases: Mapping[str, float]
    tokens_per_hour: float
    """Completion tokens at the task's lengths."""


def predicted(task: Task, hardware: Hardware | None, configuration: Configuration) -> PredictedCycle:
    """From the roofline alone."""
    model = PhaseTimes(hardware).fitted(task, ())
    found = model.forecast((configuration,))
    seconds, reach = math.exp(found.log_seconds[0]), math.exp(1.645 * found.spread[0])
    lengths = model.known.lengths.completions
    rows = float(features(task, (configuration,))["reward"].facts["rows"][0])
    return PredictedCycle(
        seconds,
        seconds / reach,
        seconds * reach,
        {phase: float(column[0]) for phase, column in found.phases.items()},
        3600.0 * rows * sum(lengths) / len(lengths) / seconds,
    )
