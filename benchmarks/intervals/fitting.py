"""A prior of the process variance, fitted to recordings by the likelihood of their variances; each counts once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.statistics.noise import GPU_PROCESS, PROCESS, NoisePrior
from benchmarks.intervals.recordings import Array, Recording

SPREADS = np.geomspace(0.005, 1.0, 160)
SCALES = np.geomspace(0.02, 0.3, 80)
MARGIN = 1.1
"""By which the presumed spread is above the likeliest."""
DEGREES = (2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0)


def without(one: Recording, found: Sequence[Recording]) -> NoisePrior:
    """What would be presumed of ``one`` had it not been recorded."""
    return presumed([other for other in found if other is not one], on_gpu=one.on_gpu)


def presumed(found: Sequence[Recording], *, on_gpu: bool) -> NoisePrior:
    """By the recordings on such a device, but never less than all recordings show: there are few of GPUs."""
    degrees = (GPU_PROCESS if on_gpu else PROCESS).degrees
    own = [one for one in found if one.on_gpu is on_gpu]
    scales = [likeliest(some, degrees)[0].variance for some in (own, found if on_gpu else own) if some]
    return NoisePrior(MARGIN**2 * max(scales), degrees)


def likeliest(found: Sequence[Recording], degrees: float) -> tuple[NoisePrior, float]:
    """The scaled inverse chi-squared distribution with such degrees, and its log likelihood."""
    seen = [_likelihood(one) for one in found]
    scores = [_evidence(seen, scale, degrees) for scale in SCALES]
    best = int(np.argmax(scores))
    return NoisePrior(float(SCALES[best]) ** 2, degrees), scores[best]


def _likelihood(one: Recording) -> Array:
    """Of each process spread; what the cycles explain is taken as known."""
    total = SPREADS**2 + one.cycles
    logs = -0.5 * one.degrees * (np.log(total) + one.variance / total)
    found: Array = np.exp(logs - logs.max())
    return found


def _evidence(seen: Sequence[Array], scale: float, degrees: float) -> float:
    variances = SPREADS**2
    logs = -0.5 * degrees * (np.log(variances / scale**2) + scale**2 / variances)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return sum(math.log(float(weights @ one)) for one in seen)
