"""A study that looks after each round: how often does it call a leader faster that is not, and how soon one that is?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from autotune.statistics import evidence
from autotune.study import confirmation
from benchmarks.intervals.recordings import Recording
from benchmarks.intervals.simulation import GAIN, Made, Noise, made, shape_of

ROUNDS = confirmation.MAX_ROUNDS
NEVER = ROUNDS + 1


@dataclass(frozen=True)
class Looks:
    """Studies with the noise of one recording, as many without a gain as with one."""

    recording: str
    studies: int
    false: int
    """Without a gain, that call their leader faster after one of their rounds."""
    without: int
    """The same with the first look's level at every look."""
    provable: int
    """With a leader that truly is as fast as ``GAIN`` says."""
    proven: tuple[int, ...]
    """Of these, that have called it faster by each of the rounds."""


def looked(one: Recording, found: Sequence[Recording], studies: int, seed: int) -> Looks:
    """``studies`` studies without a gain, and as many with one."""
    draw = np.random.default_rng([seed, 1, *one.name.encode()])
    noise = Noise(one, shape_of(found), draw)
    idle = [_called(made(noise, draw, 0.0, ROUNDS)) for _ in range(studies)]
    some = [study for _ in range(studies) if (study := made(noise, draw, GAIN, ROUNDS)).gain == GAIN]
    at = [_called(study)[0] for study in some]
    return Looks(
        recording=one.name,
        studies=studies,
        false=sum(called < NEVER for called, _ in idle),
        without=sum(called < NEVER for _, called in idle),
        provable=len(some),
        proven=tuple(sum(called <= rounds for called in at) for rounds in range(1, ROUNDS + 1)),
    )


def _called(study: Made) -> tuple[int, int]:
    """The round after which the study calls its leader faster, by the levels as they are and with one for all looks;
    ``NEVER``, if it calls it slower or nothing. A study that has called something makes no more rounds."""
    found: list[int | None] = [None, None]
    for rounds in range(1, ROUNDS + 1):
        trials = study.until(rounds)
        for place, level in enumerate((evidence.LATER_LOOKS, evidence.FIRST_LOOK)):
            with patch.object(evidence, "LATER_LOOKS", level):
                gain = evidence.gain(trials, study.leader, study.baseline)
            if found[place] is None and gain is not None and gain.excludes_zero:
                found[place] = rounds if gain.low > 0.0 else NEVER
        if None not in found:
            break
    return found[0] or NEVER, found[1] or NEVER
