"""Seconds until a fresh process times its first cycle: start-up by kind of process, and the warm-up. Pure.

A kind is what the start depends on: engine, its mode, whether it compiles, whether the trainer compiles or is sharded.
Its mean log seconds are moderated by the prior, which counts as one trial and is moved by what all measured kinds
together took beyond theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column, Task
from autotune.proposals.times.facts import ProcessKind
from autotune.proposals.times.observed import Measured, warm_up_s
from trainer.child.contract import StartupPart

SPAWN = StartupPart.SPAWN.value
BASE_S = {"cpu": 8.0, "cuda": 20.0}
"""Interpreter, imports, model: presumed."""
ENGINE_S = {"cpu": 8.0, "cuda": 45.0}
"""vLLM's start; performance figures for an 8B model on an H100 are 44 to 101 s with compilation."""
SERVER_S = 20.0
COMPILED_S = {"cpu": 46.0, "cuda": 25.0}
"""vLLM's compilation and graphs."""
TRAINER_COMPILES_S = 90.0
SHARDED_S = 10.0
WARM_UP = 1.5
"""Seconds of the warm-up, in cycles."""


@dataclass(frozen=True)
class Starts:
    """What starts took; empty: nothing was measured."""

    logs: Mapping[ProcessKind, float] = field(default_factory=dict)
    """Sum of the logarithms of the start-up's seconds, by kind."""
    counts: Mapping[ProcessKind, int] = field(default_factory=dict)
    warm_up: float = WARM_UP

    def seconds(self, task: Task, kinds: NDArray[np.intp], cycle_s: Column) -> Column:
        """Of processes of these kinds, whose cycles take ``cycle_s``."""
        several, place = np.unique(kinds, return_inverse=True)
        start = np.array([self._start(task, ProcessKind(int(kind))) for kind in several], dtype=np.float64)
        return start[place] + self.warm_up * cycle_s

    def _start(self, task: Task, key: ProcessKind) -> float:
        beyond = [self.logs[k] - n * math.log(presumed_s(task, k)) for k, n in self.counts.items()]
        shift = sum(beyond) / (1.0 + sum(self.counts.values()))
        count = self.counts.get(key, 0)
        own = self.logs.get(key, 0.0)
        return math.exp((math.log(presumed_s(task, key)) + shift + own) / (1.0 + count))


def starts_of(found: Measured, kinds: NDArray[np.intp]) -> Starts:
    """Of trials that came as far as their first timed cycle, and the kinds of their processes.

    A process tells once how long it took to be there. Where any does, a trial without that ran in a process another
    one had started, and says nothing of a start.
    """
    told = any(SPAWN in trial.startup for trial in found.trials)
    logs: dict[ProcessKind, float] = {}
    counts: dict[ProcessKind, int] = {}
    ratios = [WARM_UP]
    for trial, kind, cycle_s in zip(found.trials, map(ProcessKind, kinds.tolist()), found.whole.tolist(), strict=True):
        seconds, warm = sum(trial.startup.values()), warm_up_s(trial)
        if seconds > 0 and (SPAWN in trial.startup or not told):
            logs[kind] = logs.get(kind, 0.0) + math.log(seconds)
            counts[kind] = counts.get(kind, 0) + 1
        if warm > 0:
            ratios.append(warm / cycle_s)
    return Starts(logs, counts, math.exp(sum(math.log(r) for r in ratios) / len(ratios)))


def presumed_s(task: Task, key: ProcessKind) -> float:
    """Before anything was measured."""
    device = "cpu" if task.resources.device == "cpu" else "cuda"
    more = {
        ProcessKind.VLLM: ENGINE_S[device],
        ProcessKind.SERVER: SERVER_S,
        ProcessKind.ENGINE_COMPILES: COMPILED_S[device],
        ProcessKind.TRAINER_COMPILES: TRAINER_COMPILES_S,
        ProcessKind.SHARDED: SHARDED_S,
    }
    return BASE_S[device] + sum(seconds for kind, seconds in more.items() if kind & key)
