"""The learnt part of one phase: the deviation of measurements from the roofline, by its parts and by the phase's knobs.

log measured_i = log roofline_i(factors) + intercept + effects of knobs + noise_i

Each part of the roofline (``roofline.PARTS``) has a factor: launches, gathers, efficiencies. Formulas cannot know them
for a machine. A choice has an effect for each value, a number one for each doubling. All are normal: a ridge regression
with the spreads as prior. The factors enter through the roofline's logarithm, which is linearized at their mean and
fitted again (Gauss-Newton).

Measurements of earlier studies are further rows, with ``ROW_SD`` of scatter added to their noise (a power prior;
Ibrahim and Chen, Statistical Science 15, 2000), and with their own intercept. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.proposals.forecasts import Column
from autotune.proposals.times.features import OFF, PhaseRows, is_number
from autotune.proposals.times.observed import LEAST_S, Measured
from autotune.proposals.times.roofline import PARTS, Parts, shares_of

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
"""Prior standard deviations, relative to the roofline: the effect of one value of a choice; of a doubling of a number;
of one value of a number beyond its slope."""
WEAK = 0.33
"""Factor on these standard deviations for a knob that is not ``STRONG``."""
MISFIT_SD = 0.05
"""Standard deviation of the residual, which no effect explains."""
ROUNDS = 2
"""Number of linearizations of the roofline."""
FARTHEST = 3.0
"""Largest absolute logarithm of a factor at which the roofline is linearized."""
LEVEL_SD: Mapping[str, float] = {
    Phase.GENERATE.value: 0.3,
    Phase.LOGPROB.value: 0.3,
    Phase.UPDATE.value: 0.25,
    Phase.SYNC.value: 0.6,
    Phase.REWARD.value: 1.5,
    Phase.WAIT.value: 1.0,
    Phase.IDLE.value: 1.0,
}
"""Prior standard deviation of a phase's intercept, in log seconds over the roofline's, if the machine is known."""
ROW_SD, ROW_SD_OF_DOUBLING = 0.25, 0.05
"""Standard deviation of an earlier study's row relative to this study, in log seconds; its increase per doubling."""
CARRIED_LEVEL_SD = 2.0
"""Standard deviation of a phase's intercept in an earlier study, relative to the intercept in this study."""
ENOUGH = 40
"""Measured trials from which a study needs no earlier studies."""
DOUBT = 1.0
"""Loss of log evidence (natural logarithm) up to which earlier studies are still used."""


@dataclass(frozen=True)
class Measurements:
    """Measured rows of one phase, one array element for each."""

    own: Mapping[str, Column]
    """Columns by knob, as ``PhaseRows.own``."""
    parts: Parts
    study: NDArray[np.intp]
    """Index of the earlier study of each row; -1: this study."""
    logs: Column
    """Logarithms of seconds."""
    noise: Column
    """Variances of ``logs``."""


def joined(several: Sequence[Measurements]) -> Measurements:
    """Joins measurements of one phase."""
    return Measurements(
        {name: np.concatenate([one.own[name] for one in several]) for name in several[0].own},
        {name: np.concatenate([one.parts[name] for one in several]) for name in several[0].parts},
        np.concatenate([one.study for one in several]),
        np.concatenate([one.logs for one in several]),
        np.concatenate([one.noise for one in several]),
    )


@dataclass(frozen=True)
class Posterior:
    """Regression of one phase, fitted to measured rows; without any it is the prior."""

    knobs: Mapping[str, tuple[float, Column]]
    """By knob, the mean of the measured values, and the distinct values."""
    level_sd: float
    factors: Mapping[str, float]
    """Means of the factors of the roofline's parts."""
    mean: Column
    """Means of the weights: intercept, factors of parts, effects of knobs."""
    covariance: Matrix
    evidence: float
    """Log evidence of the measurements (their log marginal likelihood), up to a constant."""

    def at(self, own: Mapping[str, Column], parts: Parts, size: int) -> tuple[Column, Column]:
        """Returns mean and variance of the log seconds of rows."""
        base, jacobian = linear(parts, self.factors, size)
        effects, variance = columns_of(self.knobs, own, size)
        features = np.column_stack([np.full(size, self.level_sd), jacobian, effects])
        beyond = np.maximum(variance - np.einsum("ij,ij->i", effects, effects), 0.0) + MISFIT_SD**2
        return base + features @ self.mean, beyond + np.einsum("ij,ij->i", features @ self.covariance, features)


def linear(parts: Parts, factors: Mapping[str, float], size: int) -> tuple[Column, Matrix]:
    """Returns log seconds, linearized at ``factors``, at factors of 1; and the slopes per prior standard deviation."""
    seconds, shares = shares_of(parts, factors, size)
    base, slopes = np.log(np.maximum(seconds, 1e-12)), np.zeros((size, len(PARTS)))
    for place, (name, spread) in enumerate(PARTS.items()):
        if name in parts:
            base = base - shares[name] * math.log(factors.get(name, 1.0))
            slopes[:, place] = shares[name] * spread
    return base, slopes


def columns_of(
    knobs: Mapping[str, tuple[float, Column]], own: Mapping[str, Column], size: int
) -> tuple[Matrix, Column]:
    """Returns the effects of knobs as features, and their variance; an unmeasured value has no feature."""
    found, variance = [np.zeros((size, 0))], np.zeros(size)
    for name, (middle, values) in knobs.items():
        acts, weight = own[name] != OFF, 1.0 if name in STRONG else WEAK
        each = weight * (BEND_SD if is_number(name) else CHOICE_SD)
        found.append(each * (own[name][:, None] == values))
        variance += each**2 * acts
        if is_number(name):
            slope = weight * SLOPE_SD * np.where(acts, own[name] - middle, 0.0)
            found.append(slope[:, None])
            variance += slope**2
    return np.concatenate(found, axis=1), variance


def fit(known: Measurements, level_sd: float) -> Posterior:
    """Fits the posterior of one phase; ``level_sd`` is the prior standard deviation of its intercept."""
    size, knobs = len(known.logs), {}
    for name, column in known.own.items() if size else ():
        acting = column[column != OFF]
        knobs[name] = (float(np.mean(acting)) if len(acting) else 0.0, np.unique(acting))
    columns, _ = columns_of(knobs, known.own, size)
    elsewhere = (known.study[:, None] == known.study) & (known.study >= 0)
    noise = CARRIED_LEVEL_SD**2 * elsewhere + np.diag(known.noise + MISFIT_SD**2)
    factors: Mapping[str, float] = {}
    for turn in range(ROUNDS):
        base, jacobian = linear(known.parts, factors, size)
        features = np.column_stack([np.full(size, level_sd), jacobian, columns])
        covariance = noise + features @ features.T
        inverse = np.linalg.inv(covariance)
        weights = inverse @ (known.logs - base)
        mean = features.T @ weights
        if turn < ROUNDS - 1:
            logs = zip(PARTS.items(), mean[1:], strict=False)
            factors = {name: math.exp(min(max(sd * log, -FARTHEST), FARTHEST)) for (name, sd), log in logs}
    evidence = -0.5 * float((known.logs - base) @ weights + np.linalg.slogdet(covariance)[1])
    left = np.eye(features.shape[1]) - features.T @ inverse @ features
    return Posterior(knobs, level_sd, factors, mean, left, evidence)


def measurements(
    phase: str, rows: PhaseRows, parts: Parts, found: Measured, study: int = -1, distance: float | None = None
) -> Measurements:
    """Returns a phase's measurements in the trials in which it occurred. ``parts`` belong to ``rows``; measurements of
    an earlier ``study`` at ``distance`` (in doublings) are less certain."""
    occurred = found.seconds[phase] > LEAST_S
    at = rows.index[occurred]
    doubt = 0.0 if distance is None else (ROW_SD + ROW_SD_OF_DOUBLING * distance) ** 2
    return Measurements(
        {name: column[at] for name, column in rows.own.items()},
        {name: column[at] for name, column in parts.items()},
        np.full(len(at), study, dtype=np.intp),
        np.log(found.seconds[phase][occurred]),
        found.noise[occurred] + doubt,
    )


def learn(known: Measurements, level_sd: float, carried: Measurements | None = None) -> Posterior:
    """Learns the posterior of a phase from trials and from measurements of earlier studies (``carried``). Ignores the
    latter if both together are less probable than each by itself. ``level_sd``: of ``fit``."""
    alone = fit(known, level_sd)
    if carried is None:
        return alone
    begun = fit(joined([known, carried]), level_sd)
    return begun if begun.evidence >= alone.evidence + fit(carried, level_sd).evidence - DOUBT else alone
