"""verl's log lines as records: a figure that is not there is not made up, and a phase is counted once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.imports import of
from trainer.child.contract import CycleKind, Peaks, parse_record
from trainer.child.contract.codec import dumps
from trainer.child.frameworks.verl import LIMITS, MetricsError, StepLayout, cycle_of
from trainer.child.frameworks.verl.course import data_of

PLAN = StepLayout(rows=8, updates=1, epochs=1, packed=True, warmup=1)
STEP: dict[str, Any] = {
    "timing_s/step": 10.0,
    "timing_s/gen": 5.0,
    "timing_s/old_log_prob": 1.0,
    "timing_s/adv": 0.1,
    "timing_s/update_actor": 2.0,
    "timing_s/update_weights": 1.0,
    "perf/total_num_tokens": 960,
    "prompt_length/mean": 20.0,
    "response_length/mean": 100.0,
}


def test_a_step_is_a_cycle() -> None:
    cycle = cycle_of(STEP, 1, PLAN)
    assert cycle.phases == {"generate": 5.0, "logprob": 1.0, "update": 2.0, "sync": 1.0, "idle": pytest.approx(1.0)}
    assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds)
    assert (cycle.completion_tokens, cycle.prompt_tokens, cycle.computed_tokens) == (800, 160, 960)
    assert cycle.cycle_kind is CycleKind.NATURAL
    assert cycle.peaks == {"cycle": Peaks()}
    assert (cycle.lengths, cycle.groups, cycle.zero_std_groups, cycle.logp_mismatch) == ((), 0, 0, None)
    assert parse_record(dumps(cycle)) == cycle


def test_a_completion_counts_only_if_it_was_trained_on() -> None:
    """What verl dropped as stale is told apart, in completions: verl counts prompts."""
    plan = StepLayout(rows=8, updates=1, epochs=1, packed=True, group=4)
    cycle = cycle_of({**STEP, "training/off_policy/evicted_samples": 3}, 1, plan)
    fresh = cycle_of(STEP, 1, plan)
    assert (cycle.stale_rows, fresh.stale_rows) == (12, 0)
    assert (cycle.completion_tokens, cycle.rows) == (fresh.completion_tokens, fresh.rows)
    assert parse_record(dumps(cycle)) == cycle


def test_what_cannot_be_separated_is_said_and_not_guessed() -> None:
    assert "reward" not in cycle_of(STEP, 0, PLAN).phases
    assert "holds the reward" in LIMITS["generate"]
    apart = cycle_of({**STEP, "timing_s/reward": 0.5}, 0, PLAN)
    assert (apart.phases["reward"], apart.phases["generate"]) == (0.5, 5.0)


def test_padded_rows_leave_unknown_what_was_computed() -> None:
    padded = StepLayout(rows=8, updates=1, epochs=1, packed=False)
    assert cycle_of(STEP, 0, padded).useful_share is None
    twice = StepLayout(rows=8, updates=2, epochs=2, packed=True)
    assert cycle_of(STEP, 0, twice).computed_tokens == 1920


def test_first_steps_warm_up() -> None:
    cycles = [cycle_of(STEP, index, StepLayout(8, 1, 1, True, warmup=2)) for index in range(3)]
    kinds = [(cycle.index, cycle.cycle_kind) for cycle in cycles]
    assert kinds == [(0, CycleKind.WARMUP), (1, CycleKind.WARMUP), (2, CycleKind.NATURAL)]


def test_a_figure_that_is_not_finite_is_none() -> None:
    cycle = cycle_of({**STEP, "critic/score/mean": None, "actor/grad_norm": float("inf")}, 0, PLAN)
    assert (cycle.reward_mean, cycle.grad_norm, cycle.loss) == (None, None, None)


@pytest.mark.parametrize(("line", "words"), of("a_line_verl_would_not_write_is_refused"))
def test_a_line_verl_would_not_write_is_refused(line: str, words: str) -> None:
    with pytest.raises(MetricsError) as refused:
        cycle_of(data_of(line, 1), 0, PLAN)
    assert words in str(refused.value)
