"""Synthetic studies with recorded noise: a baseline, a search, and rounds of the fastest beside the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    Outcome,
    Peaks,
    Protocol,
    Trial,
    TrialKind,
    TrialState,
)
from benchmarks.intervals.recordings import Array, Recording

GAIN = math.log(1.5)
"""Of the fastest configuration of a study."""
SEARCHED = 6
"""Configurations beside the baseline; the others are slower than the fastest by a random part of its gain and more."""
ROUNDS = 3
ENOUGH = 20
"""Recorded processes from which others are drawn; of fewer only the spread is taken, and the shape from the CPUs'."""
TOKENS = 1000
_PROTOCOL = Protocol()
_OUTCOME = Outcome()


@dataclass(frozen=True)
class Made:
    """One study, as if measured."""

    trials: tuple[Trial, ...]
    baseline: Configuration
    leader: Configuration
    gain: float
    """True logarithm of the leader's speed over the baseline's."""

    def until(self, rounds: int) -> tuple[Trial, ...]:
        """Its trials with so many rounds."""
        return tuple(t for t in self.trials if t.pair is None or t.pair < rounds)


class Noise:
    """Draws what trials differ by, from one recording."""

    def __init__(self, recording: Recording, shape: Array, draw: np.random.Generator) -> None:
        self.recording = recording
        few = len(recording.processes) < ENOUGH
        self._pool = math.sqrt(recording.variance) * shape if few else recording.processes
        self._draw = draw

    def drift(self) -> float:
        return float(self._draw.choice(self.recording.drifts))

    def cycles(self) -> Array:
        """Logarithms of a process's cycles around its configuration's speed."""
        patterns = self.recording.patterns
        found: Array = self._draw.choice(self._pool) + patterns[self._draw.integers(len(patterns))]
        return found


def shape_of(found: Sequence[Recording]) -> Array:
    """Recorded processes of all machines with enough of them, each over its recording's spread."""
    return np.concatenate([r.processes / math.sqrt(r.variance) for r in found if len(r.processes) >= ENOUGH])


def made(noise: Noise, draw: np.random.Generator, gain: float = GAIN, rounds: int = ROUNDS) -> Made:
    """One study with so many rounds, whose fastest configuration has ``gain``; with 0 all are as fast."""
    gains = [0.0, gain, *(gain * draw.uniform(-0.5, 1.0) for _ in range(SEARCHED - 1))]
    configurations = [Configuration({"micro_batch_size": n + 1}) for n in range(len(gains))]
    kinds = [TrialKind.BASELINE, *[TrialKind.SEARCH] * SEARCHED]
    on_gpu = noise.recording.on_gpu
    trials = [
        _trial(n, kind, configurations[n], gains[n] + noise.drift() + noise.cycles(), on_gpu=on_gpu)
        for n, kind in enumerate(kinds)
    ]
    leader = max(range(1, len(gains)), key=lambda n: trials[n].tokens_per_hour or 0.0)
    for pair in range(rounds):
        drift = noise.drift()
        for n in (0, leader):
            logs = gains[n] + drift + noise.cycles()
            one = _trial(len(trials), TrialKind.CONFIRM, configurations[n], logs, on_gpu=on_gpu)
            trials.append(one.with_(pair=pair))
    return Made(tuple(trials), configurations[0], configurations[leader], gains[leader])


def _trial(number: int, kind: TrialKind, configuration: Configuration, logs: Array, *, on_gpu: bool) -> Trial:
    peaks = {"cycle": Peaks(device_used=1 if on_gpu else None, host=1)}
    cycles = tuple(
        CycleRecord(
            index=index,
            cycle_kind=CycleKind.RECORDED,
            seconds=10.0 * math.exp(-log),
            phases={},
            completion_tokens=TOKENS,
            prompt_tokens=TOKENS,
            rows=8,
            updates=1,
            computed_tokens=2 * TOKENS,
            peaks=peaks,
        )
        for index, log in enumerate(logs)
    )
    return Trial(
        study_id=0,
        number=number,
        kind=kind,
        configuration=configuration,
        protocol=_PROTOCOL,
        rows_per_update=8,
        state=TrialState.COMPLETE,
        outcome=_OUTCOME,
        cycles=cycles,
        worst_case_passed=True,
    )
