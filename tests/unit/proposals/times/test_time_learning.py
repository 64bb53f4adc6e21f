"""What trials teach of a phase: factors of the roofline's parts, effects of knobs, and how sure they are."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from autotune.proposals.times import PhaseTimes
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.model import rank_correlation
from autotune.proposals.times.roofline import Observed, Parts, World, parts_of
from tests.support import timed_machine as made

SPACE = made.configurations()
DEVICE, HOST, BESIDE = np.array([4.0, 1.0, 0.0]), np.array([1.0, 4.0, 0.0]), np.array([0.5, 0.5, 0.0])
PARTS = Parts({"compute": DEVICE}, {"launch": HOST}, {"gathers": BESIDE})


def test_of_what_overlaps_the_longer_counts_and_the_rest_is_added() -> None:
    seconds = PARTS.seconds({})
    assert seconds[:2] == pytest.approx([4.5, 4.5], rel=1e-3)
    assert seconds[2] == 0.0
    assert PARTS.seconds({"gathers": 2.0})[0] == pytest.approx(5.0, rel=1e-3)


@pytest.mark.parametrize("part", ["compute", "launch", "gathers"])
def test_shares_are_the_slopes_of_the_logarithm(part: str) -> None:
    above, below = (PARTS.seconds({part: math.exp(step)})[:2] for step in (1e-4, -1e-4))
    slope = (np.log(above) - np.log(below)) / 2e-4
    assert PARTS.shares({})[1][part][:2] == pytest.approx(slope, abs=1e-6)


def cheap_launches(phase: str, rows: PhaseRows, world: World, observed: Observed | None = None) -> Parts:
    """A roofline that believes launches to cost a thousand times what they do."""
    found = parts_of(phase, rows, world, observed)
    return replace(found, beside={n: c * (1000.0 if n == "launch" else 1.0) for n, c in found.beside.items()})


def test_a_constant_that_is_far_off_is_learnt_from_few_trials() -> None:
    wrong = replace(PhaseTimes(made.CPU), prior=cheap_launches)
    trials = made.trials(random.Random(2).sample(SPACE, 6))
    factors = wrong.fitted(made.task(), trials).learnt["update"].known.factors
    assert factors["launch"] < 0.3


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


def test_rank_correlation_is_spearmans() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([3.0, 4.0, 5.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([5.0, 4.0, 3.0])) == pytest.approx(-1.0)
