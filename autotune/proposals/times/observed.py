"""Reads finished trials: seconds of a cycle by phase, their noise, the tokens the cycles worked on, and starts. Pure.

Trials that were stopped early count, failed ones do not. A start is known by its kind of process: engine, its mode,
whether that compiles, whether the trainer compiles or is sharded. Its mean log seconds are moderated by the prior,
which counts as one trial and is moved by what all measured kinds together took beyond theirs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, CycleKind, Trial, TrialState
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.times.features import PHASES, ProcessKind
from autotune.proposals.times.lengths import Lengths, presumed
from autotune.statistics.noise import CYCLE_SPREAD
from trainer.child.contract import StartupPart

Groups = NDArray[np.intp]
"""Of each value the place of its group."""
PRESUMED_DEGREES = 4.0
"""What the presumed spreads count for beside measured ones."""
LEAST_S = 1e-6
"""Below this a phase did not occur."""
LEAST_SPREAD = 0.005


@dataclass(frozen=True)
class Measured:
    """Measurements of trials, in their order; one array element for each."""

    trials: tuple[Trial, ...]
    configurations: tuple[Configuration, ...]
    seconds: dict[str, Column]
    """Mean of the cycles, by ``Phase`` value; 0 where it did not occur."""
    whole: Column
    """Seconds of a cycle; the phases sum to it."""
    cycles: Column
    """How many."""
    cycle_variance: dict[str, float]
    """Of a phase's log seconds from cycle to cycle within a trial."""
    computed: Column
    """Tokens the update's forward passes worked on, meaned; NaN where no cycle tells."""
    prompt: Column
    """Tokens of a prompt, meaned."""
    rows: Column
    """Completions of a cycle."""
    lengths: tuple[int, ...] = ()
    """Of the first cycle that tells its lengths."""

    @cached_property
    def shares(self) -> Column:
        """Weight of each trial: 1 / number of trials of its configuration, so that each configuration counts once."""
        keys = [configuration.key for configuration in self.configurations]
        counts = Counter(keys)
        return np.array([1.0 / counts[key] for key in keys], dtype=np.float64)

    @property
    def different(self) -> int:
        """Configurations among the trials; a configuration's shares sum to 1."""
        return round(float(np.sum(self.shares)))


def measured(trials: Sequence[Trial]) -> Measured:
    """Measurements of the trials that ended with speed cycles."""
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    both = [(trial, cycles) for trial in ended if (cycles := trial.speed_cycles())]
    used, each = [trial for trial, _ in both], [cycles for _, cycles in both]
    count = len(each)
    place = np.repeat(np.arange(count), [len(cycles) for cycles in each])
    every = [c.phases for cycles in each for c in cycles]
    flat = {phase: np.array([one.get(phase, 0.0) for one in every], dtype=np.float64) for phase in PHASES}
    number = np.maximum(np.bincount(place, minlength=count), 1).astype(np.float64)
    seconds = {phase: np.bincount(place, column, minlength=count) / number for phase, column in flat.items()}
    return Measured(
        trials=tuple(used),
        configurations=tuple(t.configuration for t in used),
        seconds=seconds,
        whole=np.sum(list(seconds.values()), axis=0),
        cycles=number,
        cycle_variance={phase: _variance_of_cycles(column, place) for phase, column in flat.items()},
        computed=_mean_of_cycles([c.computed_tokens for cycles in each for c in cycles], place, number),
        prompt=_mean_of_cycles([c.prompt_tokens / max(1, c.rows) for cycles in each for c in cycles], place, number),
        rows=np.array([float(cycles[0].rows) for cycles in each]),
        lengths=next((tuple(c.lengths) for cycles in each for c in cycles if c.lengths), ()),
    )


def _variance_of_cycles(seconds: Column, place: Groups) -> float:
    occurs = seconds > LEAST_S
    return pooled(np.log(seconds[occurs]), place[occurs], CYCLE_SPREAD)


def _mean_of_cycles(values: Sequence[float], place: Groups, number: Column) -> Column:
    """Mean of each trial's cycles; NaN where no cycle tells."""
    mean = np.bincount(place, np.array(values, dtype=np.float64), minlength=len(number)) / number
    return np.where(mean > 0, mean, math.nan)


def pooled(values: Column, groups: Groups, spread: float) -> float:
    """Variance within groups; ``spread`` counts as ``PRESUMED_DEGREES`` of them."""
    squares, degrees = 0.0, 0.0
    if len(values):
        count = np.bincount(groups)
        mean = np.bincount(groups, values) / np.maximum(count, 1)
        squares = float(np.sum(np.square(values - mean[groups])))
        degrees = float(np.sum(np.maximum(count - 1, 0)))
    found = (PRESUMED_DEGREES * spread**2 + squares) / (PRESUMED_DEGREES + degrees)
    return max(found, LEAST_SPREAD**2)


def lengths_of(task: Task, found: Measured) -> Lengths:
    """Lengths of a study's cycle: recorded completions, mean prompt, mean width of a prompt."""
    ours = presumed(task)
    if not len(found.whole):
        return ours
    if ours.presumed and found.lengths:
        ours = Lengths(found.lengths, ours.prompt, ours.width)
    prompt = float(np.nanmedian(found.prompt)) if np.any(np.isfinite(found.prompt)) else ours.prompt
    longest = max(ours.completions)
    widths = found.computed / np.maximum(found.rows, 1.0) - longest
    wide = widths[np.isfinite(widths) & (widths > 0)]
    return replace(ours, prompt=prompt, width=max(prompt, float(np.median(wide)) if len(wide) else prompt))


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
NODES_S = 10.0
"""Several nodes' launchers, until they have met: presumed."""
WARM_UP = 1.5
"""Seconds of the warm-up, in cycles."""


@dataclass(frozen=True)
class Starts:
    """Measured start-up times by kind of process; empty if nothing was measured."""

    logs: Mapping[ProcessKind, float] = field(default_factory=dict)
    """Sum of the logarithms of the start-up's seconds, by kind."""
    counts: Mapping[ProcessKind, int] = field(default_factory=dict)
    warm_up: float = WARM_UP

    def seconds(self, task: Task, kinds: tuple[NDArray[np.intp], NDArray[np.intp]], cycle_s: Column) -> Column:
        """Predicted seconds until a process's first timed cycle; ``kinds`` as of ``Features.kinds``."""
        several, place = kinds
        start = np.array([self._start(task, ProcessKind(int(kind))) for kind in several], dtype=np.float64)
        return start[place] + self.warm_up * cycle_s

    def _start(self, task: Task, key: ProcessKind) -> float:
        beyond = [self.logs[k] - n * math.log(presumed_s(task, k)) for k, n in self.counts.items()]
        shift = sum(beyond) / (1.0 + sum(self.counts.values()))
        count = self.counts.get(key, 0)
        own = self.logs.get(key, 0.0)
        return math.exp((math.log(presumed_s(task, key)) + shift + own) / (1.0 + count))


def starts_of(found: Measured, kinds: NDArray[np.intp]) -> Starts:
    """Returns start-up times by kind of process, of trials that reached a timed cycle; where any recorded the start of
    its process, only of those."""
    has_spawn = any(SPAWN in trial.startup for trial in found.trials)
    logs: dict[ProcessKind, float] = {}
    counts: dict[ProcessKind, int] = {}
    ratios = [WARM_UP]
    for trial, kind, cycle_s in zip(found.trials, map(ProcessKind, kinds.tolist()), found.whole.tolist(), strict=True):
        seconds = sum(trial.startup.values())
        warm = sum(c.seconds for c in trial.cycles if c.cycle_kind is CycleKind.WARMUP and c.rank == 0)
        if seconds > 0 and (SPAWN in trial.startup or not has_spawn):
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
        ProcessKind.NODES: NODES_S,
    }
    return BASE_S[device] + sum(seconds for kind, seconds in more.items() if kind & key)
