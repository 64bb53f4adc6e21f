"""What failed by knob value."""

from __future__ import annotations

import pytest

from autotune.domain import FailureReason, Outcome, Pool, TrialKind, TrialState
from autotune.insights.feasibility import advice, cause, feasibility
from tests.support import factories

BASE = factories.configuration()
FOUR = BASE.with_(micro_batch_size=4, gradient_accumulation_steps=2)
EIGHT = BASE.with_(micro_batch_size=8, gradient_accumulation_steps=1)


def test_counts_failures_by_value_and_cause() -> None:
    crash = factories.failure(FailureReason.CRASH)
    trials = [
        factories.finished(0),
        factories.finished(1, configuration=FOUR),
        factories.failed(2, configuration=EIGHT),
        factories.failed(3, configuration=EIGHT.with_(logprob_rows=4)),
        factories.failed(4, crash, configuration=EIGHT.with_(logprob_rows=8)),
        factories.finished(5, configuration=FOUR.with_(logprob_rows=8), worst_case_passed=False),
    ]
    found = {(r.knob, r.value): r for r in feasibility(trials)}
    assert found["micro_batch_size", 8].failures == {"OOM in update (host)": 2, "CRASH": 1}
    assert list(found["micro_batch_size", 8].failures) == ["OOM in update (host)", "CRASH"]
    assert found["micro_batch_size", 4].failures == {"longest batch not passed": 1}
    assert found["micro_batch_size", 4].feasible / found["micro_batch_size", 4].tried == 0.5
    assert ("num_generations", 4) not in found, "one value tells nothing about the knob"
    assert [r.value for r in feasibility(trials) if r.knob == "micro_batch_size"] == [2, 4, 8]


@pytest.mark.parametrize(
    "trial",
    [
        factories.trial(1, configuration=FOUR, state=TrialState.RUNNING),
        factories.failed(1, factories.failure(FailureReason.INFRA), configuration=FOUR),
        factories.failed(1, factories.failure(FailureReason.CANCELLED), configuration=FOUR),
        factories.finished(1, configuration=FOUR, kind=TrialKind.CONFIRM),
    ],
)
def test_trials_without_a_verdict_of_their_own_do_not_count(trial: object) -> None:
    assert feasibility([factories.finished(0), trial]) == ()  # type: ignore[list-item]


def test_causes_in_few_words() -> None:
    assert cause(Outcome(FailureReason.OOM, "generate", Pool.ROLLOUT_CACHE)) == "OOM in generate (rollout_cache)"
    assert cause(Outcome(FailureReason.TIMEOUT)) == "TIMEOUT"


def test_advice_leaves_out_what_is_set_and_names_the_nearest_that_fitted() -> None:
    said = "lower micro_batch_size (accumulation makes up for it) or turn gradient_checkpointing on"
    outcome = factories.oom(suggestion=said)
    failed, other = factories.failed(2, outcome, configuration=EIGHT), FOUR.with_(gradient_checkpointing=False)
    assert EIGHT.get("gradient_checkpointing") is True
    trials = [factories.finished(0), factories.finished(1, configuration=FOUR), failed]
    assert advice(failed, trials).startswith("lower micro_batch_size (accumulation makes up for it); micro_batch_size ")
    assert advice(failed, trials).endswith("fitted (#0)")
    assert "turn gradient_checkpointing on" in advice(failed.with_(configuration=other), [])
    assert advice(factories.finished(0), trials) == ""
