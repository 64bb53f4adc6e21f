"""The benchmark of intervals: what its worlds are made of, and that its figures tell a good interval from a bad one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.statistics.noise import GPU_PROCESS, PROCESS
from benchmarks.intervals import fitting, product, scoring
from benchmarks.intervals.product import Statement
from benchmarks.intervals.recordings import Recording, recordings
from benchmarks.intervals.sight import CLEAN, disturbed_runs, sight, slope_of


@pytest.fixture(scope="module")
def every() -> list[Recording]:
    return recordings()


def test_the_constants_are_what_the_recordings_say(every: list[Recording]) -> None:
    for on_gpu, constant in ((False, PROCESS), (True, GPU_PROCESS)):
        fitted = fitting.presumed(every, on_gpu=on_gpu)
        assert math.sqrt(constant.variance) == pytest.approx(math.sqrt(fitted.variance), rel=0.05)


def test_the_guard_sees_what_was_recorded() -> None:
    cpu, gpu = sight(False), sight(True)
    assert 2.5 < cpu.slope.slope < 3.5
    assert cpu.slope == slope_of(disturbed_runs()) == gpu.slope
    assert 0.01 < cpu.background.min() < cpu.background.max() <= CLEAN
    assert gpu.background.max() < 0.01
    drifted = [np.mean(one > 0.03) for one in (gpu.drifts, cpu.drifts, cpu.spurious)]
    assert drifted[0] < 0.05 < 0.15 < drifted[1] < 0.3 < 0.7 < drifted[2]


def test_coverage_and_power_on_a_small_fixed_set() -> None:
    """Twenty studies of each ratio on a quiet machine: binomial bounds of 95 % coverage and 90 % power."""
    rows = {row["ratio"]: row for row in scoring.scored("quiet, CPU", 20, 3)}
    assert set(rows) == set(scoring.RATIOS)
    for row in rows.values():
        assert all(float(row[f"covers_{k}"] or 0.0) >= 0.8 for k in (1, 2, 3, 5))
    assert float(rows[1.0]["faster_at_any_look"] or 0.0) <= 0.1
    assert float(rows[2.33]["faster_1"] or 0.0) >= 0.9
    widths = [rows[1.0][f"half_width_{k}"] or 0.0 for k in (1, 2, 3)]
    assert widths == sorted(widths, reverse=True)


def test_an_interval_that_is_too_narrow_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = product.stated

    def narrow(*arguments: object) -> Statement | None:
        one = stated(*arguments)  # type: ignore[arg-type]
        return one and one._replace(low=one.middle - 0.01, high=one.middle + 0.01)

    monkeypatch.setattr(product, "stated", narrow)
    row = next(scoring.scored("restless, CPU", 30, 0))
    assert all(float(row[f"covers_{k}"] or 0.0) < 0.5 for k in scoring.LOOKS)


def test_a_study_draws_the_same_whatever_else_is_asked() -> None:
    first, again, other = (next(scoring.scored("restless, CPU", 2, seed)) for seed in (5, 5, 6))
    assert first == again != other
