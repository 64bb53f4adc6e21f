"""The grey-box sampler's models of times and memory, and the trials and candidates they are given."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain import FailureReason, Trial, TrialState
from autotune.proposals import memory, times
from autotune.proposals.forecasts import PeakModel, PriorData, Task, TimeModel
from autotune.proposals.grey.choice import likely_from
from autotune.proposals.grey.surfaces import Array
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import PhaseTimes, probed, roofline
from autotune.proposals.translation import Observation, selected
from autotune.statistics import early_stopping
from autotune.statistics.noise import CYCLE_SPREAD, PROCESS_SPREAD


@dataclass(frozen=True)
class Models:
    """The models of a study before its first trial; a model that is ``None`` is not used."""

    task: Task
    times: TimeModel | None = None
    peaks: PeakModel | None = None


def models_for(task: Task, prior_data: PriorData | None = None) -> Models:
    """The phase-time model and the memory model of a study, which know no trial of it yet.

    They begin with what earlier studies measured. Without a probe of the study's own kind of device the hardware is
    presumed.
    """
    known = prior_data or PriorData()
    device = probed(known.probe)
    if device is not None and device.shared != (task.resources.device == "cpu"):
        device = None
    carried = times.carried_over(roofline, task, device, known.earlier)
    before = PhaseTimes(device, carried=carried)
    peaks = MemoryModel.before(task, memory.carried_over(task, known.earlier) if known.earlier else ())
    return Models(task, before.fitted(task, ()), peaks)


KEPT_FASTEST, KEPT_NEWEST = 40, 60
"""A longer history is cut to its fastest and its newest trials, which bounds the cost of a fit."""
MEASURED = PROCESS_SPREAD**2 + CYCLE_SPREAD**2 / early_stopping.LOOKS[0]
"""Variance of a trial's log tokens/hour."""


def cycle_seconds(trial: Trial) -> float | None:
    """Mean of its timed cycles; ``None`` if it has none."""
    cycles = trial.speed_cycles()
    return statistics.fmean(c.seconds for c in cycles) if cycles else None


def selected_trials(trials: Sequence[Trial], known: Sequence[Observation]) -> tuple[Trial, ...]:
    """The fastest and the newest trials of a long history, by number; ``known`` says which are fast."""
    kept = {e.number for e in selected(known, KEPT_FASTEST, KEPT_NEWEST)}
    return tuple(t for t in trials if t.number in kept)


def likely_enough(trials: Sequence[Trial]) -> float:
    """``choice.likely_from`` of those that held, whose peaks are known, and those that ran out of memory."""
    held = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    ran_out = sum(t.outcome is not None and t.outcome.reason is FailureReason.OOM for t in trials)
    return likely_from(held, ran_out)


def compared(held: Sequence[Observation], logs: Array, spreads: Array) -> tuple[float, float]:
    """Constant that converts log seconds to log tokens/hour, and the value to improve on.

    The tokens of a cycle are fixed by the recorded lengths, so log tokens/hour is a constant less the logarithm of the
    cycle's seconds; the constant is the median over what was measured. The best is the highest of the measured values,
    each weighed with its forecast by their variances, so that one lucky trial is not what has to be beaten.

    Args:
        held: measured; may be empty.
        logs: of the seconds of a cycle, or GPU-seconds where the objective is tokens per GPU-hour.
    """
    if not held:
        return 0.0, -math.inf
    values = np.array([e.value for e in held], dtype=np.float64)
    level = float(np.median(values + logs))
    trust = MEASURED / (MEASURED + np.maximum(spreads, 1e-6) ** 2)
    return level, float(np.max((1.0 - trust) * values + trust * (level - logs)))
