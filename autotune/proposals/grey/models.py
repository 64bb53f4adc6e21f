"""Which models of times and memory the grey-box sampler asks, of which candidates, and which trials they see."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, FailureReason, Trial, TrialState
from autotune.proposals import memory, times
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.forecasts import Background, PeakForecast, PeakModel, Task, TimeForecast, TimeModel
from autotune.proposals.grey.choice import likely_from
from autotune.proposals.grey.surfaces import Array, Axes
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import Features as TimeTable
from autotune.proposals.times import PhaseTimes, probed, roofline
from autotune.proposals.translation import Observation, selected
from autotune.statistics import early_stopping
from autotune.statistics.noise import CYCLE_SPREAD, PROCESS_SPREAD

Candidates = tuple[Configuration, ...]
Places = NDArray[np.int64]


def times_at(model: TimeModel, grid: CandidateGrid, places: Places) -> TimeForecast:
    """The forecast of some candidates, in the order of ``places``."""
    if isinstance(model, KeptTimes):
        return model.at(grid.candidates, places)
    return model.forecast([grid.candidates[i] for i in places])


def peaks_at(model: PeakModel, grid: CandidateGrid, places: Places) -> PeakForecast:
    """The same for memory."""
    if isinstance(model, KeptPeaks):
        return model.at(grid.candidates, places)
    return model.forecast([grid.candidates[i] for i in places])


@dataclass(frozen=True)
class Models:
    """What is known before any trial; a model that is ``None`` is not asked."""

    task: Task
    times: TimeModel | None = None
    peaks: PeakModel | None = None


def models_for(task: Task, background: Background | None = None) -> Models:
    """The phase-time model and the memory model of a study, which know no trial of it yet.

    They begin with what earlier studies measured. Without a probe of the study's own kind of device the hardware is
    presumed.
    """
    known = background or Background()
    device = probed(known.probe)
    if device is not None and device.shared != (task.resources.device == "cpu"):
        device = None
    carried = times.carried_over(roofline, task, device, known.earlier)
    before = PhaseTimes(device, carried=carried, seen=times.FeatureCache(task))
    peaks = MemoryModel.before(task, memory.carried_over(task, known.earlier) if known.earlier else ())
    return Models(task, KeptTimes(before.fitted(task, ())), KeptPeaks(peaks))


@dataclass(frozen=True)
class KeptTimes:
    """``PhaseTimes`` that reads candidates once."""

    inner: PhaseTimes
    tables: dict[int, tuple[Candidates, TimeTable]] = field(default_factory=dict, compare=False)
    """By the id of the candidates, which are held, so that no others get it."""

    @property
    def trusted(self) -> bool:
        return self.inner.trusted

    def fitted(self, task: Task, trials: Sequence[Trial]) -> KeptTimes:
        same = task == self.inner.known.task
        return KeptTimes(self.inner.fitted(task, trials), self.tables if same else {})

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        return self.inner.forecast(configurations)

    def at(self, candidates: Candidates, places: Places) -> TimeForecast:
        if id(candidates) not in self.tables:
            self.tables[id(candidates)] = candidates, times.features(self.inner.known.task, candidates)
        return self.inner.forecast_of(self.tables[id(candidates)][1].part(places))


@dataclass(frozen=True)
class KeptPeaks:
    """``MemoryModel`` that reads candidates once."""

    inner: MemoryModel
    tables: dict[int, tuple[Candidates, memory.Matrix]] = field(default_factory=dict, compare=False)

    def fitted(self, task: Task, trials: Sequence[Trial]) -> KeptPeaks:
        return KeptPeaks(self.inner.fitted(task, trials), self.tables if task == self.inner.task else {})

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        return self.inner.forecast(configurations)

    def at(self, candidates: Candidates, places: Places) -> PeakForecast:
        if id(candidates) not in self.tables:
            self.tables[id(candidates)] = candidates, memory.features(self.inner.task, candidates)
        return self.inner.forecast_of(self.tables[id(candidates)][1][:, places])


TOLD_FASTEST, TOLD_NEWEST = 40, 60
"""Of a longer history the models are told the fastest and the newest trials, which bounds what a fit costs."""
MEASURED = PROCESS_SPREAD**2 + CYCLE_SPREAD**2 / early_stopping.LOOKS[0]
"""Variance of a trial's log tokens/hour."""


def axes(grid: CandidateGrid) -> Axes:
    """The grid's dimensions as axes of surfaces."""
    return Axes(tuple(d.ordered for d in grid.dimensions))


def places(grid: CandidateGrid, indices: NDArray[np.int64]) -> Array:
    """Candidates by those axes, (m, d)."""
    return grid.places(indices) / _lengths(grid)


def _lengths(grid: CandidateGrid) -> Array:
    return np.array([len(d.values) - 1 if d.ordered else 1 for d in grid.dimensions], dtype=np.float64)


def ran_out(trial: Trial) -> bool:
    """Memory ran out."""
    return trial.outcome is not None and trial.outcome.reason is FailureReason.OOM


def cycle_seconds(trial: Trial) -> float | None:
    """Mean of its timed cycles; ``None`` if it has none."""
    cycles = trial.speed_cycles()
    return statistics.fmean(c.seconds for c in cycles) if cycles else None


def told(trials: Sequence[Trial], known: Sequence[Observation]) -> tuple[Trial, ...]:
    """Of a long history, by number, the fastest and the newest; ``known`` says which are fast."""
    kept = {e.number for e in selected(known, TOLD_FASTEST, TOLD_NEWEST)}
    return tuple(t for t in trials if t.number in kept)


def likely_enough(trials: Sequence[Trial]) -> float:
    """``choice.likely_from`` of those that held, whose peaks are known, and those that ran out of memory."""
    held = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    return likely_from(held, sum(map(ran_out, trials)))


def compared(held: Sequence[Observation], logs: Array, spreads: Array) -> tuple[float, float]:
    """What joins forecast and measurement, and the value to improve on.

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
