"""Gaussian processes over knobs, in numpy: one for each phase, or one for the whole, through the same inputs.

The covariance of two configurations is ``c * prod(1 + a_j k_j)`` over the knobs: a constant, an effect of each knob
alone, and of knobs together the weaker the more of them (a functional ANOVA kernel; Durrande et al., Journal of
Multivariate Analysis 115, 2013). ``k_j`` is a squared exponential along a number and equality otherwise. What a knob
matters (``a_j``) is found for each surface by maximising the posterior of its parameters, so a phase that depends on
two knobs is known after trials of those two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.statistics.distributions import normal_hazard

Array = NDArray[np.float64]

LENGTH = 0.35
"""How far along a number, as a share of its range, an effect carries."""
STEPS = 12
"""Of the search for the parameters (Rprop; Riedmiller and Braun, IEEE ICNN 1993)."""
FITTED_ON = 40
"""Observations the parameters are found on; all are used when something is asked."""
LEAST = 0.01
"""A knob that matters less is left out."""
CHUNK = 4096
"""Points asked about at once, which bounds memory."""
JITTER = 1e-6
VAGUE = 1e6
"""A bound as vague as this says nothing."""

_MIDDLE = np.log([0.7, 1.0, 0.01])
_WIDTH = np.array([1.5, 1.2, 1.2])
"""Prior of the logarithms of what all knobs matter together, of ``c``, and of the noise's variance, for targets of
variance 1; the first is shared out, so that any number of knobs varies by about as much."""


@dataclass(frozen=True)
class Axes:
    """Kind of each input column: ordered numbers, or unordered values."""

    ordered: tuple[bool, ...]
    """A number between 0 and 1; otherwise any number that stands for a value, and two of them differ or do not."""

    def alike(self, axis: int, here: Array, there: Array) -> Array:
        """``k_j``: (m,) and (n,) -> (m, n)."""
        if self.ordered[axis]:
            steps = (here[:, None] - there[None, :]) / LENGTH
            like: Array = np.exp(-0.5 * steps * steps)
            return like
        same: Array = (here[:, None] == there[None, :]).astype(np.float64)
        return same


@dataclass(frozen=True)
class Belief:
    """Normal distributions: rows are surfaces, columns the points asked about."""

    mean: Array
    variance: Array


@dataclass(frozen=True)
class Surfaces:
    """P fitted Gaussian processes over n observations and d axes."""

    axes: Axes
    inputs: Array
    """(n, d)."""
    targets: Array
    """(P, n), less ``means``, in units of ``scales``."""
    noise: Array
    """(P, n): variance of each observation, in the same units."""
    means: Array
    scales: Array
    matters: Array
    """(P, d)."""
    level: Array
    """(P,): ``c``."""

    def at(self, inputs: Array) -> Belief:
        """Posterior at points (m, d)."""
        inverse: Array = np.linalg.inv(self._covariance()).astype(np.float64)
        weights = (inverse @ self.targets[:, :, None])[:, :, 0]
        parts = [self._part(inputs[i : i + CHUNK], inverse, weights) for i in range(0, len(inputs), CHUNK)]
        empty = np.zeros((len(self.targets), 0))
        mean = np.concatenate([empty, *(m for m, _ in parts)], axis=1)
        variance = np.concatenate([empty, *(v for _, v in parts)], axis=1)
        return Belief(self.means[:, None] + self.scales[:, None] * mean, self.scales[:, None] ** 2 * variance)

    def _part(self, inputs: Array, inverse: Array, weights: Array) -> tuple[Array, Array]:
        cross = self._cross(inputs, self.inputs)
        own = self.level * np.prod(1.0 + self.matters, axis=1)
        mean = np.einsum("pmn,pn->pm", cross, weights)
        variance = own[:, None] - np.einsum("pmn,pmn->pm", cross @ inverse, cross)
        return mean, np.maximum(variance, JITTER)

    def _cross(self, here: Array, there: Array) -> Array:
        cross = np.broadcast_to(self.level[:, None, None], (len(self.level), len(here), len(there))).copy()
        for axis in range(len(self.axes.ordered)):
            of_any = np.flatnonzero(self.matters[:, axis])
            if of_any.size:
                alike = self.axes.alike(axis, here[:, axis], there[:, axis])
                for surface in of_any:
                    cross[surface] *= 1.0 + self.matters[surface, axis] * alike
        return cross

    def _covariance(self) -> Array:
        covariance = self._cross(self.inputs, self.inputs)
        diagonal = np.arange(len(self.inputs))
        covariance[:, diagonal, diagonal] += self.noise + JITTER
        return covariance

    def adding(self, inputs: Array, values: Array, variances: Array) -> Surfaces:
        """A copy with k more observations: points (k, d), values and variances (P, k) in units of the targets."""
        return replace(
            self,
            inputs=np.concatenate([self.inputs, inputs]),
            targets=np.concatenate([self.targets, (values - self.means[:, None]) / self.scales[:, None]], axis=1),
            noise=np.concatenate([self.noise, variances / self.scales[:, None] ** 2], axis=1),
        )

    def believing(self, inputs: Array) -> Surfaces:
        """Surfaces as if pending points had come out as expected (kriging believer)."""
        if not len(inputs):
            return self
        return self.adding(inputs, self.at(inputs).mean, np.zeros((len(self.targets), len(inputs))) + JITTER)

    def bounded(self, inputs: Array, bounds: Array, side: int) -> Surfaces:
        """The one surface is known to be at most (``side`` -1) or at least (+1) ``bounds`` at ``inputs``.

        Each bound becomes the normal observation that moves the belief there to the mean and variance of the
        truncated one (assumed-density filtering; Minka, MIT 2001, chapter 3). A bound far off adds nothing.
        """
        if not len(inputs):
            return self
        belief = self.at(inputs)
        mean, variance = belief.mean[0], belief.variance[0]
        room = side * (mean - bounds) / np.sqrt(variance)
        ratio = normal_hazard(room)
        shrunk = np.clip(1.0 - ratio * (ratio + room), 0.05, 1.0)
        telling = shrunk < 1.0 - 1.0 / VAGUE
        if not telling.any():
            return self
        mean, variance, shrunk, ratio = mean[telling], variance[telling], shrunk[telling], ratio[telling]
        moved = mean + side * np.sqrt(variance) * ratio
        site = variance * shrunk / (1.0 - shrunk)
        value = site * (moved / (variance * shrunk) - mean / variance)
        return self.adding(inputs[telling], value[None], site[None])


def fit(axes: Axes, inputs: Array, targets: Array, *, means: Array | None = None, steps: int = STEPS) -> Surfaces:
    """Surfaces through observations.

    Args:
        axes: what the columns of ``inputs`` are.
        inputs: (n, d), n at least 1.
        targets: (P, n), the P surfaces' observations; finite.
        means: (P,), what is believed far from any observation, with a scale of 1; by default the observations' own.
        steps: 0 keeps the parameters where they begin.
    """
    spread = targets.std(axis=1)
    scales = np.where(spread > 1e-9, spread, 1.0) if means is None else np.ones(len(targets))
    level = targets.mean(axis=1) if means is None else means
    scaled = (targets - level[:, None]) / scales[:, None]
    newest = slice(max(0, len(inputs) - FITTED_ON), None)
    found = _parameters(axes, inputs[newest], scaled[:, newest], steps)
    matters = np.exp(found[:, :-2])
    return Surfaces(
        axes=axes,
        inputs=inputs,
        targets=scaled,
        noise=np.repeat(np.exp(found[:, -1])[:, None], len(inputs), axis=1),
        means=level,
        scales=scales,
        matters=np.where(matters < LEAST, 0.0, matters),
        level=np.exp(found[:, -2]),
    )


def _parameters(axes: Axes, inputs: Array, targets: Array, steps: int) -> Array:
    """Logarithms, (P, d + 2): what each knob matters, ``c``, and the noise's variance."""
    surfaces, size, count = len(targets), len(inputs), len(axes.ordered)
    alike = np.zeros((count, size, size))
    for axis in range(count):
        alike[axis] = axes.alike(axis, inputs[:, axis], inputs[:, axis])
    middle = np.concatenate([np.full(count, _MIDDLE[0] - math.log(max(1, count))), _MIDDLE[1:]])
    width = np.concatenate([np.full(count, _WIDTH[0]), _WIDTH[1:]])
    here = np.repeat(middle[None], surfaces, axis=0)
    best, highest = here.copy(), np.full(surfaces, -np.inf)
    stride, before = np.full_like(here, 0.4), np.zeros_like(here)
    for _ in range(steps):
        value, slope = _posterior(alike, targets, here)
        value = value - 0.5 * np.sum(((here - middle) / width) ** 2, axis=1)
        slope = slope - (here - middle) / width**2
        better = value > highest
        best[better], highest[better] = here[better], value[better]
        turn = np.sign(slope) * np.sign(before)
        stride = np.clip(np.where(turn > 0, 1.2 * stride, np.where(turn < 0, 0.5 * stride, stride)), 0.01, 1.0)
        here = np.clip(here + stride * np.sign(slope), middle - 4 * width, middle + 4 * width)
        before = slope
    return best


def _posterior(alike: Array, targets: Array, here: Array) -> tuple[Array, Array]:
    """Log likelihood (P,) and its slope (P, d + 2) along the logarithms ``here``."""
    matters, level, noise = np.exp(here[:, :-2]), np.exp(here[:, -2]), np.exp(here[:, -1])
    lifted = 1.0 + matters[:, :, None, None] * alike[None]
    smooth = level[:, None, None] * np.prod(lifted, axis=1)
    diagonal = np.arange(targets.shape[1])
    covariance = smooth.copy()
    covariance[:, diagonal, diagonal] += noise[:, None] + JITTER
    inverse = np.linalg.inv(covariance)
    weights = (inverse @ targets[:, :, None])[:, :, 0]
    value = -0.5 * np.sum(targets * weights, axis=1) - 0.5 * np.linalg.slogdet(covariance)[1]
    pull = 0.5 * (weights[:, :, None] * weights[:, None, :] - inverse)
    along = pull * smooth
    of_knobs = np.einsum("pab,pjab->pj", along, 1.0 - 1.0 / lifted)
    of_noise = noise * np.trace(pull, axis1=1, axis2=2)
    return value, np.concatenate([of_knobs, along.sum(axis=(1, 2))[:, None], of_noise[:, None]], axis=1)


def columns(rows: Sequence[Sequence[float]], count: int) -> Array:
    """(n, ``count``), also where there is no row or no column."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), count)
