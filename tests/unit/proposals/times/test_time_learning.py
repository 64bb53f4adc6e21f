"""What trials teach of a phase: factors of the roofline's parts, effects of knobs, and how sure they are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.proposals.times import PhaseTimes
from autotune.proposals.times import model as times_model
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.learning import linear
from autotune.proposals.times.roofline import PARTS, Parts, World, parts_of, seconds_of, shares_of
from tests.support import timed_machine as made
from tests.support.timed_machine import rank_correlation

SPACE = made.configurations()
SECONDS = {"compute": np.array([4.0, 1.0]), "gathers": np.array([0.5, 0.5])}


def test_parts_are_added_up_each_with_its_factor() -> None:
    assert seconds_of(SECONDS, {}, 2) == pytest.approx([4.5, 1.5])
    assert seconds_of(SECONDS, {"gathers": 2.0}, 2) == pytest.approx([5.0, 2.0])


@pytest.mark.parametrize("factors", [{}, {"compute": 2.0, "gathers": 0.25}])
def test_the_tangent_meets_the_logarithm_where_it_is_drawn(factors: dict[str, float]) -> None:
    base, slopes = linear(SECONDS, factors, 2)
    weights = np.array([np.log(factors.get(name, 1.0)) / spread for name, spread in PARTS.items()])
    assert base + slopes @ weights == pytest.approx(np.log(seconds_of(SECONDS, factors, 2)))


def test_of_launches_and_the_device_the_longer_counts() -> None:
    """Where they are equal they hinder each other a little; a factor's slope is its share of what counts."""
    parts = {"compute": np.array([1.0, 2.0, 2.0]), "launch": np.array([8.0, 0.1, 2.0]), "gathers": np.ones(3)}
    seconds, shares = shares_of(parts, {}, 3)
    assert seconds == pytest.approx([9.0, 3.0, 1.0 + 2.0 * 2.0 ** (1 / 6)], rel=1e-4)
    assert sum(shares.values()) == pytest.approx(np.ones(3))
    assert shares["launch"] == pytest.approx([8 / 9, 0.0, shares["compute"][2]], abs=1e-4)


def cheap_launches(phase: str, rows: PhaseRows, world: World) -> Parts:
    """A roofline that believes launches to cost a thousand times what they do."""
    return {n: c * (1000.0 if n in ("launch", "calls") else 1.0) for n, c in parts_of(phase, rows, world).items()}


@pytest.mark.parametrize("seed", range(3))
def test_a_constant_that_is_far_off_is_learnt_from_few_trials(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some = random.Random(seed).sample(SPACE, 6)
    rest, trials = [c for c in SPACE if c not in some], made.trials(some)
    truth = np.log(np.sum(list(made.true_seconds(rest, made.task()).values()), axis=0))
    monkeypatch.setattr(times_model, "parts_of", cheap_launches)
    before, after = (PhaseTimes(made.CPU).fitted(made.task(), told).forecast(rest) for told in ((), trials))
    assert rank_correlation(before.log_seconds, truth) < 0.5
    assert rank_correlation(after.log_seconds, truth) > 0.75
    assert np.mean(np.abs(after.log_seconds - truth) < 1.96 * after.spread) >= 0.9


@pytest.mark.parametrize("knob", ["micro_batch_size", "attn_implementation", "gradient_checkpointing"])
@pytest.mark.parametrize("seed", range(2))
def test_intervals_hold_for_values_that_were_left_out(knob: str, seed: int) -> None:
    values = sorted({c[knob] for c in SPACE}, key=repr)
    extreme = max(v for v in values) if knob == "micro_batch_size" else values[0]
    told = [c for c in SPACE if c[knob] != extreme]
    asked = [c for c in SPACE if c[knob] == extreme]
    model = PhaseTimes(made.CPU).fitted(made.task(), made.trials(random.Random(seed).sample(told, 8), seed=seed))
    answer = model.forecast(asked)
    truth = np.log(np.sum(list(made.true_seconds(asked, made.task()).values()), axis=0))
    assert np.mean(np.abs(answer.log_seconds - truth) < 1.96 * answer.spread) >= 0.85
