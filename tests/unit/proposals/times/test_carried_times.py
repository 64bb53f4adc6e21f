"""A phase-time model that begins with earlier studies: ahead where they are like the new one, not misled where not."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import pytest

from autotune.domain import Configuration
from autotune.proposals.forecasts import EarlierTrials
from autotune.proposals.times import Hardware, PhaseTimes, carried_over
from autotune.proposals.times.learning import ENOUGH
from tests.support import timed_machine as made

HERE = made.task()
THERE = made.task(lengths=tuple(max(1, n // 2) for n in HERE.lengths), prompt_tokens=20.0)
GUESSED = Hardware("cpu guessed", {"fp32": 1e11, "bf16": 1.5e11}, 2e10, 1e-5, spread=0.5)
SPACE = made.configurations()
REVERSED: Mapping[str, Mapping[str, float]] = {
    phase: {name: -2.0 * value for name, value in found.items()} for phase, found in made.EFFECTS.items()
}


def earlier(
    effects: made.Effects = made.EFFECTS, count: int = 32, seed: int = 5, distance: float = 1.0
) -> EarlierTrials:
    some = random.Random(seed).sample(SPACE, count)
    return EarlierTrials(THERE, tuple(made.trials(some, THERE, seed=seed, effects=effects)), distance)


def beginning(*studies: EarlierTrials) -> PhaseTimes:
    return PhaseTimes(GUESSED, carried=carried_over(HERE, GUESSED, studies))


def error(model: PhaseTimes, asked: list[Configuration]) -> float:
    """Median of what is wrong of the order of configurations: of the logarithms, around their own mean."""
    truth = np.log(np.sum(list(made.true_seconds(asked, HERE).values()), axis=0))
    away = model.forecast(asked).log_seconds - truth
    return float(np.median(np.abs(away - np.median(away))))


def carries(model: PhaseTimes, alone: PhaseTimes, *phases: str) -> bool:
    """Tells whether earlier studies have a part in what is known of any of ``phases``."""
    one, other = model.forecast(SPACE).phases, alone.forecast(SPACE).phases
    return any(not np.array_equal(one[phase], other[phase]) for phase in phases)


def rest(some: list[Configuration]) -> list[Configuration]:
    return [c for c in SPACE if c not in some]


@pytest.mark.parametrize("own", [0, 1, 3])
def test_a_study_like_it_starts_it_ahead(own: int) -> None:
    some = random.Random(1).sample(SPACE, own)
    alone, begun = (m.fitted(HERE, made.trials(some)) for m in (PhaseTimes(GUESSED), beginning(earlier())))
    assert carries(begun, alone, "update")
    assert error(begun, rest(some)) < 0.75 * error(alone, rest(some))


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_how_fast_everything_was_there_is_not_carried(scale: float) -> None:
    """The first trial tells that; the effects of knobs are what counts."""
    effects = {p: dict(made.EFFECTS.get(p, {})) for p in made.true_seconds(SPACE[:1], HERE)}
    for found in effects.values():
        found["num_generations=4"] = math.log(scale)  # of every configuration
    some = random.Random(1).sample(SPACE, 1)
    model, alone = (m.fitted(HERE, made.trials(some)) for m in (beginning(earlier(effects)), PhaseTimes(GUESSED)))
    assert carries(model, alone, "update")
    assert error(model, rest(some)) < 0.9 * error(alone, rest(some))


@pytest.mark.parametrize("seed", range(4))
def test_one_that_says_the_opposite_is_left_aside_before_long(seed: int) -> None:
    some = random.Random(seed).sample(SPACE, 8)
    trials = made.trials(some, seed=seed)
    misled, alone = beginning(earlier(REVERSED)).fitted(HERE, trials), PhaseTimes(GUESSED).fitted(HERE, trials)
    assert not carries(misled, alone, "generate", "update")
    assert error(misled, rest(some)) < error(alone, rest(some)) + 0.02


def test_own_trials_outweigh_it_even_where_it_is_believed() -> None:
    """At a measured row the forecast is the measurement, whatever was measured elsewhere."""
    some = random.Random(2).sample(SPACE, 3)
    trials = made.trials(some, noise=0.005)
    truth = np.log(np.sum(list(made.true_seconds(some, HERE).values()), axis=0))
    model = beginning(earlier(REVERSED)).fitted(HERE, trials)
    assert np.max(np.abs(model.forecast(some).log_seconds - truth)) < 0.05


def test_a_study_with_enough_of_its_own_needs_none() -> None:
    trials = made.trials(random.Random(3).sample(SPACE, ENOUGH))
    begun, alone = beginning(earlier()).fitted(HERE, trials), PhaseTimes(GUESSED).fitted(HERE, trials)
    assert np.array_equal(begun.forecast(SPACE).log_seconds, alone.forecast(SPACE).log_seconds)


def test_nothing_measured_there_changes_nothing() -> None:
    nothing = EarlierTrials(THERE, (), 0.0)
    assert carried_over(HERE, GUESSED, (nothing,)) == {}
    for trials in ((), made.trials(SPACE[:5])):
        one, other = beginning(nothing).fitted(HERE, trials), PhaseTimes(GUESSED).fitted(HERE, trials)
        assert np.array_equal(one.forecast(SPACE).log_seconds, other.forecast(SPACE).log_seconds)


def test_the_order_of_its_trials_changes_nothing_and_a_farther_study_counts_less() -> None:
    there = earlier()
    mixed = EarlierTrials(there.task, tuple(random.Random(1).sample(there.trials, len(there.trials))), there.distance)
    one, other = (beginning(e).fitted(HERE, ()).forecast(SPACE) for e in (there, mixed))
    assert np.array_equal(one.log_seconds, other.log_seconds)
    far = beginning(earlier(distance=6.0)).fitted(HERE, ()).forecast(SPACE)
    assert np.median(far.spread) > np.median(one.spread)


def test_several_studies_have_levels_of_their_own() -> None:
    slow = {p: {"num_generations=4": 2.0, **made.EFFECTS.get(p, {})} for p in made.true_seconds(SPACE[:1], HERE)}
    some = random.Random(1).sample(SPACE, 1)
    both = beginning(earlier(), earlier(slow, seed=6)).fitted(HERE, made.trials(some))
    assert error(both, rest(some)) < 0.75 * error(PhaseTimes(GUESSED).fitted(HERE, made.trials(some)), rest(some))
