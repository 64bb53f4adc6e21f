"""Which models of times and memory the grey-box sampler asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.proposals import memory, times
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.forecasts import Background, PeakForecast, PeakModel, Task, TimeForecast, TimeModel
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import Features as TimeTable
from autotune.proposals.times import PhaseTimes, probed, roofline

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
