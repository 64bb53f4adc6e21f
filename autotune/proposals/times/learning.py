"""The learnt part of one phase: how far measurements are from the roofline, by its parts and by the phase's knobs.

    log measured_i = log roofline_i(factors) + level + effects of knobs + misfit of the row + noise_i

A factor belongs to each part of the roofline (``roofline.PARTS``): launches, gathers, efficiencies. They are what
formulas cannot know of a machine. A choice has an effect for each value, a number one for each doubling. The misfit is
what none of that says of a row by itself. All are normal, so the posterior is a Gaussian process with these as
features (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: chapter 2.7, and equations 5.10 to
5.12 for leaving one out). The factors enter through the roofline's logarithm, which is made linear at their mean and
fitted again (Gauss and Newton). The scale of the effects and of the misfit is the most probable of a few.

What earlier studies measured are further rows, with ``ROW_SD`` of scatter beside their noise (a power prior; Ibrahim
and Chen, Statistical Science 15, 2000), and a level of their own. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.proposals.forecasts import Column
from autotune.proposals.times.features import OFF, PhaseRows, is_number
from autotune.proposals.times.observed import LEAST_S, Measured, pooled
from autotune.proposals.times.roofline import PARTS, Parts
from autotune.statistics.noise import PROCESS_SPREAD

Matrix = NDArray[np.float64]

STRONG = frozenset(
    {
        *("rollout_engine", "enforce_eager", "gradient_checkpointing", "micro_batch_size", "attn_implementation"),
        *("logprob_rows", "zero_stage", "fsdp", "precision", "torch_compile", "tensor_parallel_size"),
        *("training_tensor_parallel_size", "pipeline_parallel_size", "offload_optimizer", "offload_parameters"),
        *("activation_offload", "host_allocator", "rollout_gpus", "training_engine", "continuous_batching"),
    }
)
"""Knobs whose effect may be large whatever the roofline says."""
CHOICE_SD, SLOPE_SD, BEND_SD = 0.2, 0.1, 0.1
"""Standard deviation of the effect of one value of a choice, of a doubling of a number, and of what a value of a number
has beside; all beside the roofline's."""
WEAK = 0.33
"""Share of that where the knob is not ``STRONG``."""
ROW_SD, ROW_SD_OF_DOUBLING = 0.25, 0.05
"""Standard deviation, in log seconds, between a row there and here; more for each doubling between the studies."""
CARRIED_LEVEL_SD = 2.0
"""Of what a phase takes there altogether, over what it takes here."""
ENOUGH = 40
"""Measured configurations from which a study needs no other's."""
DOUBT = 1.0
"""Log probability by which going without has to be ahead before earlier studies are left aside (natural logarithm)."""
LEVEL_SD: Mapping[str, float] = {
    Phase.GENERATE.value: 0.3,
    Phase.LOGPROB.value: 0.3,
    Phase.UPDATE.value: 0.25,
    Phase.SYNC.value: 0.6,
    Phase.REWARD.value: 1.5,
    Phase.WAIT.value: 1.0,
    Phase.IDLE.value: 1.0,
}
"""Standard deviation of the logarithm of a phase's seconds over the prior's, where the machine is known."""
SCALES = tuple(itertools.product((1.0, 2.0, 4.0), (0.02, 0.05, 0.15)))
"""Of the effects, and the standard deviation of the misfit, that are tried."""
ROUNDS = 3
"""Times the roofline is made linear."""
FARTHEST = 3.0
"""Logarithm of a factor, at most."""


@dataclass(frozen=True)
class Rows:
    """Rows of one phase, an array element for each: measured ones, or ones to be forecast."""

    own: Mapping[str, Column]
    """By knob, as ``PhaseRows.own``."""
    parts: Parts
    keys: NDArray[np.int64]
    """Rows with the same key are the same."""
    study: NDArray[np.intp]
    """Which earlier study it is of: 0, 1, ...; -1: of this one."""


@dataclass(frozen=True)
class Measurements:
    """Measured rows, with the logarithms of their seconds and the variances of these."""

    rows: Rows
    logs: Column
    noise: Column

    def joined(self, others: Measurements) -> Measurements:
        """These measurements, then others."""
        mine, theirs = self.rows, others.rows
        both = [_groups(one.parts) for one in (mine, theirs)]
        groups = [{n: np.concatenate([a[n], b[n]]) for n in a} for a, b in zip(*both, strict=True)]
        rows = Rows(
            {name: np.concatenate([column, theirs.own[name]]) for name, column in mine.own.items()},
            Parts(*groups),
            np.concatenate([mine.keys, theirs.keys]),
            np.concatenate([mine.study, theirs.study]),
        )
        return Measurements(rows, np.concatenate([self.logs, others.logs]), np.concatenate([self.noise, others.noise]))


def _groups(parts: Parts) -> tuple[Mapping[str, Column], ...]:
    return parts.device, parts.host, parts.beside


@dataclass(frozen=True)
class Posterior:
    """A phase's Gaussian process through measured rows; with none it is the prior."""

    known: Measurements
    level_sd: float
    scale: float
    misfit: float
    factors: Mapping[str, float]
    """Of the roofline's parts; their means."""
    inverse: Matrix
    """Of the covariance of the measured rows."""
    weights: Column
    evidence: float
    """Logarithm of the probability of what was measured."""

    @property
    def probability(self) -> float:
        """Logarithm of the probability of the scales, but for a constant."""
        return self.evidence - 0.5 * (math.log2(self.scale) ** 2 + math.log2(self.misfit / 0.05) ** 2)

    def at(self, rows: Rows) -> tuple[Column, Column]:
        """Mean and variance of the rows' log seconds."""
        base, features, beyond = self._features(rows)
        beyond = beyond + self.misfit**2
        if not len(self.known.logs):
            return base, beyond + np.einsum("ij,ij->i", features, features)
        own, effects, left = self._effects
        mean = base + features @ effects
        variance = beyond + np.einsum("ij,ij->i", features @ left, features)
        # A row that was measured has its misfit in common with its measurements.
        again = np.flatnonzero(np.isin(rows.keys, self.known.rows.keys))
        some = features[again]
        cross = some @ own.T + self.misfit**2 * (rows.keys[again, None] == self.known.rows.keys)
        mean[again] = base[again] + cross @ self.weights
        variance[again] = beyond[again] + np.einsum("ij,ij->i", some, some)
        variance[again] -= np.einsum("ij,ij->i", cross @ self.inverse, cross)
        return mean, np.maximum(variance, 1e-6)

    def _features(self, rows: Rows) -> tuple[Column, Matrix, Column]:
        """Returns the roofline's log seconds, rows x features (level, factors of parts, effects of knobs), and the
        variance by values that were not measured."""
        size = len(rows.keys)
        base, jacobian = linear(rows.parts, self.factors, size)
        effects, variance = self._knobs.columns(rows.own, size, self.scale)
        beyond = np.maximum(variance - np.einsum("ij,ij->i", effects, effects), 0.0)
        return base, np.column_stack([np.full(size, self.level_sd), jacobian, effects]), beyond

    @cached_property
    def _knobs(self) -> Knobs:
        return Knobs.of(self.known.rows.own if len(self.known.logs) else {})

    @cached_property
    def _effects(self) -> tuple[Matrix, Column, Matrix]:
        """Features of the measured rows; mean and covariance of the features' weights."""
        own = self._features(self.known.rows)[1]
        left: Matrix = np.eye(own.shape[1]) - own.T @ self.inverse @ own
        return own, own.T @ self.weights, left

    @property
    def level_variance(self) -> float:
        """Variance of the level that all rows share."""
        return self.level_sd**2 - self.level_sd**4 * float(self.inverse.sum())

    def left_out(self) -> tuple[Column, Column]:
        """Mean and variance of each measured log seconds, predicted from all others; its own noise included."""
        precision = np.diagonal(self.inverse)
        return self.known.logs - self.weights / precision, 1.0 / precision


def linear(parts: Parts, factors: Mapping[str, float], size: int) -> tuple[Column, Matrix]:
    """Returns log seconds at factors of 1, by the tangent at ``factors``, and the slopes in the factors' spreads."""
    seconds, shares = parts.shares(factors)
    base = np.log(np.maximum(np.broadcast_to(seconds, (size,)), 1e-12))
    columns = []
    for name, spread in PARTS.items():
        share = np.broadcast_to(shares.get(name, np.zeros(1)), (size,))
        base = base - share * math.log(factors.get(name, 1.0))
        columns.append(share * spread)
    return base, np.column_stack(columns)


@dataclass(frozen=True)
class Knobs:
    """Values of knobs that were measured: by name, the mean of what acts, and the different ones."""

    values: Mapping[str, tuple[float, Column]]

    @classmethod
    def of(cls, own: Mapping[str, Column]) -> Knobs:
        """Reads the values of measured rows."""
        acting = {name: column[column != OFF] for name, column in own.items()}
        return cls({n: (float(np.mean(c)) if len(c) else 0.0, np.unique(c)) for n, c in acting.items()})

    def columns(self, own: Mapping[str, Column], size: int, scale: float) -> tuple[Matrix, Column]:
        """Returns effects of knobs as features and their variance; a value that was not measured has no feature."""
        found, variance = [np.zeros((size, 0))], np.zeros(size)
        for name, (middle, values) in self.values.items():
            weight, here = scale * (1.0 if name in STRONG else WEAK), own[name]
            acts = here != OFF
            each = weight * (BEND_SD if is_number(name) else CHOICE_SD)
            found.append(each * (here[:, None] == values))
            variance += each**2 * acts
            if is_number(name):
                slope = weight * SLOPE_SD * np.where(acts, here - middle, 0.0)
                found.append(slope[:, None])
                variance += slope**2
        return np.concatenate(found, axis=1), variance


def fit(known: Measurements, level_sd: float) -> Posterior:
    """Fits the posterior with the most probable scales."""
    count = len(known.logs)
    if not count:
        return Posterior(known, level_sd, 1.0, 0.05, {}, np.zeros((0, 0)), np.zeros(0), 0.0)
    rows = known.rows
    columns, _ = Knobs.of(rows.own).columns(rows.own, count, 1.0)
    effects = columns @ columns.T
    apart = level_sd**2 + CARRIED_LEVEL_SD**2 * ((rows.study[:, None] == rows.study) & (rows.study >= 0))
    same = rows.keys[:, None] == rows.keys
    best: Posterior | None = None
    factors: Mapping[str, float] = {}
    for _ in range(ROUNDS):
        base, jacobian = linear(rows.parts, factors, count)
        values = known.logs - base
        apiece = apart + jacobian @ jacobian.T + np.diag(known.noise)
        tried = [(scale, misfit, apiece + scale**2 * effects + misfit**2 * same) for scale, misfit in SCALES]
        several = [_posterior(known, values, level_sd, factors, *one) for one in tried]
        best = max(several, key=lambda p: p.probability)
        means = jacobian.T @ best.weights
        factors = {
            name: math.exp(float(np.clip(spread * mean, -FARTHEST, FARTHEST)))
            for (name, spread), mean in zip(PARTS.items(), means, strict=True)
        }
    assert best is not None  # noqa: S101 - there is a round
    return best


def _posterior(
    known: Measurements, values: Column, level_sd: float, factors: Mapping[str, float], scale: float, misfit: float,
    covariance: Matrix,
) -> Posterior:  # fmt: skip
    lower = np.linalg.cholesky(covariance)
    inverse: Matrix = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    weights = inverse @ values
    logs = 2.0 * float(np.sum(np.log(np.diagonal(lower))))
    evidence = -0.5 * (float(values @ weights) + logs + len(values) * math.log(2.0 * math.pi))
    return Posterior(known, level_sd, scale, misfit, factors, inverse, weights, evidence)


@dataclass(frozen=True)
class PhasePosterior:
    """A phase's posterior, and the trials in which the phase occurred."""

    known: Posterior
    trials: NDArray[np.bool_]
    """The phase occurred in it."""
    process: float
    """Variance between trials of one row."""


def measurements(
    phase: str, rows: PhaseRows, parts: Parts, found: Measured, study: int = -1
) -> tuple[Measurements, NDArray[np.bool_], float]:
    """Returns a phase's measurements, the trials in which it occurred, and the variance between trials of a row.

    ``parts`` are each trial's by the prior, for what its own cycles worked on; ``study`` numbers an earlier one, -1:
    this.
    """
    count = len(found.whole)
    prior = np.broadcast_to(parts.seconds({}), (count,))
    trials = (found.seconds[phase] > LEAST_S) & (prior > 0)
    keys = rows.keys[rows.index[trials]]
    groups = [{n: np.broadcast_to(c, (count,))[trials] for n, c in group.items()} for group in _groups(parts)]
    own = {name: column[rows.index[trials]] for name, column in rows.own.items()}
    logs = np.log(found.seconds[phase][trials])
    _, place = np.unique(keys, return_inverse=True)
    process = pooled(logs - np.log(prior[trials]), place.reshape(-1), PROCESS_SPREAD)
    noise = process + found.cycle_variance[phase] / found.cycles[trials]
    made = Rows(own, Parts(*groups), keys, np.full(len(logs), study, dtype=np.intp))
    return Measurements(made, logs, noise), trials, process


def learn(
    phase: str, rows: PhaseRows, parts: Parts, found: Measured, level_sd: float, carried: Measurements | None = None
) -> PhasePosterior:
    """Learns the posterior of a phase from trials and from what earlier studies measured (``carried``), unless both
    together are less probable than each by itself. ``level_sd`` is the prior's."""
    known, trials, process = measurements(phase, rows, parts, found)
    alone = fit(known, level_sd)
    if carried is not None:
        begun = fit(known.joined(carried), level_sd)
        if begun.evidence >= alone.evidence + fit(carried, level_sd).evidence - DOUBT:
            return PhasePosterior(begun, trials, process)
    return PhasePosterior(alone, trials, process)


def doubted(measured: Measurements, distance: float) -> Measurements:
    """Returns an earlier study's measurements, as uncertain as they are here; ``distance`` in doublings."""
    return replace(measured, noise=measured.noise + (ROW_SD + ROW_SD_OF_DOUBLING * distance) ** 2)


def rows_of(rows: PhaseRows, parts: Parts) -> Rows:
    """Makes rows to be forecast."""
    return Rows(rows.own, parts, rows.keys, np.full(len(rows.keys), -1, dtype=np.intp))
