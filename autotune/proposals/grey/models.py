"""Which models of times and memory the grey-box sampler asks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.proposals import memory, times
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.forecasts import Background, PeakForecast, PeakModel, Task, TimeForecast, TimeModel
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import Features as TimeTable
from autotune.proposals.times import PhaseTimes, probed, roofline

Value = TypeVar("Value")

KEPT = 8


class Memo(Generic[Value]):
    """The newest ``KEPT`` results by their arguments; safe for several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Future[Value]] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """What ``compute`` gives for ``key``; whatever it raises, and then nothing is kept."""
        with self._lock:
            result = self._results.get(key)
            mine = result is None
            if result is None:
                result = self._results[key] = Future()
                while len(self._results) > self._kept:
                    self._results.popitem(last=False)
        if mine:
            try:
                result.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._results.pop(key, None)
                result.set_exception(error)
        return result.result()


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
    tables: Memo[TimeTable] = field(default_factory=Memo, compare=False)

    @property
    def trusted(self) -> bool:
        return self.inner.trusted

    def fitted(self, task: Task, trials: Sequence[Trial]) -> KeptTimes:
        same = task == self.inner.known.task
        return KeptTimes(self.inner.fitted(task, trials), self.tables if same else Memo())

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        return self.inner.forecast(configurations)

    def at(self, candidates: Candidates, places: Places) -> TimeForecast:
        task = self.inner.known.task
        # The table holds the tuple itself, so no other can get its id.
        table = self.tables.get(id(candidates), lambda: times.features(task, candidates))
        phases = {name: replace(rows, index=rows.index[places]) for name, rows in table.phases.items()}
        few = places.tolist()
        part = TimeTable(tuple([candidates[i] for i in few]), phases, tuple([table.starts[i] for i in few]))
        return self.inner.forecast_of(part)


@dataclass
class Newest:
    """The model that was fitted last, by whichever thread: what it read of trials is not read again."""

    model: MemoryModel | None = None


@dataclass(frozen=True)
class KeptPeaks:
    """``MemoryModel`` that reads candidates once, and trials."""

    inner: MemoryModel
    tables: Memo[tuple[Candidates, memory.Matrix]] = field(default_factory=Memo, compare=False)
    newest: Newest = field(default_factory=Newest, compare=False)

    def fitted(self, task: Task, trials: Sequence[Trial]) -> KeptPeaks:
        if task != self.inner.task:
            return KeptPeaks(self.inner.fitted(task, trials))
        # What a model knew already does not matter to its fit.
        fitted = (self.newest.model or self.inner).fitted(task, trials)
        self.newest.model = fitted
        return KeptPeaks(fitted, self.tables, self.newest)

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        return self.inner.forecast(configurations)

    def at(self, candidates: Candidates, places: Places) -> PeakForecast:
        task = self.inner.task
        _, matrix = self.tables.get(id(candidates), lambda: (candidates, memory.features(task, candidates)))
        return self.inner.forecast_of(matrix[:, places])
