"""What failed by knob value, and what one knob gave."""

from __future__ import annotations

import pytest

from autotune.domain import FailureReason, Outcome, Pool, TrialKind, TrialState
from autotune.domain.differences import chosen_differences
from autotune.insights.feasibility import cause, feasibility
from autotune.insights.nearest import closest, neighbours
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
    assert found["micro_batch_size", 4].failures == {"worst case not passed": 1}
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


def test_says_what_one_knob_gave() -> None:
    trials = [
        factories.finished(0, cycle_seconds=10.0),
        factories.finished(1, configuration=FOUR, cycle_seconds=8.0),
        factories.finished(2, configuration=EIGHT, cycle_seconds=5.0),
        factories.finished(3, configuration=EIGHT.with_(logprob_rows=8), cycle_seconds=4.0),
    ]
    found = neighbours(trials, EIGHT)
    assert [n.sentence() for n in found] == [
        "micro_batch_size 2 -> 8: +100.0 % (trial 0)",
        "micro_batch_size 4 -> 8: +60.0 % (trial 1)",
        "logprob_rows 8 -> 2: -20.0 % (trial 3)",
    ]


def test_a_configuration_nobody_measured_has_neighbours_without_a_gain() -> None:
    (found,) = neighbours([factories.finished(0)], BASE.with_(attn_implementation="eager"))
    assert found.sentence() == "attn_implementation sdpa -> eager: not measured (trial 0)"
    unset = type(BASE)({k: v for k, v in BASE.items() if k != "logprob_rows"})
    (found,) = neighbours([factories.finished(0)], unset)
    assert found.sentence() == "logprob_rows 2 -> unset: not measured (trial 0)"


def test_neighbours_and_reasons_agree_on_what_differs() -> None:
    """Half the steps for half the accumulation are the same share of an update: only the micro-batch was chosen."""
    two = BASE.with_(gradient_accumulation_steps=4, steps_per_generation=4)
    four = two.with_(micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=2)
    assert chosen_differences(two, four) == {"micro_batch_size": (2, 4)}
    (found,) = neighbours([factories.finished(0, configuration=two, cycle_seconds=10.0)], four)
    assert (found.knob, found.there, found.here) == ("micro_batch_size", 2, 4)
    assert neighbours([factories.finished(0, configuration=two)], four.with_(steps_per_generation=1)) == ()


def test_failed_trials_are_nobodys_neighbours() -> None:
    assert neighbours([factories.failed(0, configuration=FOUR)], EIGHT) == ()
    assert closest([factories.failed(0, configuration=FOUR)], EIGHT) is None


def test_the_closest_differs_in_the_fewest_knobs_and_is_the_fastest_of_equals() -> None:
    far = factories.finished(1, configuration=EIGHT.with_(logprob_rows=8, precision="bf16"), cycle_seconds=1.0)
    slow = factories.finished(2, configuration=BASE, cycle_seconds=9.0)
    fast = factories.finished(3, configuration=FOUR, cycle_seconds=8.0)
    found = closest([far, slow, fast], EIGHT)
    assert found is not None
    assert found.number == 3
