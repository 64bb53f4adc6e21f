"""Coverage, power and width of intervals on synthetic studies; recorded studies read again; warm-ups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.domain import Configuration, Gain, Trial
from autotune.domain.trials import still_warming
from autotune.statistics import evidence
from benchmarks.gpu.journal import rows, trial_of
from benchmarks.intervals import fitting, previous
from benchmarks.intervals.recordings import TABLES, Array, Recording
from benchmarks.intervals.simulation import GAIN, ROUNDS, Made, Noise, made, shape_of

Method = Callable[[Sequence[Trial], Configuration, Configuration], Gain | None]
NEW, UNSEEN, OLD = "new", "unseen", "old"
KNOWN = 1.96
H100_STUDY = TABLES / "h100-eight-minutes-2026-11-27.jsonl"
SHUFFLES = 10
STATIONARY = (0.03, 0.08, 0.15, 0.2)
"""Standard deviations of a cycle's logarithm; of 20,000 normal trials of three cycles each."""


@dataclass
class Tally:
    """Of one method, with so many rounds."""

    held: int = 0
    studies: int = 0
    proven: int = 0
    provable: int = 0
    """Studies whose leader truly is as fast as ``GAIN`` says."""
    widths: list[float] = field(default_factory=list)

    def count(self, gain: float, low: float, high: float) -> None:
        """An interval in logarithms."""
        self.held += low <= gain <= high
        self.studies += 1
        self.widths.append(0.5 * (high - low))
        if gain == GAIN:
            self.provable += 1
            self.proven += low > 0.0

    @property
    def coverage(self) -> float:
        return self.held / self.studies

    @property
    def power(self) -> float:
        return self.proven / max(1, self.provable)

    @property
    def width(self) -> float:
        return statistics.median(self.widths)


@dataclass(frozen=True)
class Score:
    """Of one recording."""

    recording: Recording
    tallies: Mapping[tuple[str, int], Tally]
    """By method and rounds; ``known`` has no coverage of its own."""


@dataclass(frozen=True)
class Again:
    """A recorded study, read by one method."""

    method: str
    gain: Gain


@dataclass(frozen=True)
class WarmUps:
    """Shares of trials that lose a cycle as a warm-up."""

    trials: int
    recorded: float
    turned: float
    """With the cycles in reverse order."""
    shuffled: float
    stationary: Mapping[float, float]
    """By standard deviation."""
    shift: Mapping[float, float]
    """What leaving such cycles out adds to the mean log speed of stationary trials, by standard deviation."""


def scored(one: Recording, found: Sequence[Recording], studies: int, seed: int) -> Score:
    """Of ``studies`` studies with the noise of ``one``."""
    draw = np.random.default_rng([seed, *one.name.encode()])
    noise = Noise(one, shape_of(found), draw)
    prior = fitting.without(one, found)
    methods: dict[str, Method] = {
        NEW: evidence.gain,
        UNSEEN: lambda trials, here, over: evidence.gain(trials, here, over, prior),
        OLD: previous.gain,
    }
    tallies: dict[tuple[str, int], Tally] = {}
    for _ in range(studies):
        study = made(noise, draw)
        for rounds in range(1, ROUNDS + 1):
            _count(study, rounds, methods, one.variance, tallies)
    return Score(one, tallies)


def _count(
    study: Made, rounds: int, methods: Mapping[str, Method], variance: float, tallies: dict[tuple[str, int], Tally]
) -> None:
    trials = study.until(rounds)
    for name, method in methods.items():
        gain = method(trials, study.leader, study.baseline)
        if gain is None:
            raise AssertionError("a round has a gain")
        low, high = math.log1p(gain.low), math.log1p(gain.high)
        tallies.setdefault((name, rounds), Tally()).count(study.gain, low, high)
        if name == NEW:
            middle, error = math.log1p(gain.value), KNOWN * math.sqrt(2.0 * variance / rounds)
            tallies.setdefault(("known", rounds), Tally()).count(study.gain, middle - error, middle + error)


def recorded_studies(found: Sequence[Recording]) -> list[Again]:
    """The study of the H100, by each method."""
    trials = [trial_of(row, H100_STUDY.name) for row in rows(H100_STUDY) if row.get("row") == "trial"]
    own = next(one for one in found if "2026-11-27" in one.name)
    prior = fitting.without(own, found)
    baseline, leader = trials[0].configuration, trials[-1].configuration
    gains = {
        NEW: evidence.gain(trials, leader, baseline),
        UNSEEN: evidence.gain(trials, leader, baseline, prior),
        OLD: previous.gain(trials, leader, baseline),
    }
    return [Again(name, gain) for name, gain in gains.items() if gain is not None]


def warm_ups(found: Sequence[Recording], seed: int) -> WarmUps:
    """On the CPU tables, where plain cycles are steady, and on normal noise."""
    draw = np.random.default_rng(seed)
    patterns = [p for one in found if one.name.startswith("search-cpu") for p in one.patterns]
    shuffled = [draw.permutation(p) for p in patterns for _ in range(SHUFFLES)]
    normal = {sd: draw.normal(0.0, sd, (20_000, 3)) for sd in STATIONARY}
    return WarmUps(
        trials=len(patterns),
        recorded=_dropping(patterns),
        turned=_dropping([p[::-1] for p in patterns]),
        shuffled=_dropping(shuffled),
        stationary={sd: _dropping(list(logs)) for sd, logs in normal.items()},
        shift={sd: statistics.fmean(_shift(logs) for logs in rows_of) for sd, rows_of in normal.items()},
    )


def _first(logs: Array) -> int:
    return still_warming([math.exp(-log) for log in logs])


def _dropping(patterns: Sequence[Array]) -> float:
    return sum(_first(p) > 0 for p in patterns) / len(patterns)


def _shift(logs: Array) -> float:
    first = _first(logs)
    return float(logs[first:].mean() - logs.mean()) if first else 0.0
