"""Peaks that earlier studies measured, as observations a new study's model begins with. Pure.

What is carried are not bytes but what measurements made of the formulas. Only measured peaks are: that something ran
out of memory elsewhere could raise a forecast for good, and no trial would ever be run that shows otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotune.proposals.forecasts import Earlier, Task
from autotune.proposals.memory.features import features, limits, pools
from autotune.proposals.memory.observations import Rows, nothing, observations
from autotune.proposals.memory.regression import Observations, Posterior, Prior, fit, log_score

NOISE_FACTOR = 4.0
"""An earlier study's peak counts as so many times as noisy: sixteen of them as much as one of the study's own."""
NOISE_OF_DOUBLING = 1.0
"""More for each doubling between the studies."""
ENOUGH = 40
"""Measured peaks from which a study needs no other's."""
DOUBT = 1.0
"""Log score by which the formulas alone have to be ahead before earlier studies are left aside."""


def carried_over(task: Task, earlier: Sequence[Earlier]) -> tuple[Observations, ...]:
    """By pool of ``task`` the peaks of trials of earlier studies; none of a study that has other pools."""
    found = [nothing()] * len(pools(task))
    for one in earlier:
        if pools(one.task) != pools(task):
            continue
        told = list(dict.fromkeys(t.configuration for t in one.trials))
        places = {configuration: place for place, configuration in enumerate(told)}
        has_device = bool(one.task.resources.gpus)
        for i, (pool, limit, own) in enumerate(
            zip(pools(task), limits(one.task), features(one.task, told), strict=True)
        ):
            seen = observations(one.trials, pool, limit, Rows(places, own), alone=False, has_device=has_device)
            found[i] = found[i].joined(_doubted(seen.part(~seen.censored), one.distance))
    return tuple(found)


def _doubted(seen: Observations, distance: float) -> Observations:
    noise = seen.noise * (NOISE_FACTOR + NOISE_OF_DOUBLING * distance)
    return replace(seen, noise=noise, whole=np.zeros_like(seen.whole))


def begun(start: Prior, seen: Observations, earlier: Observations | None) -> Posterior:
    """The fit to ``seen`` and, unless that speaks against them, to what earlier studies measured.

    Args:
        start: what the formulas alone say.
        seen: the study's own.
        earlier: of the same pool; ``None`` is none.
    """
    own = int(np.sum(seen.whole & ~seen.censored))
    if earlier is None or not len(earlier.level) or own >= ENOUGH:
        return fit(start, seen)
    formulas = Posterior(start.mean, start.covariance, start.noise)
    if log_score(fit(start, earlier), seen) < log_score(formulas, seen) - DOUBT:
        return fit(start, seen)
    return fit(start, seen.joined(earlier))
