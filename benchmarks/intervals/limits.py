"""What keeps one round from proving a true 1.5 times: cycles, processes, or what is not known of their spread?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from autotune.statistics import evidence
from autotune.statistics.noise import NoisePrior
from benchmarks.intervals.earlier import SAME_MACHINE_DEGREES
from benchmarks.intervals.recordings import CYCLES, Array, Recording
from benchmarks.intervals.scoring import KNOWN, Tally
from benchmarks.intervals.simulation import Made, Noise, made, shape_of

MANY = (1, 2, 4)
"""Times as many cycles of a process as are recorded."""
PROCESSES = (1, 2)
"""Of each configuration, looked at together."""
TODAY, MACHINE, EXACT = "as it is", "the machine known", "the spread known"
WAYS = (TODAY, MACHINE, EXACT)


@dataclass(frozen=True)
class Limit:
    """Of one recording, with so many cycles of each process and processes of each configuration."""

    recording: str
    cycles: int
    processes: int
    tallies: tuple[Tally, ...]
    """By ``WAYS``: the interval as it is at 95 %; with what this recording's processes truly differ by for a prior, as
    if earlier studies of the machine had shown it; and by the spread known exactly."""


class _Longer(Noise):
    """Processes with ``many`` times as many cycles."""

    def __init__(self, recording: Recording, shape: Array, draw: np.random.Generator, many: int) -> None:
        own = max(0.0, recording.variance - recording.cycles)
        variance, cycles = own + recording.cycles / many, recording.cycles / many
        less = math.sqrt(variance / recording.variance)
        whole = replace(recording, variance=variance, cycles=cycles, processes=recording.processes * less)
        super().__init__(whole, shape, draw)
        self._many, self._chance = many, draw

    def cycles(self) -> Array:
        """The process's luck, and the cycles of so many recorded trials around it."""
        patterns = self.recording.patterns
        more = [patterns[self._chance.integers(len(patterns))] for _ in range(self._many - 1)]
        found = super().cycles()
        return np.concatenate([found, *(found.mean() + one for one in more)])


def limits(found: Sequence[Recording], studies: int, seed: int) -> Iterator[Limit]:
    """Of the recordings of GPUs."""
    for one in (recording for recording in found if recording.on_gpu):
        for many in MANY:
            draw = np.random.default_rng([seed, 2, many, *one.name.encode()])
            noise = _Longer(one, shape_of(found), draw, many)
            every = [made(noise, draw, rounds=max(PROCESSES)) for _ in range(studies)]
            for processes in PROCESSES:
                yield Limit(one.name, CYCLES * many, processes, _tallies(noise.recording, every, processes))


def _tallies(one: Recording, every: Sequence[Made], processes: int) -> tuple[Tally, ...]:
    machine = NoisePrior(max(1e-6, one.variance - one.cycles), SAME_MACHINE_DEGREES)
    found = tuple(Tally() for _ in WAYS)
    for study in every:
        for tally, prior in zip(found, (None, machine, None), strict=True):
            with patch.object(evidence, "LATER_LOOKS", evidence.FIRST_LOOK):
                gain = evidence.gain(study.until(processes), study.leader, study.baseline, prior)
            if gain is None:
                continue
            low, high = math.log1p(gain.low), math.log1p(gain.high)
            if tally is found[-1]:
                middle, error = 0.5 * (low + high), KNOWN * math.sqrt(2.0 * one.variance / processes)
                low, high = middle - error, middle + error
            tally.count(study.gain, low, high)
    return found


def as_text(found: Sequence[Limit]) -> str:
    """A table: power, and coverage in brackets."""
    lines = [f"| recording | cycles | processes a side | {' | '.join(WAYS)} |", f"|{'---|' * (3 + len(WAYS))}"]
    for one in found:
        cells = [f"{tally.power:.0%} ({tally.coverage:.0%})" for tally in one.tallies]
        lines.append(f"| {one.recording} | {one.cycles} | {one.processes} | {' | '.join(cells)} |")
    return "\n".join(lines)
