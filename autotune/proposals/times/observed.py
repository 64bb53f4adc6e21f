"""Reads finished trials: seconds of a cycle by phase, their noise, and the lengths of the cycles. Pure.

Trials that were stopped early count; failed ones do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, CycleRecord, Phase, Trial, TrialState
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.times.features import PHASES
from autotune.proposals.times.lengths import Lengths, presumed
from autotune.statistics.noise import CYCLE_SPREAD, PROCESS_SPREAD

LEAST_S = 1e-6
"""Seconds up to which a phase did not occur."""


@dataclass(frozen=True)
class Measured:
    """Measurements of trials, in their order; one array element for each trial."""

    configurations: tuple[Configuration, ...]
    seconds: Mapping[str, Column]
    """Mean seconds per cycle, by ``Phase`` value; 0 where the phase did not occur."""
    noise: Column
    """Variance of the logarithm of ``seconds``, as presumed."""
    cycles: tuple[CycleRecord, ...]
    """Cycles of all trials."""

    def placed(self, occurs: Mapping[str, NDArray[np.bool_]]) -> Measured:
        """Counts a phase's seconds as idle where the roofline has no such phase, so that the total stays the same."""
        idle = Phase.IDLE.value
        found = {phase: np.where(occurs[phase], column, 0.0) for phase, column in self.seconds.items()}
        found[idle] = self.seconds[idle] + sum(self.seconds[p] - found[p] for p in PHASES if p != idle)
        return replace(self, seconds=found)


def measured(trials: Sequence[Trial]) -> Measured:
    """Reads the trials that ended with speed cycles."""
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED) and t.speed_cycles()]
    each = [t.speed_cycles() for t in ended]
    place = np.repeat(np.arange(len(each)), [len(cycles) for cycles in each])
    every = tuple(cycle for cycles in each for cycle in cycles)
    number = np.bincount(place, minlength=len(each)).astype(np.float64)
    seconds = {
        phase: np.bincount(place, [c.phases.get(phase, 0.0) for c in every], minlength=len(each)) / number
        for phase in PHASES
    }
    noise = PROCESS_SPREAD**2 + CYCLE_SPREAD**2 / number
    return Measured(tuple(t.configuration for t in ended), seconds, noise, every)


def lengths_of(task: Task, found: Measured) -> Lengths:
    """Returns lengths in tokens: recorded completions, and the median prompt of the cycles without and with padding."""
    ours = presumed(task)
    recorded = next((tuple(c.lengths) for c in found.cycles if c.lengths), ())
    if ours.presumed and recorded:
        ours = Lengths(recorded, ours.prompt, ours.width)
    prompt = _median([c.prompt_tokens / max(1, c.rows) for c in found.cycles], ours.prompt)
    longest = max(ours.completions)
    width = _median([c.computed_tokens / max(1, c.rows) - longest for c in found.cycles], prompt)
    return replace(ours, prompt=prompt, width=max(prompt, width))


def _median(values: Sequence[float], otherwise: float) -> float:
    """Returns the median of the finite positive ``values``; ``otherwise`` without any."""
    above = [value for value in values if value > 0 and math.isfinite(value)]
    return float(np.median(above)) if above else otherwise
