"""Compares the rewards of a configuration with those of the baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain import CycleKind, Trial
from autotune.statistics.distributions import t95

MIN_CYCLES = 2
"""Fewest natural-length cycles on either side; a single one has no spread."""


@dataclass(frozen=True)
class RewardChange:
    """Difference of two mean rewards at natural lengths, with a two-sided 95 % interval."""

    here: float
    there: float
    low: float
    high: float
    cycles: tuple[int, int]
    """Numbers of natural-length cycles (here, there)."""

    @property
    def difference(self) -> float:
        return self.here - self.there

    @property
    def worse(self) -> bool:
        """True if the whole interval lies below zero; a lower mean alone may be chance."""
        return self.high < 0

    def sentence(self) -> str:
        """States both means: ``mean reward 0.1 against 0.25, a difference of -0.15 (95 % interval -0.2 to -0.09)``."""
        return (
            f"mean reward {self.here:.3f} against {self.there:.3f}, a difference of {self.difference:+.3f} "
            f"(95 % interval {self.low:+.3f} to {self.high:+.3f})"
        )


def natural_rewards(trials: Iterable[Trial]) -> list[float]:
    """Returns the mean reward of every natural-length cycle, in order; recorded lengths would truncate completions."""
    return [
        cycle.reward_mean
        for trial in trials
        for cycle in trial.cycles
        if cycle.cycle_kind is CycleKind.NATURAL and cycle.rank == 0 and cycle.reward_mean is not None
    ]


def compare(here: Iterable[Trial], there: Iterable[Trial]) -> RewardChange | None:
    """Compares the rewards of two configurations' trials, by Student's t on the means of cycles.

    The mean of a cycle varies with prompts, sampling and the number of rows, so the spread over cycles, pooled over
    both sides, is the chance difference of two means.

    Returns:
        ``None`` with fewer than ``MIN_CYCLES`` natural-length cycles on a side.
    """
    own, other = natural_rewards(here), natural_rewards(there)
    if min(len(own), len(other)) < MIN_CYCLES:
        return None
    mine, theirs = statistics.fmean(own), statistics.fmean(other)
    degrees = len(own) + len(other) - 2
    squares = sum((v - mine) ** 2 for v in own) + sum((v - theirs) ** 2 for v in other)
    error = t95(degrees) * math.sqrt(squares / degrees * (1.0 / len(own) + 1.0 / len(other)))
    gap = mine - theirs
    return RewardChange(mine, theirs, gap - error, gap + error, (len(own), len(other)))
