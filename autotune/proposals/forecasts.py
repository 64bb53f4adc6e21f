"""Input and result of the forecasts of the memory model and the phase-time model.

A forecast is fitted to the trials of one study and evaluated for thousands of candidates at once, so it takes a
sequence of configurations and returns arrays in the same order. Nothing here keeps state between calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Objective, Resources, StudySpec, Trial
from search_spaces.batch import held_gpus

Column = NDArray[np.float64]
"""One number per requested configuration, in their order."""
REMEMBERED = 32
"""Number of configuration tuples whose columns the models cache: tracks, the living process's, neighbours."""
SURE = 0.9
"""Probability of fitting from which a configuration is said to fit. Within a tenth of the limit of recorded tables
that is wrong for some 1 to 3 % of rows (``benchmarks.memory_model``)."""


@dataclass(frozen=True)
class Task:
    """The properties of a study, other than the configuration, that times and memory depend on."""

    resources: Resources
    """The machine's share, with the facts of the model (``Resources.model``)."""
    rows_per_update: int
    max_prompt_length: int
    """Longest prompt in tokens."""
    max_completion_length: int
    """Longest completion in tokens."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    """The user's own keys (LoRA rank, beta, ``num_iterations``), as in ``Workload``."""
    memory_limit: int | None = None
    """Bytes the process tree may hold (CPU runs); on a GPU the device's memory is the limit."""
    lengths: tuple[int, ...] = ()
    """Recorded completion lengths in tokens; empty: not known, so taken from the trials or presumed."""
    prompt_tokens: float = 0.0
    """Mean prompt length in tokens; 0: not known."""
    per_gpu: bool = False
    """True if the objective is tokens per GPU-hour."""

    def __hash__(self) -> int:
        # The user's keys are a mapping, which cannot be hashed; they are still compared.
        return hash((self.resources, self.rows_per_update, self.lengths))

    @classmethod
    def of(cls, spec: StudySpec) -> Task:
        """Returns the task of a stored study."""
        work = spec.workload
        return cls(
            resources=spec.resources,
            rows_per_update=work.rows_per_update,
            max_prompt_length=work.max_prompt_length,
            max_completion_length=work.max_completion_length,
            passthrough=work.passthrough,
            memory_limit=spec.memory_limit,
            per_gpu=spec.objective is Objective.PER_GPU_HOUR,
        )

    def log_divisors(self, configurations: Sequence[Configuration]) -> Column:
        """Returns the logarithms of the divisors of tokens/hour in the objective (``Trial.divisor``)."""
        if not self.per_gpu:
            return np.zeros(len(configurations))
        return np.log([float(max(1, held_gpus(c, self.resources))) for c in configurations])


@dataclass(frozen=True)
class EarlierTrials:
    """Trials of another study that a search starts from."""

    task: Task
    """Task of that study."""
    trials: tuple[Trial, ...]
    """Finished trials of the study."""
    distance: float
    """Doublings its figures are carried (``insights.related``)."""
    probe: Mapping[str, Any] = field(default_factory=dict)
    """Probe of its device, as ``PriorData.probe``."""


@dataclass(frozen=True)
class PriorData:
    """Prior knowledge of a study's models: the probed device and earlier studies."""

    probe: Mapping[str, Any] = field(default_factory=dict)
    """Measured speeds of the device (``Result.data`` of ``probe_speed``); empty: not measured."""
    earlier: tuple[EarlierTrials, ...] = ()
    """Earlier studies, nearest first."""


@dataclass(frozen=True)
class PeakForecast:
    """Worst-case peaks in the pool closest to its limit: the process tree's PSS on a CPU, else a GPU's memory."""

    peak: Column
    """Median of the peak, in bytes."""
    spread: Column
    """Standard deviation of the peak's natural logarithm."""
    fits: Column
    """Probability that every pool's peak stays below its limit; 1 if no limit is known."""


@dataclass(frozen=True)
class TimeForecast:
    """Predicted time of one steady cycle at the recorded lengths."""

    log_seconds: Column
    """Mean of the natural logarithm of the cycle's seconds."""
    spread: Column
    """Standard deviation of that logarithm."""
    phases: Mapping[str, Column]
    """Median seconds by ``Phase`` value."""
