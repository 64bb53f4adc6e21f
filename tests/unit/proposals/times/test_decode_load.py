"""Lengths as decode steps: no token is lost, and the tail is as long as the longest row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.proposals.times.lengths import SEGMENTS, DecodeLoad, heavy_tailed, load, longest_sum, presumed
from tests.support import timed_machine as made
from tests.support.properties import examples

rows = st.lists(st.integers(1, 500), min_size=1, max_size=80)


def longest(found: DecodeLoad) -> float:
    """Steps of its generations together."""
    return float(np.sum(found.steps))


@examples(25, 60)
@given(rows, st.integers(1, 100))
def test_every_token_is_decoded_once(some: list[int], places: int) -> None:
    found = load(tuple(some), 1, 1, len(some), places, continuous=True)
    assert float(np.sum(found.steps * found.live)) == pytest.approx(sum(some))
    assert longest(found) >= max(some)
    assert np.all(found.live <= min(places, len(some)) + 1e-9)
    assert np.all((found.context >= 0) & (found.context <= max(some)))
    assert len(found.steps) <= max(SEGMENTS, len(set(some)))
    if places >= len(some):
        assert longest(found) == max(some)
    if places == 1:
        assert longest(found) == sum(some)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_without_continuous_batching_all_rows_run_to_the_end(some: list[int]) -> None:
    found = load(tuple(some), 1, 1, len(some), 1000, continuous=False)
    assert float(np.sum(found.steps * found.live)) == pytest.approx(len(some) * max(some))
    assert longest(found) == max(some)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=8, max_size=64), st.integers(1, 4), st.integers(1, 4))
def test_generations_follow_each_other_and_replicas_share(some: list[int], generations: int, replicas: int) -> None:
    found = load(tuple(some), generations, replicas, len(some), 1000, continuous=True)
    assert max(some) <= longest(found) <= longest_sum(tuple(some), generations, len(some))
    assert float(np.sum(found.steps * found.live)) <= sum(some)
    assert longest_sum(tuple(some), generations, len(some)) <= generations * max(some)


def test_more_rows_than_recorded_are_alike() -> None:
    some = (10, 20, 30, 40)
    one, many = (load(some, 1, 1, count, 10**6, continuous=True) for count in (4, 400))
    assert longest(one) == longest(many) == 40
    assert float(np.sum(many.steps * many.live)) == pytest.approx(100 * float(np.sum(one.steps * one.live)))
    huge = load(some, 1, 1, 100_000, 10**6, continuous=True)
    assert float(np.sum(huge.steps * huge.live)) == pytest.approx(100_000 * 25, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 600), st.integers(2, 5000), st.floats(0.1, 0.9))
def test_a_heavy_tail_has_the_mean_asked_for(rows: int, limit: int, share: float) -> None:
    found = heavy_tailed(rows, limit, share * limit)
    assert len(found) == rows
    assert all(1 <= n <= limit for n in found)
    assert sum(found) / rows == pytest.approx(max(1.0, share * limit), rel=0.1, abs=1.0)


def test_what_is_not_recorded_is_presumed_and_marked() -> None:
    unknown = presumed(made.task(lengths=(), prompt_tokens=0.0))
    assert unknown.presumed
    assert max(unknown.completions) <= made.task().max_completion_length
    assert 0 < unknown.prompt <= made.task().max_prompt_length
    known = presumed(made.task())
    assert not known.presumed
    assert known.completions == made.task().lengths
    assert math.isclose(known.prompt, made.PROMPT)
