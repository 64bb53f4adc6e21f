"""A search replayed on a table: what it tries, what that costs, and how good the row is that it would return."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Trial, TrialState
from autotune.proposals.candidate_grid import Mask
from benchmarks.search.world import World, is_oom

SHARES = (0.10, 0.05, 0.02)
"""What may be missing of the best row's tokens/hour."""
FIRST = 30
"""Trials whose OOMs are counted."""


class Session(Protocol):
    """One search. It may keep what it likes between calls."""

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        """The place of the row to try next.

        Args:
            history: the baseline and every trial so far, by number.
            left: which rows may be proposed; never none.
        """
        ...


Filter = Callable[[Sequence[Trial]], Mask]
"""The rows a memory filter lets through after a history."""


@dataclass(frozen=True)
class Course:
    """One search on one world, the baseline aside."""

    arm: str
    world: str
    seed: int
    rows: tuple[int, ...]
    """What was tried, in order; no row twice."""
    seconds: tuple[float, ...]
    """Of each trial."""
    wasted: tuple[float, ...]
    """Seconds of each trial that out-of-memory failures cost: its own where it ran out, else what its start-up took
    longer because the worker it could have used was gone."""
    ooms: tuple[bool, ...]
    missing: tuple[float, ...]
    """After each trial, of the row that looks fastest by then: the share of the best row's tokens/hour it lacks."""

    def reached(self, share: float) -> int | None:
        """Trials until the row to be returned lacks at most ``share``; ``None`` if that was not within the budget."""
        return next((n for n, missing in enumerate(self.missing, start=1) if missing <= share), None)

    def first_ooms(self) -> int:
        """How many of the first trials ran out of memory."""
        return sum(self.ooms[:FIRST])

    def lost(self) -> float:
        """Share of the first trials' seconds that out-of-memory failures cost, the worker's replacement included."""
        spent = sum(self.seconds[:FIRST])
        return sum(self.wasted[:FIRST]) / spent if spent else 0.0


def replay(
    world: World,
    arm: str,
    session: Session,
    seed: int,
    *,
    most: int,
    memory_filter: Filter | None = None,
    beside: int = 0,
) -> Course:
    """At most ``most`` trials after the baseline, fewer where the rows are used up.

    Args:
        world: what is searched.
        arm: name of the search.
        session: the search itself, new.
        seed: of the trials' noise: all searches of one seed see the same trial of a row.
        most: trials after the baseline.
        memory_filter: keeps rows from the session; one that lets nothing through is left aside.
        beside: trials that run while one is proposed, the newest; no result of theirs is known.
    """
    history = [world.draw(world.baseline, 0, seed)]
    left = np.ones(len(world.configurations), dtype=np.bool_)
    left[world.baseline] = False
    values = {world.baseline: _value(history[0])}
    meter = Meter(world, world.baseline, history[0])
    rows: list[int] = []
    missing: list[float] = []
    while len(rows) < most and left.any():
        finished = _finished(history, beside)
        allowed = left if memory_filter is None else left & memory_filter(finished)
        allowed = allowed if allowed.any() else left
        row = session.propose(finished, allowed.copy())
        if not allowed[row]:
            raise RuntimeError(f"{arm} proposed row {row} of {world.name}, which it may not")
        trial = world.draw(row, len(history), seed)
        meter.count(row, trial)
        rows.append(row)
        left[row] = False
        history.append(trial)
        values[row] = _value(trial)
        best = max(values, key=lambda i: (values[i], -i))
        missing.append(world.missing(best if values[best] > -math.inf else None))
    ooms = tuple(is_oom(trial) for trial in history[1:])
    return Course(arm, world.name, seed, tuple(rows), tuple(meter.seconds), tuple(meter.wasted), ooms, tuple(missing))


def _finished(history: Sequence[Trial], beside: int) -> tuple[Trial, ...]:
    """What is known while the newest ``beside`` run; the baseline ran before them."""
    ended = max(1, len(history) - beside)
    blank = {"state": TrialState.RUNNING, "outcome": None, "cycles": (), "worst_case_passed": False, "seconds": None}
    return (*history[:ended], *(t.with_(**blank) for t in history[ended:]))


class Meter:
    """Seconds of one trial after the other: a row costs a warm start where the trial before left a worker for it."""

    def __init__(self, world: World, row: int, trial: Trial) -> None:
        self._world = world
        self._before, self._ended_well = row, trial.feasible
        self._oom = is_oom(trial)
        self.seconds: list[float] = []
        self.wasted: list[float] = []

    def count(self, row: int, trial: Trial) -> None:
        """The next trial."""
        cost, keys = self._world.costs[row], self._world.keys
        same = keys[row] == keys[self._before]
        start = cost.warm if same and self._ended_well else cost.cold
        self.seconds.append(cost.work + start)
        spared = max(0.0, start - cost.warm) if same and self._oom else 0.0
        self.wasted.append(self.seconds[-1] if is_oom(trial) else spared)
        self._before, self._ended_well, self._oom = row, trial.feasible, is_oom(trial)


def _value(trial: Trial) -> float:
    """Logarithm of the measured tokens/hour."""
    speed = trial.tokens_per_hour
    return math.log(speed) if trial.feasible and speed else -math.inf


@dataclass(frozen=True)
class Interval:
    """A median over seeds with a two-sided 95 % bootstrap interval; ``inf`` stands for what was not reached."""

    middle: float
    low: float
    high: float


REPEATS = 2000


def medians(values: Sequence[float], draws: np.random.Generator) -> Interval:
    """The median of ``values`` and the interval of resampled ones."""
    sample = np.array(values)
    drawn = np.sort(sample[draws.integers(len(sample), size=(REPEATS, len(sample)))], axis=1)
    found = np.sort(_middle(drawn))
    return Interval(statistics.median(values), *_ends(found))


def ratio(ours: Sequence[float], theirs: Sequence[float], draws: np.random.Generator) -> Interval:
    """Median of theirs / median of ours, of the same seeds: each resample draws seeds, for both alike.

    Where ours was not reached the ratio is 0, unless theirs was not either: then it is 1.
    """
    places = draws.integers(len(ours), size=(REPEATS, len(ours)))
    mine, other = (_middle(np.sort(np.array(v)[places], axis=1)) for v in (ours, theirs))
    found = np.sort([_quotient(a, b) for a, b in zip(mine, other, strict=True)])
    return Interval(_quotient(statistics.median(ours), statistics.median(theirs)), *_ends(found))


def _quotient(ours: float, theirs: float) -> float:
    if math.isinf(ours):
        return 1.0 if math.isinf(theirs) else 0.0
    return theirs / ours


def _middle(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """Medians of sorted rows; the mean of two middle ones is ``inf`` where either is."""
    half, odd = divmod(ordered.shape[1], 2)
    found: NDArray[np.float64] = (ordered[:, half if odd else half - 1] + ordered[:, half]) / 2
    return found


def _ends(found: np.ndarray) -> tuple[float, float]:
    low, high = int(0.025 * (len(found) - 1)), math.ceil(0.975 * (len(found) - 1))
    return float(found[low]), float(found[high])
