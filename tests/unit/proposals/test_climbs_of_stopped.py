"""Climbs over trials of which only a bound is known: what cannot win does not pay, and nothing more is read into it."""

from __future__ import annotations

import math

from autotune.domain import Configuration
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.local_search import headline_climb, permitted_climb
from autotune.proposals.translation import Observation, OptunaTrialStatus

PLAIN = [Configuration({"micro_batch_size": rows, "precision": "fp32"}) for rows in (1, 2, 4)]
OTHER = [Configuration({"micro_batch_size": rows, "precision": "bf16"}) for rows in (1, 2, 4)]
NAMES = ("micro_batch_size", "precision")
HEADLINE = CandidateGrid(PLAIN, NAMES, ())
PERMITTED = CandidateGrid(OTHER, NAMES, (PLAIN[0],))


def measured(number: int, configuration: Configuration, speed: float) -> Observation:
    return Observation(number, configuration, OptunaTrialStatus.FEASIBLE, math.log(speed))


def bounded(number: int, configuration: Configuration, speed: float) -> Observation:
    return Observation(number, configuration, OptunaTrialStatus.CENSORED, math.log(speed))


def test_a_stopped_move_counts_as_one_that_does_not_pay_whatever_its_bound() -> None:
    for bound in (1.0, 99.0, 1e9):
        climb = headline_climb(HEADLINE, [measured(0, PLAIN[0], 100.0), bounded(1, PLAIN[1], bound)], ())
        assert climb is not None
        assert climb.state.point == HEADLINE.point(PLAIN[0])
        assert climb.state.turns == {"micro_batch_size": 1}
        assert not climb.state.failed


def test_a_stopped_permitted_trial_is_no_gain_and_is_no_loss_unless_its_bound_says_so() -> None:
    """bf16 at one row was stopped: where it may still gain over fp32 at one row, it is tried at the best rows."""
    same = [measured(0, PLAIN[0], 100.0), measured(1, PLAIN[2], 200.0)]
    everything = PERMITTED.without(set(), ())

    def move(bound: float) -> int | None:
        known = [*same, bounded(2, OTHER[0], bound)]
        climb = permitted_climb(PERMITTED, HEADLINE, known, same, ())
        return None if climb is None else climb.move(PERMITTED, everything, ())

    assert move(150.0) == OTHER.index(OTHER[2])
    assert move(101.0) is None
