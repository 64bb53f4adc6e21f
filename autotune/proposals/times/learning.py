"""The learnt part of one phase: a Gaussian process through what was measured over the prior, by the phase's own knobs.

    y_i = log(measured / prior) of row i + noise_i,    covariance of two rows =
        level² + size² · sum of effects of knobs + misfit² · likeness^(knobs in which they differ)

The effect of a choice is shared by rows with the same value, that of a number goes along its doublings. The last term
is what no knob says of a row by itself: at a measured row the forecast is the measurement, and rows next to it have
that in part. ``size``, ``misfit`` and ``likeness`` are the most probable of a few (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006: chapter 2.7, and equations 5.10 to 5.12 for leaving one out).

What earlier studies measured over their own priors are further rows, with ``ROW_SD`` of scatter beside their noise (a
power prior; Ibrahim and Chen, Statistical Science 15, 2000). How fast everything was there is not carried over: each
study has a level of its own (``CARRIED_LEVEL_SD``). Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.proposals.forecasts import Column
from autotune.proposals.times.features import OFF, PhaseRows, constants, is_number
from autotune.proposals.times.observed import LEAST_S, Measured, pooled
from autotune.statistics.noise import PROCESS_SPREAD

Matrix = NDArray[np.float64]

CHOICE_SD = 0.3
"""Of one value of a choice, in log seconds; two values differ by the square root of 2 times that."""
SLOPE_SD = 0.12
"""Of a number's effect, in log seconds for each doubling."""
ROW_SD, ROW_SD_OF_DOUBLING = 0.25, 0.05
"""Standard deviation, in log seconds, between a row there and here; more for each doubling between the studies."""
CARRIED_LEVEL_SD = 2.0
"""Of what a phase takes there altogether, over what it takes here."""
ENOUGH = 40
"""Measured configurations from which a study needs no other's."""
DOUBT = 1.0
"""Log probability by which going without has to be ahead before earlier studies are left aside (natural logarithm)."""
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


@dataclass(frozen=True)
class Scales:
    """Scales of the effects and of the misfit."""

    size: float = 1.0
    """Factor of all effects' standard deviations."""
    misfit: float = 0.08
    """Standard deviation of what no knob says of a row."""
    likeness: float = 0.0
    """Correlation of that between two rows that differ in one knob."""

    @property
    def weight(self) -> float:
        """Logarithm of the prior probability, but for a constant."""
        return -0.5 * (math.log2(self.size) ** 2 + math.log2(self.misfit / 0.08) ** 2)

    def of(self, effects: Matrix, near: Matrix) -> Matrix:
        """Covariance of rows; ``effects``: what knobs' effects have in common, ``near``: as of ``alike``."""
        found: Matrix = self.size**2 * effects + self.misfit**2 * near
        return found


def alike(likeness: float, apart: Matrix) -> Matrix:
    """``likeness`` to the power of each of ``apart``, which are whole numbers."""
    powers = np.power(likeness, np.arange(int(apart.max(initial=0)) + 1, dtype=np.float64))
    found: Matrix = powers[apart.astype(np.intp)]
    return found


TRIED = tuple(Scales(*one) for one in itertools.product((0.5, 1.0, 2.0), (0.03, 0.08, 0.2), (0.0, 0.5)))


@dataclass(frozen=True)
class Knobs:
    """Measured rows by their knobs. Rows are compared by those that changed where they act; with no rows, by none."""

    own: Mapping[str, Column]
    """Of the rows, by knob, as ``PhaseRows.own``."""
    count: int
    """How many rows."""
    numbers: Mapping[str, float]
    """Knob -> mean of what was measured."""
    choices: Mapping[str, Column]
    """Knob -> values that were measured."""
    steady: Mapping[str, float]
    """Knobs that had one value in all that was measured: knob -> that value."""

    @classmethod
    def of(cls, own: Mapping[str, Column], count: int) -> Knobs:
        same = constants(own)
        acting = {name: column[column != OFF] for name, column in own.items() if name not in same}
        values = {name: np.unique(column) for name, column in acting.items()}
        several = {name: found for name, found in values.items() if len(found) > 1}
        return cls(
            own=own,
            count=count,
            numbers={name: float(np.mean(acting[name])) for name in several if is_number(name)},
            choices={name: found for name, found in several.items() if not is_number(name)},
            steady={name: value for name, value in same.items() if value != OFF}
            | {name: float(found[0]) for name, found in values.items() if len(found) == 1},
        )

    @cached_property
    def same(self) -> Mapping[str, float]:
        """Knobs with one value in all rows, ``OFF`` too."""
        return constants(self.own)

    @cached_property
    def among(self) -> tuple[Matrix, Matrix]:
        """For all pairs of rows: covariance of the knobs' effects, and the number of knobs in which they differ."""
        return self.columns_of_own @ self.columns_of_own.T, self.apart(self.own, self.count)

    @cached_property
    def columns_of_own(self) -> Matrix:
        return self.columns(self.own, self.count)

    def columns(self, own: Mapping[str, Column], size: int) -> Matrix:
        """rows x effects, whose products are what rows have in common."""
        slopes = [SLOPE_SD * np.where(own[n] == OFF, 0.0, own[n] - middle) for n, middle in self.numbers.items()]
        values = [CHOICE_SD * (own[n] == v) for n, found in self.choices.items() for v in found]
        return np.column_stack([np.zeros(size), *slopes, *values])

    def unmeasured(self, own: Mapping[str, Column], size: int) -> Column:
        """Variance by a value of a choice, or of a knob that never changed, that nobody measured."""
        found = np.zeros(size)
        for name, values in self.choices.items():
            found += CHOICE_SD**2 * ~np.isin(own[name], [OFF, *values])
        for name in own.keys() & self.steady.keys():
            value = self.steady[name]
            other = (own[name] != value) & (own[name] != OFF)
            if is_number(name):
                found += np.square(np.where(other, SLOPE_SD * (own[name] - value), 0.0))
            else:
                found += 2.0 * CHOICE_SD**2 * other
        return found

    def apart(self, own: Mapping[str, Column], size: int) -> Matrix:
        """``size`` other rows x these: in how many knobs of ``own`` they differ."""
        # Most knobs are the same everywhere; the others are counted by products of indicators of their values.
        differ = [
            (here, self.own[name], np.unique(self.own[name]))
            for name, here in own.items()
            if self.count and not (name in self.same and (here == self.same[name]).all())
        ]
        if not differ:
            return np.zeros((size, self.count))
        ours = np.concatenate([here[:, None] == values for here, _, values in differ], axis=1).astype(np.float64)
        theirs = np.concatenate([there[:, None] == values for _, there, values in differ], axis=1).astype(np.float64)
        found: Matrix = len(differ) - ours @ theirs.T
        return found


@dataclass(frozen=True)
class Rows:
    """Measured rows of one phase; one array element each."""

    knobs: Knobs
    values: Column
    """Logarithm of measured over prior seconds."""
    noise: Column
    """Variance of each value."""
    study: NDArray[np.intp]
    """Which earlier study it is of: 0, 1, ...; -1: of this one."""

    def joined(self, others: Rows) -> Rows:
        """These rows, then others."""
        own = {name: np.concatenate([column, others.knobs.own[name]]) for name, column in self.knobs.own.items()}
        values, noise = np.concatenate([self.values, others.values]), np.concatenate([self.noise, others.noise])
        return Rows(Knobs.of(own, len(values)), values, noise, np.concatenate([self.study, others.study]))


@dataclass(frozen=True)
class Process:
    """A Gaussian process that knows some rows; with none it is the prior, in which all rows are alike."""

    rows: Rows
    level_sd: float
    scales: Scales
    inverse: Matrix
    """Of the covariance of the values."""
    evidence: float
    """Logarithm of the probability of the values."""

    @cached_property
    def weights(self) -> Column:
        """Weight of each measured row in a forecast, by its covariance with the predicted row."""
        found: Column = self.inverse @ self.rows.values
        return found

    def at(self, own: Mapping[str, Column], size: int) -> tuple[Column, Column]:
        """Mean and variance of ``size`` rows nobody measured, their misfit included.

        ``own`` may leave out knobs that have one value there and in all rows.
        """
        knobs = self.rows.knobs
        columns, near = knobs.columns(own, size), alike(self.scales.likeness, knobs.apart(own, size))
        cross = self.level_sd**2 + self.scales.of(columns @ knobs.columns_of_own.T, near)
        variance = self.level_sd**2 + self.scales.size**2 * np.sum(np.square(columns), axis=1) + self.scales.misfit**2
        left = np.maximum(variance - np.sum((cross @ self.inverse) * cross, axis=1), 0.0)
        # Small effects of what was measured say nothing of what was not.
        return cross @ self.weights, left + max(1.0, self.scales.size**2) * knobs.unmeasured(own, size)

    def at_measured(self) -> tuple[Column, Column]:
        """Mean and variance at the rows."""
        noise = self.rows.noise
        left = noise - np.square(noise) * np.diagonal(self.inverse)
        return self.rows.values - noise * self.weights, np.maximum(left, 0.0)

    def left_out(self) -> tuple[Column, Column]:
        """Mean and variance of each value, predicted from all others; its own noise included."""
        precision = np.diagonal(self.inverse)
        return self.rows.values - self.weights / precision, 1.0 / precision

    @property
    def level_variance(self) -> float:
        """Variance of the level that all rows share."""
        return self.level_sd**2 - self.level_sd**4 * float(self.inverse.sum())


def fit(rows: Rows, level_sd: float, tried: Sequence[Scales] = TRIED) -> Process:
    """The process of the most probable scales."""
    count = len(rows.values)
    if not count:
        return Process(rows, level_sd, Scales(), np.zeros((0, 0)), 0.0)
    levels = level_sd**2 + CARRIED_LEVEL_SD**2 * ((rows.study[:, None] == rows.study) & (rows.study >= 0))
    apiece = levels + np.diag(rows.noise)
    effects, apart = rows.knobs.among
    near = {likeness: alike(likeness, apart) for likeness in {one.likeness for one in tried}}
    # The values as a last row (only the lower half is read): of the factor it is the values, made independent.
    bordered = np.empty((len(tried), count + 1, count + 1))
    for place, one in enumerate(tried):
        np.add(one.of(effects, near[one.likeness]), apiece, out=bordered[place, :-1, :-1])
    bordered[:, -1, :-1] = rows.values
    bordered[:, -1, -1] = 1.0 + rows.values @ rows.values / rows.noise.min()
    factor = np.linalg.cholesky(bordered)
    logs = 2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)[:, :-1]), axis=1)
    evidence = -0.5 * (np.sum(np.square(factor[:, -1, :-1]), axis=1) + logs + count * math.log(2.0 * math.pi))
    best = int(np.argmax(evidence + np.array([one.weight for one in tried])))
    inverse: Matrix = np.linalg.inv(bordered[best, :-1, :-1]).astype(np.float64)
    return Process(rows, level_sd, tried[best], inverse, float(evidence[best]))


@dataclass(frozen=True)
class MeasuredRows:
    """The different rows of a phase that trials measured; the same whatever the prior says."""

    trials: NDArray[np.bool_]
    """The phase occurred in it."""
    places: NDArray[np.intp]
    """Of each trial it occurred in, the place of its row."""
    keys: tuple[bytes, ...]
    """Of the rows."""
    knobs: Knobs
    """Of the rows."""


def measured_rows(phase: str, rows: PhaseRows, prior: Column, found: Measured) -> MeasuredRows:
    """Measured rows of a phase; ``rows`` and ``prior`` as in ``learn``."""
    trials = (found.seconds[phase] > LEAST_S) & (prior > 0)
    unique, places = np.unique(rows.index[trials], return_inverse=True)
    own = {name: column[unique] for name, column in rows.own.items()}
    return MeasuredRows(trials, places, tuple([rows.keys[i] for i in unique.tolist()]), Knobs.of(own, len(unique)))


def residuals(
    phase: str, measured: MeasuredRows, prior: Column, found: Measured, study: int = -1
) -> tuple[Rows, float]:
    """Log ratios of measured to prior seconds, and the variance between trials of a row; arguments as in ``learn``."""
    each = np.log(found.seconds[phase][measured.trials] / prior[measured.trials])
    process = pooled(each, measured.places, PROCESS_SPREAD)
    noise = process + found.cycle_variance[phase] / found.cycles[measured.trials]
    weight = np.bincount(measured.places, 1.0 / noise, minlength=len(measured.keys))
    values = np.bincount(measured.places, each / noise, minlength=len(measured.keys)) / weight
    return Rows(measured.knobs, values, 1.0 / weight, np.full(len(values), study, dtype=np.intp)), process


@dataclass(frozen=True)
class PhasePosterior:
    """A phase's posterior over the logarithm of measured over prior seconds."""

    known: Process
    measured: MeasuredRows
    process: float
    """Variance between trials of one row."""

    def at(self, rows: PhaseRows) -> tuple[Column, Column]:
        """Mean and variance of each row."""
        mean, variance = self.known.at(rows.unlike(self.known.rows.knobs.same), len(rows.keys))
        both = [(place, at) for place, key in enumerate(self.measured.keys) if (at := rows.places.get(key)) is not None]
        if both:
            place, at = np.array(both, dtype=np.intp).T
            known = self.known.at_measured()
            mean[at], variance[at] = known[0][place], known[1][place]
        return mean, variance


def learn(
    phase: str, measured: MeasuredRows, prior: Column, found: Measured, level_sd: float, carried: Rows | None = None
) -> PhasePosterior:
    """The posterior of a phase, learnt from trials.

    Args:
        phase: ``Phase`` value.
        measured: which rows they measured.
        prior: seconds of each trial by the prior, at what its own cycles worked on; 0: it does not occur.
        level_sd: of the prior.
        carried: what earlier studies measured of the phase; left aside where the trials speak against it: where both
            together are less probable than each by itself.
    """
    rows, process = residuals(phase, measured, prior, found)
    alone = fit(rows, level_sd)
    if carried is not None:
        begun = fit(rows.joined(carried), level_sd)
        if begun.evidence >= alone.evidence + fit(carried, level_sd).evidence - DOUBT:
            return PhasePosterior(begun, measured, process)
    return PhasePosterior(alone, measured, process)
