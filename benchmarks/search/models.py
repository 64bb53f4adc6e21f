"""What of the project's own models of memory and time there is, for the filter and the prior that peers are given."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.domain import Trial
from autotune.proposals import dominance
from autotune.proposals.candidate_grid import Mask
from autotune.proposals.forecasts import PeakModel, PriorData, Task, TimeModel
from benchmarks.search.world import World

LIKELY = 0.5
"""A row passes the memory filter if it fits at least this probably."""
MODULE = "autotune.proposals.samplers.grey"


@dataclass(frozen=True)
class Known:
    """The models of one world; ``None`` where this installation has none."""

    peaks: PeakModel | None = None
    times: TimeModel | None = None

    def sentence(self) -> str:
        """What the memory filter is made of."""
        return "memory filter: what an OOM rules out" + (
            ", and the memory model" if self.peaks else " (no memory model)"
        )


def models_of(task: Task, probe: Mapping[str, Any] | None = None) -> Known:
    """Unfitted; ``probe`` is what the device was measured to do (``Header.probe``), presumed where there is none."""
    if not there(MODULE):
        return Known()
    found = importlib.import_module(MODULE).models_for(task, PriorData(probe or {}))
    return Known(peaks=found.peaks, times=found.times)


def there(module: str) -> bool:
    """Whether a module can be imported; its packages are, to know."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def passing(world: World, known: Known, history: Sequence[Trial]) -> Mask:
    """The rows our memory filter lets through after ``history``: no OOM rules them out, and they are likely to fit."""
    one_memory = world.task.resources.device == "cpu"
    mask = world.grid.without((), dominance.regions(history, one_memory=one_memory))
    if known.peaks is not None:
        fits = known.peaks.fitted(world.task, history).forecast(world.configurations).fits
        mask = mask & (fits >= LIKELY)
    return mask


def prior_order(world: World, known: Known) -> list[int] | None:
    """The rows by what the time model expects before any trial, fastest first; ``None`` without such a model."""
    if known.times is None:
        return None
    seconds = known.times.fitted(world.task, ()).forecast(world.configurations).log_seconds
    return [int(i) for i in np.argsort(seconds, kind="stable")]
