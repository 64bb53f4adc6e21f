"""Lengths as decode steps: no token is lost, and the tail is as long as the longest row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.proposals.times.lengths import Lengths, decoding, heavy_tailed, longest, presumed
from tests.support import timed_machine as made

rows = st.lists(st.integers(1, 500), min_size=1, max_size=80)


def decoded(some: list[int], count: float, places: float, *, continuous: bool) -> tuple[float, float, float]:
    """Returns steps, tokens and the largest context of one generation."""
    columns = (np.array([float(n)]) for n in (count, 1, places, continuous))
    steps, live, context = decoding(Lengths(tuple(some), 8.0, 8.0), *columns)
    return float(steps.sum()), float(steps[0] @ live[0]), float(context.max())


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(1, 100))
def test_every_token_is_decoded_once(some: list[int], places: int) -> None:
    steps, tokens, context = decoded(some, len(some), places, continuous=True)
    assert tokens == pytest.approx(sum(some))
    assert steps >= max(some)
    assert tokens / steps <= min(places, len(some)) + 1e-9
    assert 0 <= context <= max(some)
    if places >= len(some):
        assert steps == max(some)
    if places == 1:
        assert steps == pytest.approx(sum(some))


@settings(max_examples=40, deadline=None)
@given(rows)
def test_without_continuous_batching_all_rows_run_to_the_end(some: list[int]) -> None:
    steps, tokens, _ = decoded(some, len(some), 1000, continuous=False)
    assert (steps, tokens) == (max(some), pytest.approx(len(some) * max(some)))


def test_the_slowest_replica_has_the_longest_row() -> None:
    rows, places, continuous = (np.array([n, n]) for n in (4.0, 100.0, 1.0))
    steps, live, _ = decoding(Lengths((10, 20, 30, 40), 8.0, 8.0), rows, np.array([1.0, 2.0]), places, continuous)
    assert steps.sum(axis=1).tolist() == [40.0, 40.0]
    assert (steps * live).sum(axis=1).tolist() == [100.0, 70.0]


def test_a_batch_shrinks_at_the_end_where_there_are_fewer_places_than_rows() -> None:
    steps, tokens, _ = decoded([10, 10, 40], 3, 2, continuous=True)
    assert (steps, tokens) == (50.0, 60.0)


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(1, 100))
def test_the_longest_of_some_lies_between_the_mean_and_the_longest_of_all(some: list[int], count: int) -> None:
    found = float(longest(tuple(some), np.array([count]))[0])
    assert sum(some) / len(some) - 1e-6 <= found <= max(some) + 1e-6
    assert count < len(some) or found == pytest.approx(max(some))
    assert float(longest(tuple(some), np.array([count + 1]))[0]) >= found - 1e-6


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
