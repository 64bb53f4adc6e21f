"""What each knob explains: found where it is, not found where it is not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Trial
from autotune.insights.importance import importance
from tests.support import factories


def _trials(count: int, seed: int, noise: float = 0.02) -> list[Trial]:
    """The micro-batch doubles the speed, checkpointing costs a tenth, the row chunk does nothing."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        rows, kept, chunk = chance.choice((1, 2, 4)), chance.choice((True, False)), chance.choice((1, 2, 4, 8))
        seconds = 100.0 / rows * (1.1 if kept else 1.0) * (1 + chance.gauss(0, noise))
        settings = factories.configuration(
            micro_batch_size=rows, gradient_checkpointing=kept, logprob_rows=chunk, logprob_token_chunk=number + 1
        )
        made.append(factories.finished(number, configuration=settings, cycle_seconds=seconds))
    return made


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_knob_that_matters(seed: int) -> None:
    found = importance(_trials(40, seed))
    shares = {i.knob: i.share for i in found.influences}
    assert found.influences[0].knob == "micro_batch_size"
    assert shares["micro_batch_size"] > 0.9
    assert shares["logprob_rows"] < 0.2
    assert list(found.influences[0].means) == [4, 2, 1]
    assert found.note == ""


def test_a_knob_with_a_value_for_each_trial_explains_nothing() -> None:
    shares = {i.knob: i.share for i in importance(_trials(40, 0)).influences}
    assert shares["logprob_token_chunk"] == 0.0


def test_chance_is_subtracted() -> None:
    """Eight groups drawn at random would explain 7 of 39 parts of the variance."""
    made = [
        [
            t.with_(configuration=t.configuration.with_(logprob_vocab_chunk=128 * (1 + (t.number * 7 + seed) % 8)))
            for t in _trials(40, seed)
        ]
        for seed in range(12)
    ]
    shares = [i.share for trials in made for i in importance(trials).influences if i.knob == "logprob_vocab_chunk"]
    assert len(shares) == 12
    assert sum(shares) / 12 < 0.08


def test_knobs_that_never_changed_are_not_listed() -> None:
    assert "num_generations" not in {i.knob for i in importance(_trials(30, 0)).influences}


def test_says_when_there_are_too_few_trials() -> None:
    assert importance(_trials(19, 0)).note == "too few trials: 19 feasible of 20 needed"
    assert importance(_trials(20, 0)).note == ""
    assert importance([]).influences == ()


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(2, 30))
def test_shares_are_shares(seed: int, count: int) -> None:
    found = importance(_trials(count, seed, noise=0.3))
    assert all(0.0 <= i.share <= 1.0 for i in found.influences)


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_of_trials_does_not_matter(chance: random.Random) -> None:
    trials = _trials(12, 3)
    shuffled = chance.sample(trials, len(trials))
    assert importance(shuffled) == importance(trials)


def test_equal_speeds_are_explained_by_nothing() -> None:
    trials = [
        factories.finished(n, configuration=factories.configuration(micro_batch_size=1 + n % 3, logprob_rows=n + 1))
        for n in range(9)
    ]
    assert {i.share for i in importance(trials).influences} == {0.0}
