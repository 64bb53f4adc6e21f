"""Factors of memory's scales, learnt from peaks and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.proposals.memory.model import Factors, Peaks, fit


def seen(matrix: list[list[float]], level: list[float], bounds: list[bool]) -> Peaks:
    count = len(level)
    return Peaks(
        rows=1e9 * np.array(matrix, dtype=float).reshape(count, 1, 2),
        moments=np.ones((count, 1), dtype=bool),
        logs=np.log(1e9 * np.array(level, dtype=float)),
        bounds=np.array(bounds, dtype=bool),
        noise=np.ones(count),
    )


PRIOR = Factors(np.zeros(2), np.diag([0.25, 0.25]))


def mean(found: Factors) -> np.ndarray:
    factors: np.ndarray = np.exp(found.logs)
    return factors


def test_without_observations_nothing_is_learnt() -> None:
    found = fit(PRIOR, seen([], [], []))
    assert np.allclose(found.logs, PRIOR.logs)
    assert np.allclose(found.covariance, PRIOR.covariance)


def test_what_is_measured_is_believed_and_narrows() -> None:
    found = fit(PRIOR, seen([[2.0, 0.0]] * 4, [3.0] * 4, [False] * 4))
    assert mean(found)[0] == pytest.approx(1.5, abs=0.02)
    assert mean(found)[1] == pytest.approx(1.0)
    assert found.covariance[0, 0] < 0.02
    assert found.covariance[1, 1] == pytest.approx(0.25)


def test_a_part_may_be_almost_nothing_and_never_less() -> None:
    found = fit(PRIOR, seen([[1.0, 3.0]] * 4, [0.5] * 4, [False] * 4))
    assert np.all(mean(found) > 0.0)
    assert mean(found) @ [1.0, 3.0] < 1.0


def test_a_bound_far_below_what_is_believed_says_nothing() -> None:
    found = fit(PRIOR, seen([[2.0, 1.0]], [0.1], [True]))
    assert np.allclose(found.logs, PRIOR.logs, atol=1e-3)


def test_a_bound_above_lifts_what_could_explain_it_and_no_further_than_is_plausible() -> None:
    found = fit(PRIOR, seen([[2.0, 0.0]], [3.0], [True]))
    assert mean(found)[0] > 1.4
    assert mean(found)[1] == pytest.approx(1.0)
    higher, absurd = (mean(fit(PRIOR, seen([[2.0, 0.0]], [level], [True])))[0] for level in (3.5, 1e6))
    assert mean(found)[0] < higher <= absurd < 3.0


def test_bounds_never_take_back_what_was_measured() -> None:
    both = seen([[1.0, 1.0], [1.0, 0.0]], [2.0, 2.0], [False, True])
    measured, found = fit(PRIOR, both.part(~both.bounds)), fit(PRIOR, both)
    assert np.all(found.logs >= measured.logs - 1e-12)
    assert found.logs[0] > measured.logs[0]
    together = fit(PRIOR, seen([[1.0, 1.0]] * 9 + [[1.0, 0.0]], [2.0] * 9 + [2.0], [False] * 9 + [True]))
    assert together.logs[0] < found.logs[0], "the better the sum is known, the less its part can be raised"
