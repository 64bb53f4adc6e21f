"""Do the residuals speak against the prior? It is weighed against having none. Pure.

Each measured configuration's cycle is foretold from all others, once with the prior and once with a constant in its
place (the same columns, a level of any height: a ridge regression of log seconds). The prior is not trusted when its
summed logarithmic score is clearly the lower one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.proposals.forecasts import Column
from autotune.proposals.times.learning import Learnt, Told
from autotune.proposals.times.observed import Measured

LEAST_CONFIGURATIONS = 4
"""Fewer say nothing of either."""
MARGIN = 2.0
"""The score by which having no prior has to be ahead (natural logarithm: seven to one)."""


@dataclass(frozen=True)
class Account:
    """What a prior made of the trials."""

    found: Measured
    """Seconds where the prior has them."""
    learnt: Mapping[str, Learnt]
    foretold: Mapping[str, Column]
    """Prior seconds of each trial, by ``Phase`` value."""
    told: Mapping[str, Told]
    """Which rows were measured, by ``Phase`` value."""


def enough(found: Measured) -> bool:
    """Whether there is anything to judge by."""
    return found.different >= LEAST_CONFIGURATIONS


def holds(ours: Account, plain: Account) -> bool:
    """Whether our prior may be trusted; ``plain`` is what none made of the same trials."""
    return score(ours) >= score(plain) - MARGIN


def score(account: Account) -> float:
    """Log probability of the measured cycles, each foretold without its own rows; each configuration counts once."""
    found = account.found
    moment = np.zeros(len(found.whole))
    seconds: dict[str, Column] = {}
    for phase, known in account.learnt.items():
        occurs = known.rows >= 0
        seconds[phase] = np.where(occurs, 0.0, found.seconds[phase])
        if not np.any(occurs):
            continue
        mean, variance = known.posterior.left_out()
        place = known.rows[occurs]
        seconds[phase][occurs] = account.foretold[phase][occurs] * np.exp(np.clip(mean[place], -50.0, 50.0))
        moment[occurs] += np.square(seconds[phase][occurs]) * variance[place]
    total = np.sum(list(seconds.values()), axis=0)
    variance_of_log = np.maximum(moment / np.square(total), 1e-6)
    away = np.log(found.whole / total)
    each = -0.5 * (np.square(away) / variance_of_log + np.log(2.0 * math.pi * variance_of_log))
    return float(np.sum(each * found.shares))
