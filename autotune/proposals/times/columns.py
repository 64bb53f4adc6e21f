"""The learnt part's columns: knobs of a phase as numbers, and pairs of them where the measurements ask for it. Pure.

A choice has a column for each value that was measured; a number one for its base-2 logarithm, around the measured mean.
What is foretold at a value nobody measured is wider by that value's own variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column
from autotune.proposals.times.features import OFF, is_number
from autotune.proposals.times.regression import Data, Matrix, Neighbours, RowPosterior

CHOICE_SD = 0.3
"""Of one value of a choice, in log seconds; two values differ by the square root of 2 times that."""
SLOPE_SD = 0.12
"""Of a number's effect, in log seconds for each doubling."""
PAIR_SD = 0.2
MOST_PAIRS = 3
"""Pairs of knobs."""
LEAST_ROWS = 8
"""Fewer tell of no pair."""


@dataclass(frozen=True)
class Term:
    """One column: a knob's number, or whether a choice has this value."""

    knob: str
    value: float | None = None
    """Code of the choice's value; ``None`` of a number."""
    centre: float = 0.0

    def of(self, own: Mapping[str, Column]) -> Column:
        """The column of rows."""
        column = own[self.knob]
        if self.value is not None:
            return np.where(column == self.value, 1.0, 0.0)
        return np.asarray(np.where(column == OFF, 0.0, column - self.centre), dtype=np.float64)


@dataclass(frozen=True)
class Layout:
    """Which columns a phase has: the constant, the terms, products of two terms, levels of earlier studies."""

    terms: tuple[Term, ...] = ()
    steady: Mapping[str, float] = field(default_factory=dict)
    """Knobs that had one value in all that was measured: knob -> that value."""
    pairs: tuple[tuple[int, int], ...] = ()
    """Places in ``terms``."""
    pair_centres: tuple[float, ...] = ()
    constant_sd: float = 1.0
    levels: tuple[float, ...] = ()
    """Of each earlier study the standard deviation of its level over this one's."""

    def matrix(self, own: Mapping[str, Column], size: int) -> Matrix:
        """rows x columns, of rows of this study."""
        single = [term.of(own) for term in self.terms]
        both = [single[a] * single[b] - c for (a, b), c in zip(self.pairs, self.pair_centres, strict=True)]
        return np.column_stack([np.ones(size), *single, *both, *(np.zeros(size) for _ in self.levels)])

    def variance(self) -> Column:
        """Of each coefficient, in log seconds squared."""
        sd = [SLOPE_SD if term.value is None else CHOICE_SD for term in self.terms]
        return np.array([s * s for s in (self.constant_sd, *sd, *[PAIR_SD] * len(self.pairs), *self.levels)])

    @property
    def effects(self) -> NDArray[np.bool_]:
        """Which columns are effects of knobs."""
        count = len(self.terms) + len(self.pairs)
        return np.array([False, *[True] * count, *[False] * len(self.levels)])

    def unmeasured(self, own: Mapping[str, Column], size: int) -> Column:
        """Variance of what no column tells: a value of a choice, or of a knob that never changed, nobody measured."""
        found = np.zeros(size)
        for knob in sorted({term.knob for term in self.terms if term.value is not None}):
            known = [OFF, *(term.value for term in self.terms if term.knob == knob and term.value is not None)]
            found += CHOICE_SD**2 * ~np.isin(own[knob], known)
        for knob, value in self.steady.items():
            other = (own[knob] != value) & (own[knob] != OFF)
            if is_number(knob):
                found += np.square(np.where(other, SLOPE_SD * (own[knob] - value), 0.0))
            else:
                found += 2.0 * CHOICE_SD**2 * other
        return found


def layout_of(own: Mapping[str, Column], constant_sd: float, levels: tuple[float, ...] = ()) -> Layout:
    """The columns that measured rows can tell of: those of knobs that changed where they act. With no rows, none.

    Whether a knob acts has no column: the knob that decides it has one.
    """
    terms: list[Term] = []
    steady: dict[str, float] = {}
    for knob, column in own.items():
        values = np.unique(column[column != OFF])
        if len(values) == 1:
            steady[knob] = float(values[0])
        elif len(values) and is_number(knob):
            terms.append(Term(knob, centre=float(np.mean(column[column != OFF]))))
        else:
            terms += [Term(knob, float(value)) for value in values]
    return Layout(tuple(terms), steady, constant_sd=constant_sd, levels=levels)


def with_pair(layout: Layout, posterior: RowPosterior) -> tuple[Layout, float] | None:
    """The layout with the products of the two knobs that explain most of what is left, and what they have to be worth.

    Worth in log evidence: at least the logarithm of the number of pairs of knobs they were picked from, so that among
    many pairs chance alone rarely adds one. ``None`` where there is none to add, or too little was measured.
    """
    data = posterior.data
    single = data.columns[:, 1 : 1 + len(layout.terms)]
    taken = {frozenset(layout.terms[i].knob for i in pair) for pair in layout.pairs}
    candidates = [pair for pair in _candidates(layout) if _knobs(layout, pair) not in taken]
    if len(data.values) < LEAST_ROWS or not candidates or len(taken) >= MOST_PAIRS:
        return None
    total = data.noise + posterior.scales.misfit**2
    explained = _explained(single, posterior.surprise, total)
    best = max(candidates, key=lambda pair: (explained[pair], pair))
    added = tuple(pair for pair in candidates if _knobs(layout, pair) == _knobs(layout, best))
    centres = tuple(float(np.mean(single[:, a] * single[:, b])) for a, b in added)
    more = replace(layout, pairs=layout.pairs + added, pair_centres=layout.pair_centres + centres)
    return more, math.log(len({_knobs(layout, pair) for pair in candidates})) + 1.0


def _knobs(layout: Layout, pair: tuple[int, int]) -> frozenset[str]:
    return frozenset(layout.terms[place].knob for place in pair)


def _candidates(layout: Layout) -> list[tuple[int, int]]:
    terms = layout.terms
    return [(a, b) for a in range(len(terms)) for b in range(a + 1, len(terms)) if terms[a].knob != terms[b].knob]


def _explained(single: Matrix, residual: Column, total: Column) -> Matrix:
    """Of every product of two columns, around its mean: by how much it alone would lower the squared residuals.

    Args:
        residual: what is left of each row, by how sure it was.
        total: variance of each row.
    """
    mean = single.T @ single / len(residual)
    weight = 1.0 / total
    score = (single * residual[:, None]).T @ single - mean * float(np.sum(residual))
    squares = (np.square(single) * weight[:, None]).T @ np.square(single)
    crossed = (single * weight[:, None]).T @ single
    norm = squares - 2.0 * mean * crossed + np.square(mean) * float(np.sum(weight))
    found: Matrix = np.square(score) / np.maximum(norm, 1e-9 * float(np.sum(weight)))
    return found


def data_of(
    layout: Layout,
    own: Mapping[str, Column],
    values: Column,
    noise: Column,
    near: Neighbours,
    study: NDArray[np.intp] | None = None,
) -> Data:
    """Measured rows in these columns; ``study`` says of each which earlier study it is of, -1: of this one."""
    matrix = layout.matrix(own, len(values))
    if study is not None:
        there = np.flatnonzero(study >= 0)
        matrix[there, matrix.shape[1] - len(layout.levels) + study[there]] = 1.0
    return Data(matrix, values, noise, near)


def apart(own: Mapping[str, Column], others: Mapping[str, Column], shape: tuple[int, int]) -> Matrix:
    """rows x other rows, of ``shape``: in how many knobs they differ.

    A knob that acts in one of the two only counts half: the knob that decides it counts as well. With half, ``r`` to
    the power of this is a correlation whatever the knobs are: of one knob, any number of values that have the part
    ``r`` of their variance in common, and of what does not act that common part alone.
    """
    if 0 in shape:
        return np.zeros(shape)
    # Most knobs are the same everywhere.
    pairs = ((here, others[name]) for name, here in own.items())
    several = [(here, there) for here, there in pairs if (there != there[0]).any() or (here != there[0]).any()]
    if not several:
        return np.zeros(shape)
    told = [(here, there, np.unique(there)) for here, there in several]
    # Counted by products of indicators: of each value, and of a knob that does not act.
    equal = (
        _indicated([here[:, None] == v for here, _, v in told]) @ _indicated([t[:, None] == v for _, t, v in told]).T
    )
    off = _indicated([here[:, None] == OFF for here, _, _ in told])
    off_there = _indicated([there[:, None] == OFF for _, there, _ in told])
    one_only = off.sum(axis=1)[:, None] + off_there.sum(axis=1)[None, :] - 2.0 * off @ off_there.T
    found: Matrix = len(told) - equal - 0.5 * one_only
    return found


def _indicated(columns: Sequence[NDArray[np.bool_]]) -> Matrix:
    return np.concatenate(columns, axis=1).astype(np.float64)
