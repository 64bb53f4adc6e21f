"""Timed cycles that still were a warm-up are left out, and only those."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.trials import UNSETTLED, still_warming
from tests.support import factories as f


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        ([11.6, 8.58, 7.74], 1),  # an H100's baseline, after two natural cycles
        ([32.17, 16.99, 17.18], 1),  # another H100
        ([20.0, 23.0, 9.5, 11.6, 8.6, 7.7], 2),
        ([20.5, 19.7, 9.9, 7.8, 12.3], 2),
        ([9.87, 7.77, 12.29], 0),  # the slow one comes last: no warm-up
        ([5.9, 5.9, 5.2], 0),
        ([8.0, 7.0, 6.5], 0),  # falls, but by no more than steady cycles differ
        ([20.0, 10.0], 0),
        ([], 0),
    ],
)
def test_recorded_cycles(seconds: list[float], first: int) -> None:
    assert still_warming(seconds) == first


@given(st.lists(st.floats(1.0, 1.0 + UNSETTLED), max_size=10))
def test_cycles_within_the_limit_all_count(seconds: list[float]) -> None:
    assert still_warming(seconds) == 0


@given(st.lists(st.floats(0.1, 100.0), max_size=12))
def test_at_least_half_of_the_cycles_are_left(seconds: list[float]) -> None:
    assert still_warming(seconds) <= len(seconds) // 2


def test_steady_cycles_are_hardly_ever_taken_for_a_warm_up_and_their_mean_stays() -> None:
    """Normal cycles that scatter by 8 %, as the recorded CPU tables' do: 10,000 trials of three."""
    rng, dropped, shift = random.Random(2), 0, 0.0
    for _ in range(10_000):
        logs = [rng.gauss(0.0, 0.08) for _ in range(3)]
        first = still_warming([math.exp(log) for log in logs])
        dropped += first > 0
        shift += sum(logs[first:]) / (3 - first) - sum(logs) / 3
    assert dropped <= 50
    assert abs(shift) / 10_000 < 0.001


def test_a_trials_speed_is_of_its_warm_cycles_and_it_tells_which_were_not() -> None:
    trial = f.finished(cycle_seconds=[30.0, 10.0, 10.2])
    assert [c.index for c in trial.warming_cycles()] == [0]
    assert [c.index for c in trial.speed_cycles()] == [1, 2]
    assert trial.tokens_per_hour == pytest.approx(f.finished(cycle_seconds=[10.0, 10.2]).tokens_per_hour)
    steady = f.finished(cycle_seconds=[10.4, 10.0, 10.2])
    assert (len(steady.warming_cycles()), len(steady.speed_cycles())) == (0, 3)
