"""What is learnt of a phase: the closed forms against one Gaussian written out, and what a row says of its neighbours.

If one of these fails, a surface is smoothed where rows are singular, or forgets what next-door rows have told.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Phase
from autotune.proposals.forecasts import Column
from autotune.proposals.times.features import OFF, PhaseRows, coded
from autotune.proposals.times.learning import (
    CARRIED_LEVEL_SD,
    CHOICE_SD,
    SLOPE_SD,
    Knobs,
    PhasePosterior,
    Rows,
    Scales,
    fit,
    learn,
    measured_rows,
)
from autotune.proposals.times.observed import Measured

UPDATE = Phase.UPDATE.value
YES, NO = coded(True), coded(False)
LEVEL = 0.7


def knobs_of(count: int, seed: int) -> dict[str, Column]:
    draw = np.random.default_rng(seed)
    return {
        "micro_batch_size": draw.integers(0, 4, count).astype(float),
        "gradient_checkpointing": draw.choice([YES, NO], count),
        "attn_implementation": draw.choice([coded("sdpa"), coded("eager"), OFF], count),
        "optimizer": np.full(count, coded("adamw_torch")),
    }


def rows_of(own: dict[str, Column], seed: int = 0, studies: int = 0) -> Rows:
    draw, count = np.random.default_rng(seed), len(own["optimizer"])
    study = draw.integers(-1, studies, count) if studies else np.full(count, -1)
    return Rows(Knobs.of(own, count), draw.normal(size=count), draw.uniform(0.001, 0.1, count), study.astype(np.intp))


def some(rows: Rows, kept: np.ndarray) -> dict[str, Column]:
    return {name: column[kept] for name, column in rows.knobs.own.items()}


def together(rows: Rows, scales: Scales, other: dict[str, Column], place: int, i: int) -> float:
    """Covariance of another row and the measured row ``i``, one knob after the other."""
    effects, differ = 0.0, 0
    for name, column in rows.knobs.own.items():
        here, there = other[name][place], column[i]
        acting = column[column != OFF]
        differ += here != there
        if len(np.unique(acting)) < 2 or OFF in (here, there):
            continue
        if name == "micro_batch_size":
            effects += SLOPE_SD**2 * (here - acting.mean()) * (there - acting.mean())
        else:
            effects += CHOICE_SD**2 * (here == there)
    return float(LEVEL**2 + scales.size**2 * effects + scales.misfit**2 * scales.likeness**differ)


def covariance(rows: Rows, scales: Scales) -> np.ndarray:
    """Of the values but for their noise."""
    count = len(rows.values)
    found = np.array([[together(rows, scales, dict(rows.knobs.own), a, b) for b in range(count)] for a in range(count)])
    same = (rows.study[:, None] == rows.study) & (rows.study >= 0)
    return np.asarray(found + CARRIED_LEVEL_SD**2 * same)


shapes = st.tuples(st.integers(1, 12), st.integers(0, 10_000), st.sampled_from([0, 2]), st.sampled_from([0.0, 0.5]))


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_it_is_the_gaussian_it_says_it_is(shape: tuple[int, int, int, float]) -> None:
    count, seed, studies, likeness = shape
    rows, scales = rows_of(knobs_of(count, seed), seed, studies), Scales(1.5, 0.1, likeness)
    process, latent = fit(rows, LEVEL, [scales]), covariance(rows, scales)
    whole = latent + np.diag(rows.noise)
    inverse = np.linalg.inv(whole)
    mean, variance = process.at_measured()
    assert np.allclose(mean, latent @ inverse @ rows.values)
    assert np.allclose(variance, np.diag(latent - latent @ inverse @ latent))
    _, logs = np.linalg.slogdet(whole)
    expected = -0.5 * (rows.values @ inverse @ rows.values + logs + count * math.log(2 * math.pi))
    assert process.evidence == pytest.approx(expected)
    other = knobs_of(5, seed + 1)
    cross = np.array([[together(rows, scales, other, a, b) for b in range(count)] for a in range(5)])
    mean, variance = process.at(other, 5)
    assert np.allclose(mean, cross @ inverse @ rows.values)
    explained = np.einsum("ij,jk,ik->i", cross, inverse, cross)
    assert np.all(variance >= LEVEL**2 + scales.misfit**2 - explained - 1e-9)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_leaving_one_out_is_a_prediction_from_the_others(shape: tuple[int, int, int, float]) -> None:
    count, seed, studies, likeness = shape
    rows, scales = rows_of(knobs_of(count, seed), seed, studies), Scales(1.0, 0.1, likeness)
    whole = covariance(rows, scales) + np.diag(rows.noise)
    mean, variance = fit(rows, LEVEL, [scales]).left_out()
    for place in range(count):
        others = np.arange(count) != place
        gain = whole[place, others] @ np.linalg.inv(whole[np.ix_(others, others)])
        assert mean[place] == pytest.approx(gain @ rows.values[others], abs=1e-8)
        assert variance[place] == pytest.approx(whole[place, place] - gain @ whole[others, place], rel=1e-6)


def test_what_no_knob_says_is_shared_with_neighbours() -> None:
    """One row is slower than its knobs say: so is its neighbour, in part; far away nothing is known."""
    own = {str(k): np.array([0.0, 1.0]) for k in range(4)}
    rows = Rows(Knobs.of(own, 2), np.array([0.0, 0.4]), np.full(2, 1e-6), np.full(2, -1))
    process = fit(rows, 1e-3, [Scales(1e-3, 0.2, 0.5)])
    asked = {str(k): np.array([1.0, float(k > 1), 2.0]) for k in range(4)} | {"0": np.array([0.0, 0.0, 2.0])}
    mean, _ = process.at(asked, 3)
    assert mean[0] == pytest.approx(0.2, abs=0.03)
    assert mean[1] == pytest.approx(0.1, abs=0.03)
    assert abs(mean[2]) < 0.03


def test_the_most_probable_scales_are_found() -> None:
    own = {str(k): np.random.default_rng(k).integers(0, 2, 60).astype(float) for k in range(3)}
    draw = np.random.default_rng(3)
    values = 0.5 * own["0"] - 0.4 * own["1"] + 0.6 * own["2"] + draw.normal(0.0, 0.2, 60)
    rows = Rows(Knobs.of(own, 60), values, np.full(60, 1e-6), np.full(60, -1))
    tried = [Scales(size, misfit) for size in (0.05, 1.0) for misfit in (0.01, 0.2, 3.0)]
    best = fit(rows, LEVEL, tried)
    assert (best.scales.size, best.scales.misfit) == (1.0, 0.2)
    assert best.evidence == max(fit(rows, LEVEL, [scales]).evidence for scales in tried)


def test_nothing_measured_is_the_prior_and_all_rows_are_alike() -> None:
    nothing = rows_of({name: column[:0] for name, column in knobs_of(3, 0).items()})
    mean, variance = fit(nothing, LEVEL).at(knobs_of(3, 0), 3)
    assert mean.tolist() == [0.0] * 3
    assert np.allclose(variance, LEVEL**2 + Scales().misfit ** 2)


def test_a_knob_that_never_changed_tells_nothing_but_is_remembered() -> None:
    own = knobs_of(20, 0)
    knobs = Knobs.of(own, 20)
    assert knobs.steady == {"optimizer": coded("adamw_torch")}
    assert np.all(knobs.unmeasured(own, 20) == 0.0)
    other = {**own, "optimizer": np.full(20, coded("sgd"))}
    assert np.allclose(knobs.unmeasured(other, 20), 2 * CHOICE_SD**2)
    third = {**own, "attn_implementation": np.full(20, coded("flash_attention_2"))}
    assert np.allclose(knobs.unmeasured(third, 20), CHOICE_SD**2)


def test_a_number_that_never_changed_is_less_certain_the_further_away() -> None:
    knobs = Knobs.of({"micro_batch_size": np.full(5, 2.0)}, 5)
    away = {"micro_batch_size": np.array([2.0, 3.0, 0.0, OFF])}
    assert np.allclose(knobs.unmeasured(away, 4), SLOPE_SD**2 * np.array([0.0, 1.0, 4.0, 0.0]))


def test_a_knob_that_rests_moves_nothing() -> None:
    own = {"max_num_seqs": np.array([OFF, 5.0, 7.0, OFF]), "rollout_engine": np.array([NO, YES, YES, NO])}
    knobs = Knobs.of(own, 4)
    assert np.allclose(knobs.columns(own, 4)[:, 1], SLOPE_SD * np.array([0.0, -1.0, 1.0, 0.0]))
    assert np.all(knobs.unmeasured({**own, "max_num_seqs": np.full(4, OFF)}, 4) == 0.0)


def test_rows_are_apart_by_the_knobs_in_which_they_differ() -> None:
    own = {"a": np.array([1.0, 1.0, 2.0]), "b": np.array([1.0, OFF, OFF]), "c": np.ones(3)}
    rows = Rows(Knobs.of(own, 3), np.zeros(3), np.ones(3), np.full(3, -1))
    assert rows.knobs.apart(own, 3).tolist() == [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    other = {"a": np.array([3.0]), "b": np.array([OFF]), "c": np.array([5.0])}
    assert rows.knobs.apart(other, 1).tolist() == [[3.0, 2.0, 2.0]]


KNOBS = 6
EVERY = np.array(list(itertools.product((0.0, 1.0), repeat=KNOBS)))
SIZE = 0.2
APART = (EVERY[:, None] != EVERY[None]).sum(axis=2)


def table_of(places: np.ndarray) -> PhaseRows:
    own = {f"knob {k}": EVERY[places, k] for k in range(KNOBS)}
    return PhaseRows(own, {}, np.arange(len(places)), tuple(bytes([p]) for p in places.tolist()))


def learnt(logs: np.ndarray, places: np.ndarray) -> PhasePosterior:
    """From a trial of each of the rows, whose logarithm over the prior is known to 1 %."""
    prior, seconds, unknown = np.ones(len(places)), np.exp(logs[places]), np.full(len(places), np.nan)
    found = Measured((), (), {UPDATE: seconds}, seconds, 3.0 * prior, {UPDATE: 1e-4}, unknown, unknown, 8.0 * prior)
    return learn(UPDATE, measured_rows(UPDATE, table_of(places), prior, found), prior, found, 0.35)


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
        right[likeness] += learnt(misfits(likeness, seed), places).known.scales.likeness == likeness
    assert min(right.values()) >= 8, right


def test_what_is_alike_is_foretold_by_it_and_what_is_not_is_not_believed() -> None:
    """Over many tables: errors of rows that were not measured, and whether the spread says so."""
    errors: dict[float, list[float]] = {0.5: [], 0.0: []}
    surprise = []
    for seed, likeness in itertools.product(range(8), errors):
        logs, order = misfits(likeness, seed), np.random.default_rng(100 + seed).permutation(len(EVERY))
        known, asked = order[:48], order[48:]
        mean, variance = learnt(logs, known).at(table_of(asked))
        errors[likeness].append(float(np.mean((mean - logs[asked]) ** 2)))
        surprise.append(float(np.mean((mean - logs[asked]) ** 2 / variance)))
    assert 0.5 < np.median(surprise) < 2.0
    assert np.mean(errors[0.5]) < 0.7 * SIZE**2
    assert np.mean(errors[0.0]) > 0.9 * SIZE**2, "nothing can be known of these"
