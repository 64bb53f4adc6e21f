"""Chooses a candidate: the highest expected improvement x probability of holding / expected seconds of its trial."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import SURE
from autotune.proposals.grey.surfaces import Array
from autotune.statistics.distributions import normal_below

LIKELY = 0.75
"""Least probability of holding of a candidate that is chosen, while any has it: a failed trial costs as much as
another, tells less, and may need a restart. A search with a memory model has its own limits (``likely_from``)."""
SEVERAL = 5
"""Measured trials from which a forecast of memory is trusted more, so that less room than ``SURE`` is enough."""
LESS_LIKELY = 0.6
"""What is enough from then on. The fastest that fits often lies right below the limit, where a forecast is never sure:
with 0.75 throughout, the three best rows of a recorded table stayed untried in most searches."""
MAX_OOMS, OOM_WINDOW = 2, 30
CAREFUL = 0.95
"""After ``MAX_OOMS`` of ``OOM_WINDOW`` trials ran out of memory, only candidates that hold with this probability are
chosen, while there are any."""
BARS = (CAREFUL, SURE, LIKELY, LESS_LIKELY)
"""Where nothing is likely enough, the next of these is asked for."""
TIE = 0.01
"""Scores this close, in logarithms, are equal; then the one that restarts less."""
LEAST_SPREAD = 0.005
"""No forecast of a logarithm of tokens/hour is surer than that."""
NEVER = -1e9
FAR = -20.0
"""Standard deviations from which the improvement is computed by its series."""


@dataclass(frozen=True)
class Outlook:
    """Predictions for each candidate: speed, memory, cost of its trial."""

    value: Array
    """Mean of the natural logarithm of tokens/hour."""
    spread: Array
    """Its standard deviation."""
    holds: Array
    """Probability that it fits and passes the guards."""
    seconds: Array
    """Of a trial of it."""
    restarts: NDArray[np.int64]
    """How much has to be started anew for it, ascending in cost."""


def log_improvement(value: Array, spread: Array, best: float) -> Array:
    """Logarithm of the expected improvement over ``best`` (Jones et al., Journal of Global Optimization 13, 1998).

    Far below the best the difference of two tails is taken from their series, so that order is kept there too.
    """
    spread = np.maximum(spread, LEAST_SPREAD)
    z = (value - best) / spread
    density = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)
    near = np.maximum(z, FAR)
    close = near * normal_below(near) + np.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi)
    far = np.minimum(z, FAR) ** -2.0
    tail = density + np.log(far) + np.log1p(-3.0 * far + 15.0 * far * far)
    shape: Array = np.where(z < FAR, tail, np.log(np.maximum(close, 1e-300)))
    return np.log(spread) + shape


def score(outlook: Outlook, best: float) -> Array:
    """Logarithm of expected improvement x probability / seconds."""
    gain = log_improvement(outlook.value, outlook.spread, best)
    return gain + np.log(np.maximum(outlook.holds, 1e-12)) - np.log(np.maximum(outlook.seconds, 1e-9))


def likely_from(measured: int, ran_out: int = 0) -> float:
    """The probability of holding from which a candidate is likely enough, by a memory model.

    Args:
        ran_out: trials that ran out of memory.
    """
    if ran_out >= MAX_OOMS * max(1.0, (measured + ran_out) / OOM_WINDOW):
        return CAREFUL
    return SURE if measured < SEVERAL else LESS_LIKELY


def likely(holds: Array, least: float) -> NDArray[np.bool_]:
    """Which are as likely as ``least``, or as the next of ``BARS`` where none is; all where none is that either."""
    for bar in (least, *(b for b in BARS if b < least)):
        if (found := holds >= bar).any():
            return found
    return np.ones(len(holds), dtype=np.bool_)


def choice(outlook: Outlook, best: float, least: float = LIKELY) -> int:
    """The candidate's place among those of ``outlook``, of which there is at least one.

    Args:
        least: probability of holding below which nothing is chosen while anything is above; where nothing is, the next
            of ``BARS`` counts.
    """
    scores = np.where(likely(outlook.holds, least), score(outlook, best), NEVER)
    equal = np.flatnonzero(scores >= scores.max() - TIE)
    order = np.lexsort((equal, -scores[equal], outlook.restarts[equal]))
    return int(equal[order[0]])
