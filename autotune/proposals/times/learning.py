"""The learnt part of one phase: what was measured over the prior, by the phase's own knobs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.proposals.forecasts import Column
from autotune.proposals.times.carried import DOUBT, Carried
from autotune.proposals.times.carried import LEVEL_SD as CARRIED_LEVEL_SD
from autotune.proposals.times.columns import Layout, data_of, layout_of, with_pair
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.observed import LEAST_S, Measured, process_variance
from autotune.proposals.times.regression import Data, Posterior, Scales, fit_best

LEVEL_SD: Mapping[str, float] = {
    Phase.GENERATE.value: 0.4,
    Phase.LOGPROB.value: 0.4,
    Phase.UPDATE.value: 0.35,
    Phase.SYNC.value: 0.8,
    Phase.REWARD.value: 1.5,
    Phase.WAIT.value: 1.0,
    Phase.IDLE.value: 1.0,
}
"""Standard deviation of the logarithm of a phase's seconds over the prior's, where the machine is known."""
SIZES = (0.5, 1.0, 2.0)
"""Factors of all effects' standard deviations that are tried."""
MISFITS = (0.03, 0.08, 0.2)
"""Standard deviations of a row's own part that are tried."""
LIKELY = (1.0, 0.08)


@dataclass(frozen=True)
class Learnt:
    """A phase's posterior over the logarithm of measured over prior seconds."""

    layout: Layout
    posterior: Posterior
    size: float
    """The factor of ``SIZES`` that was chosen."""
    process: float
    """Variance between trials of one row."""
    seen: Mapping[bytes, tuple[float, float]] = field(default_factory=dict)
    """Mean and variance at measured rows, by their key."""
    rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """Of each trial its place among the measured rows; -1 if the phase did not occur."""
    begun: bool = False
    """Earlier studies have a part in it."""

    def at(self, rows: PhaseRows) -> tuple[Column, Column]:
        """Mean and variance of each row."""
        size = len(rows.keys)
        mean, variance = self.posterior.at(self.layout.matrix(rows.own, size))
        # Small effects of what was measured say nothing of what was not.
        variance = variance + max(1.0, self.size**2) * self.layout.unmeasured(rows.own, size)
        for place, key in enumerate(rows.keys) if self.seen else ():
            if (found := self.seen.get(key)) is not None:
                mean[place], variance[place] = found
        return mean, variance

    @property
    def level_variance(self) -> float:
        """Of what all rows have in common."""
        return float(self.posterior.covariance[0, 0])


@dataclass(frozen=True)
class Residuals:
    """Of one phase: the logarithm of measured over prior seconds, of each different row that was measured."""

    rows: NDArray[np.intp]
    """Places in ``PhaseRows``."""
    told: NDArray[np.bool_]
    """Of each trial: the phase occurred."""
    places: NDArray[np.intp]
    """Of each trial that is ``told``, its place in ``rows``."""
    values: Column
    noise: Column
    """Variance of each value."""
    process: float
    """Variance between trials of one row."""


def residuals(phase: str, rows: PhaseRows, prior: Column, found: Measured) -> Residuals:
    """What trials measured over their prior; arguments as of ``learn``."""
    seconds = found.seconds[phase]
    told = (seconds > LEAST_S) & (prior > 0)
    each = np.log(seconds[told] / prior[told])
    unique, places = np.unique(rows.index[told], return_inverse=True)
    process = process_variance(each, places)
    noise = process + found.cycle_variance[phase] / found.cycles[told]
    weight = np.bincount(places, 1.0 / noise, minlength=len(unique))
    values = np.bincount(places, each / noise, minlength=len(unique)) / weight
    return Residuals(unique, told, places, values, 1.0 / weight, process)


def learn(
    phase: str,
    rows: PhaseRows,
    prior: Column,
    found: Measured,
    level_sd: float,
    pairs: bool = True,
    carried: Carried | None = None,
) -> Learnt:
    """From trials.

    Args:
        phase: ``Phase`` value.
        rows: of the trials.
        prior: seconds of each trial by the prior, at what its own cycles worked on; 0: it does not occur.
        found: what the trials measured.
        level_sd: of the constant.
        pairs: products of columns may be added.
        carried: what earlier studies measured of the phase; left aside where the trials speak against it: where both
            together are less probable than each by itself.
    """
    seen = residuals(phase, rows, prior, found)
    alone = _fitted(rows, seen, level_sd, pairs, None)
    if carried is None:
        return alone
    begun = _fitted(rows, seen, level_sd, pairs, carried)
    ahead = begun.posterior.evidence - alone.posterior.evidence - _evidence(carried, level_sd, pairs)
    return replace(begun, begun=True) if ahead >= -DOUBT else alone


def _fitted(rows: PhaseRows, seen: Residuals, level_sd: float, pairs: bool, carried: Carried | None) -> Learnt:
    own = _columns(rows, seen, carried)
    layout, best, size = _grown(own, level_sd, pairs, carried, seen.values, seen.noise)
    mean, variance = best.at_measured()
    at = {rows.keys[row]: (float(mean[i]), float(variance[i])) for i, row in enumerate(seen.rows)}
    where = np.full(len(seen.told), -1, dtype=np.intp)
    where[seen.told] = seen.places
    return Learnt(layout, best, size, seen.process, at, where)


def _grown(
    own: Mapping[str, Column], level_sd: float, pairs: bool, carried: Carried | None, values: Column, noise: Column
) -> tuple[Layout, Posterior, float]:
    """The layout with the pairs that are worth it, its posterior and the size of its effects."""
    layout = layout_of(own, level_sd, (CARRIED_LEVEL_SD,) * (carried.studies if carried else 0))
    best, size = _best(layout, _data(layout, own, values, noise, carried))
    while pairs and (more := with_pair(layout, best)) is not None:
        other, other_size = _best(more[0], _data(more[0], own, values, noise, carried))
        if other.evidence < best.evidence + more[1]:
            break
        layout, best, size = more[0], other, other_size
    return layout, best, size


def _evidence(carried: Carried, level_sd: float, pairs: bool) -> float:
    """Logarithm of the probability of what earlier studies measured, by itself."""
    if level_sd not in carried.evidence:
        nothing = np.zeros(0)
        carried.evidence[level_sd] = _grown(carried.own, level_sd, pairs, carried, nothing, nothing)[1].evidence
    return carried.evidence[level_sd]


def _columns(rows: PhaseRows, seen: Residuals, carried: Carried | None) -> Mapping[str, Column]:
    """Knobs of the measured rows, then of the carried ones."""
    own = {name: column[seen.rows] for name, column in rows.own.items()}
    return own if carried is None else {name: np.concatenate([own[name], carried.own[name]]) for name in own}


def _data(layout: Layout, own: Mapping[str, Column], values: Column, noise: Column, carried: Carried | None) -> Data:
    if carried is None:
        return data_of(layout, own, values, noise)
    study = np.concatenate([np.full(len(values), -1, dtype=np.intp), carried.study])
    both = np.concatenate([values, carried.values]), np.concatenate([noise, carried.noise])
    return data_of(layout, own, *both, study)


def _best(layout: Layout, data: Data) -> tuple[Posterior, float]:
    variance = layout.variance()
    # With nothing measured there is nothing to choose by.
    sizes, misfits = (SIZES, MISFITS) if len(data.values) else ((LIKELY[0],), (LIKELY[1],))
    tried = {}
    for size in sizes:
        scaled = np.where(layout.effects, variance * size**2, variance)
        for misfit in misfits:
            away = math.log2(size / LIKELY[0]) ** 2 + math.log2(misfit / LIKELY[1]) ** 2
            tried[size, misfit] = (Scales(scaled, misfit), -0.5 * away)
    best = fit_best(data, list(tried.values()))
    size = next(size for (size, _), (scales, _) in tried.items() if scales is best.scales)
    return best, size
