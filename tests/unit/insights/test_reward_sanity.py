"""Whether lower rewards are told from noise."""

from __future__ import annotations

import random

import pytest

from autotune.domain import CycleKind, Trial
from autotune.insights.rewards import compare, natural_rewards
from tests.support import factories as f
from tests.support.not_none import not_none


def earned(number: int, *means: float | None, rank: int = 0) -> Trial:
    """A trial whose natural-length cycles have these mean rewards, and a recorded one that earned nothing."""
    natural = [f.cycle(i, cycle_kind=CycleKind.NATURAL, reward_mean=mean, rank=rank) for i, mean in enumerate(means)]
    return f.finished(number).with_(cycles=(*natural, f.cycle(9, reward_mean=0.0)))


def test_only_natural_lengths_count_and_each_cycle_once() -> None:
    """Every rank records the same mean; counting it twice would make two cycles look like four."""
    assert natural_rewards([earned(0, 0.5, None), earned(1, 0.25), earned(2, 0.9, rank=1)]) == [0.5, 0.25]


def test_one_cycle_on_a_side_decides_nothing() -> None:
    assert compare([earned(1, 0.0)], [earned(0, 0.5, 0.5)]) is None
    assert compare([earned(1)], [earned(0)]) is None


def test_a_collapse_is_told_with_its_figures() -> None:
    found = not_none(compare([earned(1, 0.01, 0.0), earned(2, 0.02)], [earned(0, 0.50, 0.54), earned(3, 0.46)]))
    assert found.worse
    assert found.cycles == (3, 3)
    assert "mean reward 0.010 against 0.500" in found.sentence()
    assert found.low < found.difference < found.high < 0


def test_a_lower_mean_within_the_spread_is_no_verdict() -> None:
    found = not_none(compare([earned(1, 0.30, 0.50)], [earned(0, 0.45, 0.55)]))
    assert found.difference == pytest.approx(-0.1)
    assert not found.worse


def test_more_reward_is_never_worse() -> None:
    found = not_none(compare([earned(1, 0.9, 0.91)], [earned(0, 0.1, 0.11)]))
    assert not found.worse


def test_noise_alone_is_seldom_taken_for_a_loss() -> None:
    """Two-sided 95 %, so one in forty; were the interval too narrow, good configurations would be turned away."""
    dice = random.Random(0)
    judged = []
    for _ in range(2000):
        sides = [[earned(0, *(dice.gauss(0.4, 0.1) for _ in range(count)))] for count in (2, 4)]
        found = not_none(compare(*sides))
        judged.append(found.worse)
    assert 0.015 < sum(judged) / len(judged) < 0.035
