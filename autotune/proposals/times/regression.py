"""Bayesian linear regression on measured rows, with a misfit that neighbours share: closed forms, pure.

    y_i = x_i b + d_i + e_i,    b ~ N(0, diag(variance)),   d ~ N(0, misfit² K),   e_i ~ N(0, noise_i)

y_i is the mean of what was measured at row i and noise_i the variance of that mean. d_i is what the columns cannot say
about row i. It stays the same whenever row i is measured, so at a measured row the forecast goes to what was measured,
and never is wider than its noise. K_ij is ``likeness`` to the number of knobs in which rows i and j differ (a Gaussian
process over knobs, a product of the same covariance for each): what a row has that no column says, a row that differs
in one knob has in part, and far from all that was measured nothing is known of it. (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006: chapter 2.7 for the regression, equations 5.10 to 5.12 for leaving one out, with
the inverse of the whole covariance by Woodbury's identity in the space of the columns.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column

Matrix = NDArray[np.float64]
Kind = tuple[float, float]
"""Misfit and likeness."""


@dataclass(frozen=True)
class Neighbours:
    """Measured rows whose misfit is shared by how near they are to each other; the others share theirs with none."""

    rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """Their places."""
    apart: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    """Of each two of ``rows``, in how many knobs they differ."""

    @cached_property
    def differ(self) -> bool:
        """Each two of them in some knob."""
        return bool(np.count_nonzero(self.apart == 0) == len(self.rows))


@dataclass(frozen=True)
class Data:
    """Measured rows."""

    columns: Matrix
    """rows x columns."""
    values: Column
    noise: Column
    """Variance of each value."""
    near: Neighbours = field(default_factory=Neighbours)
    known: dict[Kind, _Inverse] = field(default_factory=dict, compare=False, repr=False)
    """Inverses computed before: they follow from noise and neighbours alone."""

    def with_columns(self, columns: Matrix) -> Data:
        """The same rows in other columns."""
        return replace(self, columns=columns)


@dataclass(frozen=True)
class Scales:
    """What the coefficients and misfits are like."""

    variance: Column
    """Of each column's coefficient, before anything was measured."""
    misfit: float
    """Standard deviation of what no column says of a row."""
    likeness: float = 0.0
    """Correlation of that between two rows that differ in one knob."""


@dataclass(frozen=True)
class RowPosterior:
    """What is known of the coefficients."""

    data: Data
    scales: Scales
    mean: Column
    covariance: Matrix
    evidence: float
    """Logarithm of the probability of the values."""

    def at(self, columns: Matrix, apart: Matrix | None = None) -> tuple[Column, Column]:
        """Mean and variance at rows nobody measured, their misfit included.

        Args:
            columns: of the rows.
            apart: rows x ``data.near.rows``, in how many knobs they differ; ``None``: they share nothing.
        """
        own = self.scales.misfit**2
        if apart is None:
            return columns @ self.mean, np.maximum(self._spread(columns), 0.0) + own
        near, shared = self.data.near.rows, own * _alike(self.scales.likeness, apart)
        solved = shared @ self._inverse.block
        left = np.maximum(own - np.sum(solved * shared, axis=1), 0.0)
        spread = self._spread(columns - solved @ self.data.columns[near])
        return columns @ self.mean + shared @ self.surprise[near], np.maximum(spread, 0.0) + left

    def at_measured(self) -> tuple[Column, Column]:
        """Mean and variance at the measured rows."""
        noise = self.data.noise
        return self.data.values - noise * self.surprise, np.maximum(noise - np.square(noise) * self._precision, 0.0)

    def left_out(self) -> tuple[Column, Column]:
        """Mean and variance of each measured value, foretold from all others; its own noise included."""
        precision = np.maximum(self._precision, 1e-12 / (self.data.noise + self.scales.misfit**2))
        return self.data.values - self.surprise / precision, 1.0 / precision

    @cached_property
    def surprise(self) -> Column:
        """Inverse covariance of the values, times the values: what is left of each, by how sure it was."""
        return self._inverse.of(self.data.values - self.data.columns @ self.mean)

    @cached_property
    def _inverse(self) -> _Inverse:
        return _inverses(self.data, [(self.scales.misfit, self.scales.likeness)])[0]

    @cached_property
    def _precision(self) -> Column:
        """Diagonal of the inverse covariance of the values."""
        return self._inverse.diagonal - self._spread(self._inverse.of(self.data.columns))

    def _spread(self, columns: Matrix) -> Column:
        """Variance of each row by what is not known of the coefficients."""
        found: Column = np.sum((columns @ self.covariance) * columns, axis=1)
        return found


def fit(data: Data, scales: Scales) -> RowPosterior:
    """The posterior; with no rows it is the prior."""
    return fit_best(data, [(scales, 0.0)])


def fit_best(data: Data, choices: Sequence[tuple[Scales, float]]) -> RowPosterior:
    """The posterior of the most probable scales; ``choices`` are scales with the logarithm of their prior probability.

    By the Cholesky factors of I + S G S, which are well conditioned whatever the scales S (standard deviations), of all
    choices at once; those that differ in the coefficients' variance only share G.
    """
    kinds = list(dict.fromkeys((scales.misfit, scales.likeness) for scales, _ in choices))
    shared = {kind: _moments(data, inverse) for kind, inverse in zip(kinds, _inverses(data, kinds), strict=True)}
    each = [shared[scales.misfit, scales.likeness] for scales, _ in choices]
    gram, moment = np.stack([one.gram for one in each]), np.stack([one.moment for one in each])
    root, identity = np.sqrt(np.stack([scales.variance for scales, _ in choices])), np.eye(data.columns.shape[1])
    factor = np.linalg.cholesky(identity + root[:, :, None] * gram * root[:, None, :])
    inverse = np.linalg.solve(factor, root[:, :, None] * identity)
    covariance = np.swapaxes(inverse, 1, 2) @ inverse
    mean = (covariance @ moment[:, :, None])[:, :, 0]
    squares = np.array([one.squares for one in each]) - np.sum(moment * mean, axis=1)
    diagonal = np.diagonal(factor, axis1=1, axis2=2)
    logs = 2.0 * np.sum(np.log(diagonal), axis=1) + np.array([one.logs for one in each])
    evidence = -0.5 * (squares + logs + len(data.values) * np.log(2.0 * np.pi))
    best = int(np.argmax(evidence + np.array([weight for _, weight in choices])))
    return RowPosterior(data, choices[best][0], mean[best], covariance[best], float(evidence[best]))


@dataclass(frozen=True)
class _Inverse:
    """Of misfit and noise together: dense among rows that are near each other, diagonal for the rest."""

    near: NDArray[np.intp]
    block: Matrix
    """Of ``near``."""
    diagonal: Column
    """Of all rows."""
    logs: float
    """Logarithm of the determinant of what it is the inverse of."""

    def of(self, columns: Matrix | Column) -> Matrix:
        """Its product with columns, or with one."""
        found: Matrix = (columns.T * self.diagonal).T
        found[self.near] = self.block @ columns[self.near]
        return found


def _inverses(data: Data, kinds: Sequence[Kind]) -> list[_Inverse]:
    """For each misfit and likeness; what is computed is kept with the data."""
    new = [kind for kind in kinds if kind not in data.known]
    apart = [kind for kind in new if kind[1] == 0.0 and data.near.differ]
    data.known.update({kind: _of_apart(data, kind[0]) for kind in apart})
    data.known.update(_of_alike(data, [kind for kind in new if kind not in apart]))
    return [data.known[kind] for kind in kinds]


def _of_apart(data: Data, misfit: float) -> _Inverse:
    """Where rows share nothing."""
    total, near = data.noise + misfit**2, data.near.rows
    return _Inverse(near, np.diag(1.0 / total[near]), 1.0 / total, float(np.log(total).sum()))


def _of_alike(data: Data, kinds: Sequence[Kind]) -> dict[Kind, _Inverse]:
    """Where neighbours share; of all kinds at once."""
    if not kinds:
        return {}
    misfit = np.array([kind[0] for kind in kinds])
    total = data.noise[None, :] + misfit[:, None] ** 2
    near, place = data.near.rows, np.arange(len(data.near.rows))
    alike = {likeness: _alike(likeness, data.near.apart) for likeness in dict.fromkeys(one for _, one in kinds)}
    blocks = np.array([own**2 * alike[likeness] for own, likeness in kinds])
    blocks[:, place, place] += data.noise[near]
    inverses, block_logs = np.linalg.inv(blocks), np.linalg.slogdet(blocks)[1]
    diagonal, logs = 1.0 / total, np.log(total)
    diagonal[:, near], logs[:, near] = inverses[:, place, place], 0.0
    whole = logs.sum(axis=1) + block_logs
    return {kind: _Inverse(near, inverses[i], diagonal[i], float(whole[i])) for i, kind in enumerate(kinds)}


def _alike(likeness: float, apart: Matrix) -> Matrix:
    """``likeness`` to the power of ``apart``, which counts halves: looked up, for powers are slow."""
    halves = (2.0 * apart).astype(np.intp)
    powers: Column = np.power(likeness, 0.5 * np.arange(int(halves.max(initial=0)) + 1, dtype=np.float64))
    return powers[halves]


@dataclass(frozen=True)
class _Moments:
    """Of the measured rows, weighed by the inverse covariance of noise and misfit."""

    gram: Matrix
    moment: Column
    squares: float
    logs: float


def _moments(data: Data, inverse: _Inverse) -> _Moments:
    weighted, values = inverse.of(data.columns), inverse.of(data.values)
    return _Moments(data.columns.T @ weighted, weighted.T @ data.values, float(data.values @ values), inverse.logs)
