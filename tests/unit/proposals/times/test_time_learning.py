"""What no column says of a phase's row: shared with its neighbours where the measurements say so, and else its own.

If one of these fails, a surface is smoothed where rows are singular, or forgets what next-door rows have told.
"""

from __future__ import annotations

import itertools

import numpy as np

from autotune.domain import Phase
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.learning import PhasePosterior, learn, measured_rows
from autotune.proposals.times.observed import Measured

UPDATE = Phase.UPDATE.value
KNOBS = 6
EVERY = np.array(list(itertools.product((0.0, 1.0), repeat=KNOBS)))
SIZE = 0.2
APART = (EVERY[:, None] != EVERY[None]).sum(axis=2)


def rows_of(places: np.ndarray) -> PhaseRows:
    own = {f"knob {k}": EVERY[places, k] for k in range(KNOBS)}
    return PhaseRows(own, {}, np.arange(len(places)), tuple(bytes([p]) for p in places.tolist()))


def learnt(logs: np.ndarray, places: np.ndarray) -> PhasePosterior:
    """From a trial of each of the rows, whose logarithm over the prior is known to 1 %."""
    prior, seconds, unknown = np.ones(len(places)), np.exp(logs[places]), np.full(len(places), np.nan)
    found = Measured((), (), {UPDATE: seconds}, seconds, 3.0 * prior, {UPDATE: 1e-4}, unknown, unknown, 8.0 * prior)
    return learn(UPDATE, measured_rows(UPDATE, rows_of(places), prior, found), prior, found, 0.35, pairs=False)


def misfits(likeness: float, seed: int) -> np.ndarray:
    """Of every row, ``SIZE`` large: what rows that differ in one knob have ``likeness`` of in common."""
    draw = np.random.default_rng(seed)
    shared = np.linalg.cholesky(likeness**APART + 1e-9 * np.eye(len(EVERY)))
    return np.asarray(SIZE * shared @ draw.normal(size=len(EVERY)))


def test_evidence_finds_whether_rows_are_alike() -> None:
    """Mostly: of two tables in three at least, of either kind."""
    right = {0.5: 0, 0.0: 0}
    for seed, likeness in itertools.product(range(12), right):
        places = np.random.default_rng(seed).permutation(len(EVERY))[:48]
        right[likeness] += learnt(misfits(likeness, seed), places).posterior.scales.likeness == likeness
    assert min(right.values()) >= 8, right


def test_what_is_alike_is_foretold_by_it_and_what_is_not_is_not_believed() -> None:
    """Over many tables: errors of rows that were not measured, and whether the spread says so."""
    errors: dict[float, list[float]] = {0.5: [], 0.0: []}
    surprise = []
    for seed, likeness in itertools.product(range(8), errors):
        logs, order = misfits(likeness, seed), np.random.default_rng(100 + seed).permutation(len(EVERY))
        told, asked = order[:48], order[48:]
        mean, variance = learnt(logs, told).at(rows_of(asked))
        errors[likeness].append(float(np.mean((mean - logs[asked]) ** 2)))
        surprise.append(float(np.mean((mean - logs[asked]) ** 2 / variance)))
    assert 0.5 < np.median(surprise) < 2.0
    assert np.mean(errors[0.5]) < 0.7 * SIZE**2
    assert np.mean(errors[0.0]) > 0.9 * SIZE**2, "nothing can be known of these"
