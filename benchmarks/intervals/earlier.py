"""What it would bring to presume of processes what earlier studies on the same machine have shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from autotune.domain import Trial
from autotune.statistics import evidence
from autotune.statistics.noise import NoisePrior
from benchmarks.intervals.recordings import Recording
from benchmarks.intervals.scoring import Tally
from benchmarks.intervals.simulation import Noise, made, shape_of

SAME_MACHINE_DEGREES = 20.0
"""What another study on the same machine tells at most: the nine tables benchmarks/tables/search-cpu-*.jsonl.gz, of
nine models on one kind of machine, are nearly as likely with 20 degrees as with more."""
EARLIER = (0, 1, 3, 8)
"""Studies that ran before, of two rounds each."""


def learnt(studies: Sequence[Sequence[Trial]]) -> NoisePrior | None:
    """What studies tell the next one of the variance between processes; ``None`` without any."""
    prior = None
    for trials in studies:
        found = evidence.process_noise(trials, prior).process
        prior = NoisePrior(found.variance, min(found.degrees, SAME_MACHINE_DEGREES))
    return prior


def scored(one: Recording, found: Sequence[Recording], studies: int, seed: int) -> list[Tally]:
    """One round, for each of ``EARLIER``: coverage and power where earlier studies have the noise of ``one`` too."""
    draw = np.random.default_rng([seed, 3, *one.name.encode()])
    noise = Noise(one, shape_of(found), draw)
    tallies = [Tally() for _ in EARLIER]
    for _ in range(studies):
        study = made(noise, draw)
        before = [made(noise, draw, rounds=2).trials for _ in range(max(EARLIER))]
        for tally, count in zip(tallies, EARLIER, strict=True):
            gain = evidence.gain(study.until(1), study.leader, study.baseline, learnt(before[:count]))
            if gain is not None:
                tally.count(study.gain, math.log1p(gain.low), math.log1p(gain.high))
    return tallies


def lines(found: Sequence[Recording], studies: int, seed: int) -> Iterator[str]:
    """A Markdown table, a row as soon as it is known."""
    yield f"| recording | {' | '.join(f'covers, {n} before | proves 1.5' for n in EARLIER)} |"
    yield f"|{'---|' * (1 + 2 * len(EARLIER))}"
    for one in found:
        cells = [f"{t.coverage:.1%} | {t.power:.0%}" for t in scored(one, found, studies, seed)]
        yield f"| {one.name} | {' | '.join(cells)} |"
