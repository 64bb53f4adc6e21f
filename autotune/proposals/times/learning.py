"""The learnt part of one phase: what was measured over the prior, by the phase's own knobs. Pure.

What earlier studies measured over their own priors are observations that a new study's model begins with: a power prior
(Ibrahim and Chen, Statistical Science 15, 2000), with the weight put as a variance. Every row of an earlier study has
``ROW_SD`` of scatter beside its noise, which some three trials of a study's own outweigh. What its phases take
altogether is not carried over (``CARRIED_LEVEL_SD``): the first trial tells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.proposals.forecasts import Column
from autotune.proposals.times.columns import Layout, apart, data_of, layout_of, with_pair
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.observed import LEAST_S, Measured, process_variance
from autotune.proposals.times.regression import Data, Matrix, Neighbours, RowPosterior, Scales, fit_best

ROW_SD, ROW_SD_OF_DOUBLING = 0.25, 0.05
"""Standard deviation, in log seconds, between a row there and here; more for each doubling between the studies."""
CARRIED_LEVEL_SD = 2.0
"""Of what a phase takes there altogether, over what it takes here."""
ENOUGH = 40
"""Measured configurations from which a study needs no other's."""
DOUBT = 1.0
"""Log probability by which going without has to be ahead before earlier studies are left aside (natural logarithm)."""


@dataclass(frozen=True)
class Carried:
    """What earlier studies measured of one phase; one array element for each different row of each study."""

    own: Mapping[str, Column]
    """By knob, as ``PhaseRows.own``."""
    values: Column
    """Logarithm of measured over prior seconds."""
    noise: Column
    """Variance each value is taken with."""
    study: NDArray[np.intp]
    """Which earlier study it is of: 0, 1, ..."""
    studies: int
    """How many there are."""
    evidence: dict[float, float] = field(default_factory=dict, compare=False)
    """Logarithm of the probability of ``values`` by themselves, by the standard deviation of the constant; filled as it
    is asked for, because it is the same for every fit."""


def row_variance(distance: float) -> float:
    """Beside its noise, of a row carried over so many doublings."""
    return (ROW_SD + ROW_SD_OF_DOUBLING * distance) ** 2


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
"""Standard deviations of what no column says of a row that are tried."""
LIKENESSES = (0.0, 0.5)
"""Correlations of that between two rows that differ in one knob that are tried."""
LIKELY = (1.0, 0.08)
NEAR = 128
"""Newest measured rows that share it: a fit is cubic in their number."""


@dataclass(frozen=True)
class MeasuredRows:
    """The different rows of a phase that trials measured, and their columns; the same whatever the prior says."""

    trials: NDArray[np.bool_]
    """The phase occurred in it."""
    rows: NDArray[np.intp]
    """Places in ``PhaseRows``, each once."""
    places: NDArray[np.intp]
    """Of each trial it occurred in, its place in ``rows``."""
    keys: tuple[bytes, ...]
    own: Mapping[str, Column]
    """Of the rows, by knob."""

    @cached_property
    def near(self) -> Neighbours:
        """The newest rows."""
        last = np.zeros(len(self.rows), dtype=np.intp)
        np.maximum.at(last, self.places, np.arange(len(self.places)))
        newest = np.sort(np.argsort(last)[max(0, len(last) - NEAR) :])
        own = {name: column[newest] for name, column in self.own.items()}
        return Neighbours(newest, apart(own, own, (len(newest), len(newest))))

    def apart(self, rows: PhaseRows) -> Matrix:
        """Rows x ``near.rows``: in how many knobs they differ."""
        own = {name: column[self.near.rows] for name, column in self.own.items()}
        return apart(rows.own, own, (len(rows.keys), len(self.near.rows)))

    @cached_property
    def layout(self) -> Layout:
        """Without pairs; of any standard deviation of the constant."""
        return layout_of(self.own, 1.0)

    @cached_property
    def columns(self) -> Matrix:
        """Of the rows, by ``layout``."""
        return self.layout.matrix(self.own, len(self.rows))

    @cached_property
    def of_trials(self) -> NDArray[np.intp]:
        """Of each trial its place in ``rows``; -1 if the phase did not occur."""
        found = np.full(len(self.trials), -1, dtype=np.intp)
        found[self.trials] = self.places
        return found


def measured_rows(phase: str, rows: PhaseRows, prior: Column, found: Measured) -> MeasuredRows:
    """What trials measured of a phase; ``rows`` and ``prior`` as of ``learn``."""
    trials = (found.seconds[phase] > LEAST_S) & (prior > 0)
    unique, places = np.unique(rows.index[trials], return_inverse=True)
    own = {name: column[unique] for name, column in rows.own.items()}
    return MeasuredRows(trials, unique, places, tuple([rows.keys[i] for i in unique.tolist()]), own)


@dataclass(frozen=True)
class PhasePosterior:
    """A phase's posterior over the logarithm of measured over prior seconds."""

    layout: Layout
    posterior: RowPosterior
    size: float
    """The factor of ``SIZES`` that was chosen."""
    process: float
    """Variance between trials of one row."""
    told: MeasuredRows
    begun: bool = False
    """Earlier studies have a part in it."""

    def at(self, rows: PhaseRows) -> tuple[Column, Column]:
        """Mean and variance of each row."""
        size = len(rows.keys)
        mean, variance = self.posterior.at(self.layout.matrix(rows.own, size), self.told.apart(rows))
        # Small effects of what was measured say nothing of what was not.
        variance = variance + max(1.0, self.size**2) * self.layout.unmeasured(rows.own, size)
        places, known_mean, known_variance = self._measured
        if places:
            at = np.fromiter((places.get(key, -1) for key in rows.keys), dtype=np.intp, count=size)
            there = at >= 0
            mean[there], variance[there] = known_mean[at[there]], known_variance[at[there]]
        return mean, variance

    @cached_property
    def _measured(self) -> tuple[Mapping[bytes, int], Column, Column]:
        """Measured rows by their key, and mean and variance there. No fit asks for it, only a forecast."""
        return {key: place for place, key in enumerate(self.told.keys)}, *self.posterior.at_measured()

    @property
    def rows(self) -> NDArray[np.intp]:
        """Of each trial its place among the measured rows; -1 if the phase did not occur."""
        return self.told.of_trials

    @property
    def level_variance(self) -> float:
        """Of what all rows have in common."""
        return float(self.posterior.covariance[0, 0])


@dataclass(frozen=True)
class Residuals:
    """Of one phase: the logarithm of measured over prior seconds, of each row of a ``MeasuredRows``."""

    values: Column
    noise: Column
    """Variance of each value."""
    process: float
    """Variance between trials of one row."""


def residuals(phase: str, told: MeasuredRows, prior: Column, found: Measured) -> Residuals:
    """What trials measured over their prior; arguments as of ``learn``."""
    each = np.log(found.seconds[phase][told.trials] / prior[told.trials])
    process = process_variance(each, told.places)
    noise = process + found.cycle_variance[phase] / found.cycles[told.trials]
    weight = np.bincount(told.places, 1.0 / noise, minlength=len(told.rows))
    values = np.bincount(told.places, each / noise, minlength=len(told.rows)) / weight
    return Residuals(values, 1.0 / weight, process)


def learn(
    phase: str,
    told: MeasuredRows,
    prior: Column,
    found: Measured,
    level_sd: float,
    pairs: bool = True,
    carried: Carried | None = None,
) -> PhasePosterior:
    """From trials.

    Args:
        phase: ``Phase`` value.
        told: which rows they measured.
        prior: seconds of each trial by the prior, at what its own cycles worked on; 0: it does not occur.
        pairs: products of columns may be added.
        carried: what earlier studies measured of the phase; left aside where the trials speak against it: where both
            together are less probable than each by itself.
    """
    seen = residuals(phase, told, prior, found)
    alone = PhasePosterior(*_alone(told, seen, level_sd, pairs), seen.process, told)
    if carried is None:
        return alone
    own = {name: np.concatenate([column, carried.own[name]]) for name, column in told.own.items()}
    begun = PhasePosterior(*_grown(own, level_sd, pairs, carried, seen, told.near), seen.process, told)
    ahead = begun.posterior.evidence - alone.posterior.evidence - _evidence(carried, level_sd, pairs)
    return replace(begun, begun=True) if ahead >= -DOUBT else alone


Fit = tuple[Layout, RowPosterior, float]
"""Layout, posterior, size of the effects."""


def _alone(told: MeasuredRows, seen: Residuals, level_sd: float, pairs: bool) -> Fit:
    layout = replace(told.layout, constant_sd=level_sd)
    data = Data(told.columns, seen.values, seen.noise, told.near)
    fitted = layout, *_best(layout, data)
    if not pairs:
        return fitted
    return _with_pairs(fitted, lambda more: data.with_columns(more.matrix(told.own, len(seen.values))))


def _grown(
    own: Mapping[str, Column], level_sd: float, pairs: bool, carried: Carried, seen: Residuals, near: Neighbours
) -> Fit:
    """With what earlier studies measured; ``own`` is of the measured rows, then of the carried ones."""
    study = np.concatenate([np.full(len(seen.values), -1, dtype=np.intp), carried.study])
    both = np.concatenate([seen.values, carried.values]), np.concatenate([seen.noise, carried.noise])
    layout = layout_of(own, level_sd, (CARRIED_LEVEL_SD,) * carried.studies)
    data = data_of(layout, own, *both, near, study)
    fitted = layout, *_best(layout, data)
    if not pairs:
        return fitted
    return _with_pairs(fitted, lambda more: data.with_columns(data_of(more, own, *both, near, study).columns))


def _with_pairs(fitted: Fit, data: Callable[[Layout], Data]) -> Fit:
    """The same with the pairs that are worth it; ``data`` puts the rows into the columns of a layout."""
    layout, best, size = fitted
    while (more := with_pair(layout, best)) is not None:
        other, other_size = _best(more[0], data(more[0]))
        if other.evidence < best.evidence + more[1]:
            break
        layout, best, size = more[0], other, other_size
    return layout, best, size


def _evidence(carried: Carried, level_sd: float, pairs: bool) -> float:
    """Logarithm of the probability of what earlier studies measured, by itself."""
    if level_sd not in carried.evidence:
        nothing = Residuals(np.zeros(0), np.zeros(0), 0.0)
        alone = _grown(carried.own, level_sd, pairs, carried, nothing, Neighbours())
        carried.evidence[level_sd] = alone[1].evidence
    return carried.evidence[level_sd]


def _best(layout: Layout, data: Data) -> tuple[RowPosterior, float]:
    variance = layout.variance()
    # With nothing measured there is nothing to choose by.
    sizes, misfits = (SIZES, MISFITS) if len(data.values) else ((LIKELY[0],), (LIKELY[1],))
    tried = {}
    for size in sizes:
        scaled = np.where(layout.effects, variance * size**2, variance)
        for misfit, likeness in itertools.product(misfits, LIKENESSES):
            away = math.log2(size / LIKELY[0]) ** 2 + math.log2(misfit / LIKELY[1]) ** 2
            tried[size, misfit, likeness] = (Scales(scaled, misfit, likeness), -0.5 * away)
    best = fit_best(data, list(tried.values()))
    size = next(size for (size, *_), (scales, _) in tried.items() if scales is best.scales)
    return best, size
