"""Factors of memory's parts, learnt from peaks and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.proposals.memory.model import Factors, Peaks, fit


def seen(matrix: list[list[float]], level: list[float], censored: list[bool]) -> Peaks:
    count = len(level)
    return Peaks(
        matrix=1e9 * np.array(matrix, dtype=float).reshape(count, 1, 2),
        moments=np.ones((count, 1), dtype=bool),
        level=1e9 * np.array(level, dtype=float),
        censored=np.array(censored, dtype=bool),
        noise=np.ones(count),
        whole=np.ones(count, dtype=bool),
    )


PRIOR = Factors(np.zeros(2), np.diag([0.25, 0.25]), 0.05)


def test_without_observations_nothing_is_learnt() -> None:
    found = fit(PRIOR, seen([], [], []))
    assert np.allclose(found.mean, PRIOR.mean)
    assert np.allclose(found.covariance, PRIOR.covariance)
    assert found.noise == PRIOR.noise


def test_what_is_measured_is_believed_and_narrows() -> None:
    found = fit(PRIOR, seen([[2.0, 0.0]] * 4, [3.0] * 4, [False] * 4))
    assert found.mean[0] == pytest.approx(1.5, abs=0.02)
    assert found.mean[1] == pytest.approx(1.0)
    assert found.covariance[0, 0] < 0.02
    assert found.covariance[1, 1] == pytest.approx(0.25)


def test_a_part_may_be_almost_nothing_and_never_less() -> None:
    found = fit(PRIOR, seen([[1.0, 3.0]] * 4, [0.5] * 4, [False] * 4))
    assert np.all(found.mean > 0.0)
    assert found.mean @ [1.0, 3.0] < 1.0


def test_scatter_is_learnt() -> None:
    levels = [2.0 * (1.0 + s) for s in (0.2, -0.2, 0.15, -0.15, 0.25, -0.25) * 4]
    wide = fit(PRIOR, seen([[2.0, 0.0]] * 24, levels, [False] * 24))
    calm = fit(PRIOR, seen([[2.0, 0.0]] * 24, [2.0] * 24, [False] * 24))
    assert calm.noise < PRIOR.noise < wide.noise
    assert wide.noise == pytest.approx(0.18, abs=0.04)


def test_a_bound_below_what_is_believed_says_nothing() -> None:
    found = fit(PRIOR, seen([[2.0, 1.0]], [1.0], [True]))
    assert np.allclose(found.mean, PRIOR.mean)


def test_a_bound_above_lifts_what_could_explain_it_and_no_further_than_is_plausible() -> None:
    found = fit(PRIOR, seen([[2.0, 0.0]], [3.0], [True]))
    assert found.mean[0] > 1.4
    assert found.mean[1] == pytest.approx(1.0)
    higher, absurd = (fit(PRIOR, seen([[2.0, 0.0]], [level], [True])) for level in (3.5, 1e6))
    assert found.mean[0] < higher.mean[0] <= absurd.mean[0] < 3.0


def test_bounds_never_take_back_what_was_measured() -> None:
    both = seen([[1.0, 1.0], [1.0, 0.0]], [2.0, 2.0], [False, True])
    measured = fit(PRIOR, both.part(~both.censored))
    found = fit(PRIOR, both)
    assert np.all(found.mean >= measured.mean - 1e-12)
    assert found.mean[0] > measured.mean[0]
    together = fit(PRIOR, seen([[1.0, 1.0]] * 9 + [[1.0, 0.0]], [2.0] * 9 + [2.0], [False] * 9 + [True]))
    assert together.mean[0] < found.mean[0], "the better the sum is known, the less its part can be raised"
