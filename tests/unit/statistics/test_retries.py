"""Of one configuration the later verdict counts: in the answer, in the proposals, in what ends a study."""

from __future__ import annotations

import pytest

from autotune.domain import Budget, Configuration, FailureReason, Trial, TrialKind, TrialState
from autotune.insights.feasibility import feasibility
from autotune.insights.ranking import ranked
from autotune.recommendation.recommend import recommend
from autotune.statistics import evidence, retries
from autotune.statistics.retries import corrected, disproved
from autotune.study import schedule
from autotune.study.budget import Spent, searched
from tests.contracts.proposer_suite import Landscape, complete, landscape
from tests.support import factories as f
from tests.support.not_none import not_none
from tests.unit.proposals.test_proposer import built

SPEC = f.study_spec()
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)


def passed(number: int, configuration: Configuration, seconds: float = 5.0) -> Trial:
    return f.finished(
        number, kind=TrialKind.VERIFY, configuration=configuration, source=retries.SOURCE, cycle_seconds=seconds
    )


def failed(number: int, configuration: Configuration, reason: FailureReason = FailureReason.OOM) -> Trial:
    outcome = f.oom() if reason is FailureReason.OOM else f.failure(reason)
    return f.failed(number, outcome, kind=TrialKind.VERIFY, configuration=configuration, source=retries.SOURCE)


def test_a_failure_a_later_retry_disproved_no_longer_counts() -> None:
    trials = [f.finished(0), f.failed(1, configuration=FASTER)]
    assert FASTER not in evidence.feasible(trials)
    trials.append(passed(2, FASTER))
    assert disproved(trials) == {1}
    assert [t.number for t in evidence.feasible(trials)[FASTER]] == [2]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.rows[0].configuration == FASTER


def test_a_retry_that_fails_makes_its_configuration_infeasible_and_its_own_retry_mends_it() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0), failed(2, FASTER)]
    assert FASTER not in evidence.feasible(trials)
    trials.append(passed(3, FASTER))
    assert [t.number for t in evidence.feasible(trials)[FASTER]] == [1, 3]


def test_a_failure_after_the_retry_counts_again() -> None:
    trials = [f.failed(1, configuration=FASTER), passed(2, FASTER)]
    trials.append(f.failed(3, kind=TrialKind.CONFIRM, configuration=FASTER, pair=0))
    assert disproved(trials) == {1}
    assert FASTER not in evidence.feasible(trials)


@pytest.mark.parametrize("reason", [FailureReason.INFRA, FailureReason.CANCELLED])
def test_a_retry_without_a_verdict_changes_nothing(reason: FailureReason) -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    later = [*trials, failed(2, FASTER, reason)]
    assert evidence.feasible(later) == evidence.feasible(trials)
    assert [t.number for t in ranked(later)] == [t.number for t in ranked(trials)]


def test_an_unrelated_pass_disproves_nothing() -> None:
    """Only a retry of the very configuration may: a confirmation of another says nothing of it."""
    trials = [f.failed(1, configuration=FASTER), passed(2, SPEC.baseline), f.finished(3, configuration=FASTER)]
    assert disproved(trials) == frozenset()


def test_the_figure_is_the_retries_not_the_search_trial_that_was_picked_for_being_high() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=4.0), passed(2, FASTER, 8.0)]
    runs = evidence.feasible(trials)[FASTER]
    assert evidence.speed(runs) == pytest.approx(passed(2, FASTER, 8.0).tokens_per_hour)
    own = [f.finished(0, cycle_seconds=10.0), passed(1, SPEC.baseline, 12.1)]
    between = evidence.speed(evidence.feasible(own)[SPEC.baseline])
    assert own[1].tokens_per_hour < between < own[0].tokens_per_hour  # type: ignore[operator]


def test_confirmations_go_before_retries_and_a_retry_is_no_confirmation() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0), passed(2, FASTER, 5.0)]
    found = not_none(recommend(SPEC, trials, ""))
    assert not found.rows[0].confirmed
    trials.append(f.finished(3, kind=TrialKind.CONFIRM, configuration=FASTER, pair=0, cycle_seconds=7.0))
    assert evidence.speed(evidence.feasible(trials)[FASTER]) == pytest.approx(trials[3].tokens_per_hour)


def test_retries_say_how_noisy_the_machine_is() -> None:
    trials = [f.finished(0, cycle_seconds=10.0), passed(1, SPEC.baseline, 10.0), passed(2, SPEC.baseline, 14.0)]
    variances = [evidence.process_noise(some).process.variance for some in (trials, trials[:1])]
    assert variances[0] > variances[1]


def test_a_mended_baseline_is_the_baseline_again() -> None:
    trials = [f.failed(0, kind=TrialKind.BASELINE, configuration=SPEC.baseline), f.finished(1, configuration=FASTER)]
    before = not_none(recommend(SPEC, trials, ""))
    assert before.baseline.startswith("OOM")
    after = not_none(recommend(SPEC, [*trials, passed(2, SPEC.baseline, 20.0)], ""))
    assert (after.baseline, after.reference) == ("ok", 2)


def test_a_reward_error_mended_by_a_retry_ends_the_study_no_longer() -> None:
    world = landscape()
    study = f.study(spec=f.study_spec(baseline=world.baseline))
    broken = f.failed(0, f.failure(FailureReason.REWARD_ERROR), configuration=world.baseline)
    assert isinstance(_next(study, [broken], world), schedule.StudyEnd)
    step = _next(study, [broken, passed(1, world.baseline)], world)
    assert isinstance(step, schedule.NextTrial)
    assert step.draft.kind is TrialKind.SEARCH


def _next(study: object, trials: list[Trial], world: Landscape) -> schedule.NextTrial | schedule.StudyEnd:
    return schedule.next_step(study, trials, Budget(max_trials=9), Spent(0.0, 0.0), built(world, "tpe"))  # type: ignore[arg-type]


def test_retries_count_against_no_number_of_trials() -> None:
    assert searched([f.finished(0), passed(1, SPEC.baseline), failed(2, FASTER)]) == 1


def test_insights_look_at_the_later_verdict_once() -> None:
    trials = [f.finished(0), f.failed(1, configuration=FASTER), passed(2, FASTER), passed(3, FASTER)]
    assert {t.number for t in ranked(trials)} == {0, 3}
    by_value = {(r.knob, r.value): r for r in feasibility(trials)}
    assert by_value["micro_batch_size", 4].tried == by_value["micro_batch_size", 4].feasible == 1


def test_nothing_retried_nothing_corrected() -> None:
    trials = (f.finished(0), f.failed(1), f.trial(2, state=TrialState.RUNNING))
    assert corrected(trials) is trials


def test_what_ran_out_of_memory_on_a_machine_since_mended_rules_out_nothing_more() -> None:
    world = landscape(limit=8)
    big = world.baseline.with_(micro_batch_size=16)
    bigger = world.baseline.with_(micro_batch_size=32)
    history = [world.run(world.baseline, 0), world.run(big, 1)]
    proposer = built(world, "tpe")
    assert proposer.ruled_out(history, bigger) is not None
    count = proposer.count_ruled_out(history)
    retried = complete(2, big, 99.0, kind=TrialKind.VERIFY, source=retries.SOURCE)
    assert proposer.ruled_out([*history, retried], bigger) is None
    assert proposer.count_ruled_out([*history, retried]) < count


def test_a_retry_inside_the_region_of_another_failure_lifts_it() -> None:
    """Only 32 rows are run again: that they fit says that 16 would, and what lies between them."""
    world = landscape(limit=8)
    big, bigger = (world.baseline.with_(micro_batch_size=n) for n in (16, 32))
    history = [world.run(world.baseline, 0), world.run(bigger, 1), world.run(big, 2)]
    between = big.with_(logprob_rows=2)
    proposer = built(world, "tpe")
    assert proposer.ruled_out(history, between) is not None
    retried = complete(3, bigger, 99.0, kind=TrialKind.VERIFY, source=retries.SOURCE)
    assert proposer.ruled_out([*history, retried], between) is None
    earlier = [*history[:2], retried.with_(number=2), history[2].with_(number=3)]
    assert proposer.ruled_out(earlier, between) is not None, "an OOM after the retry stands"


@pytest.mark.parametrize("sampler", ["tpe", "grey"])
def test_proposers_learn_the_corrected_verdict_and_nothing_from_other_retries(sampler: str) -> None:
    world = landscape()
    proposer = built(world, sampler)
    made = [complete(i, c, world.speed(c)) for i, c in enumerate(world.headline[:12])]
    again = complete(12, world.headline[3], 1e5, kind=TrialKind.VERIFY, source=retries.SOURCE)
    assert proposer.propose([*made, again], 13) == proposer.propose(made, 13)
    broken = f.failed(12, f.failure(FailureReason.CRASH), configuration=world.headline[20])
    mended = complete(13, world.headline[20], 1e5, kind=TrialKind.VERIFY, source=retries.SOURCE)
    as_search = complete(13, world.headline[20], 1e5)
    assert proposer.propose([*made, broken, mended], 14) == proposer.propose([*made, as_search], 14)
    assert any(
        proposer.propose([*made, broken], n) != proposer.propose([*made, broken, mended], n) for n in range(14, 24)
    )


def test_only_what_the_budget_stopped_and_nothing_has_judged_since_is_broken_off() -> None:
    own, other = SPEC.baseline, f.broken_off(1, configuration=FASTER)
    stopped = f.broken_off(0)
    assert retries.broken_off([stopped], own)
    assert retries.broken_off([stopped, other, f.finished(2, configuration=FASTER)], own), "others tell nothing of it"
    assert not retries.broken_off([f.failed(0, f.failure(FailureReason.CANCELLED), kind=TrialKind.BASELINE)], own)
    assert not retries.broken_off([other], own)
    held = f.finished(1, kind=TrialKind.BASELINE, configuration=own)
    for judged in (held, f.failed(1, kind=TrialKind.BASELINE, configuration=own), passed(1, own)):
        assert not retries.broken_off([stopped, judged], own)
