"""A lower limit of completions: what it cuts and saves, by the lengths that were seen."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.insights.limits import QUANTILES, ROWS, lower_limits

LENGTHS = st.lists(st.integers(1, 4096), min_size=ROWS, max_size=200)


def test_a_long_tail_is_most_of_the_tokens_and_few_of_the_rows() -> None:
    found = {each.tokens: (each.rows_cut, each.tokens_saved) for each in lower_limits([100] * 90 + [1000] * 10)}
    assert found == {100: (pytest.approx(0.1), pytest.approx(9000 / 19000))}


@given(lengths=LENGTHS)
def test_a_limit_does_what_it_says(lengths: list[int]) -> None:
    found = lower_limits(lengths)
    assert [each.tokens for each in found] == sorted({each.tokens for each in found})
    assert len(found) <= len(QUANTILES)
    for each in found:
        kept = [min(n, each.tokens) for n in lengths]
        assert each.rows_cut == pytest.approx(sum(n > each.tokens for n in lengths) / len(lengths))
        assert each.tokens_saved == pytest.approx(1 - sum(kept) / sum(lengths))
        assert 0 < each.rows_cut <= 0.5
        assert each.tokens < max(lengths)
    for lower, higher in pairwise(found):
        assert lower.rows_cut > higher.rows_cut
        assert lower.tokens_saved > higher.tokens_saved


@pytest.mark.parametrize("lengths", [[], [5] * (ROWS - 1), [5] * ROWS, [0] * ROWS])
def test_few_lengths_and_equal_ones_give_no_limit(lengths: list[int]) -> None:
    assert lower_limits(lengths) == ()
