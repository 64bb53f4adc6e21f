"""What a study does next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.domain import Budget, Configuration, FailureReason, Outcome, Pool, Study, Trial, TrialKind
from autotune.domain.outcomes import NOT_RETURNED
from autotune.statistics.early_stopping import LOOKS
from autotune.statistics.lengths import NATURAL_CYCLES
from autotune.study import confirmation, protocols, schedule
from autotune.study.budget import GRACE_S, Spent, predict, predict_search
from autotune.study.schedule import NextTrial, StudyEnd
from tests.support import factories as f
from tests.support.not_none import not_none

STUDY = f.study(lengths=())
WITH_LENGTHS = f.study()
NOTHING = Spent(0.0, 0.0)


class OneProposal:
    """Proposes a fixed configuration once."""

    def __init__(self, configuration: Configuration | None) -> None:
        self._configuration = configuration

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        return None if self._configuration is None else (self._configuration, "test")

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        return None

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        return 0


FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
NEW = FASTER.with_(micro_batch_size=8, gradient_accumulation_steps=1)
PROPOSER = OneProposal(FASTER)
PROPOSES_NEW = OneProposal(NEW)


def test_the_baseline_comes_first_and_records_natural_lengths() -> None:
    step = schedule.next_step(STUDY, [], Budget(), NOTHING, PROPOSER)
    assert step.draft.kind is TrialKind.BASELINE
    assert step.draft.configuration == STUDY.spec.baseline
    assert step.draft.protocol.natural == NATURAL_CYCLES


def test_search_trials_replay_the_lengths_once_there_are_any() -> None:
    step = schedule.next_step(WITH_LENGTHS, [f.finished(0)], Budget(), NOTHING, PROPOSER)
    assert (step.draft.kind, step.draft.configuration) == (TrialKind.SEARCH, FASTER)
    assert step.draft.protocol.lengths == f.LENGTHS
    assert step.draft.protocol.natural == 0


def _restless(number: int, disturbed: int) -> Trial:
    """A trial of three recorded cycles and three repeats, in ``disturbed`` of which others took CPU time."""
    trial = f.finished(number)
    lost = tuple(f.cycle(9 + i, accepted=False, outside_cpu=0.2) for i in range(min(3, disturbed)))
    marked = disturbed - len(lost)
    kept = tuple(f.cycle(i, noisy=i < marked, outside_cpu=0.2 if i < marked else 0.0) for i in range(6 - len(lost)))
    return trial.with_(cycles=(*lost, *kept))


def test_what_emulates_has_the_cycles_of_a_first_look_and_no_looks() -> None:
    """It is ranked with none, so no look could end it, and all the cycles of the last one outlast its time."""
    slow = FASTER.with_(precision="fp8", fp8_emulate=True)
    for configuration, recorded, looks in ((slow, 3, ()), (slow.with_(fp8_emulate=False), LOOKS[-1], LOOKS)):
        step = schedule.next_step(WITH_LENGTHS, [f.finished(0)], Budget(), NOTHING, OneProposal(configuration))
        assert (step.draft.protocol.recorded, tuple(step.draft.protocol.looks)) == (recorded, looks)


@pytest.mark.parametrize(("disturbed", "repeats"), [(0, 3), (3, 3), (4, 0), (6, 0)])
def test_no_search_trial_repeats_cycles_where_repeats_are_mostly_disturbed_too(disturbed: int, repeats: int) -> None:
    step = schedule.next_step(WITH_LENGTHS, [_restless(0, disturbed)], Budget(), NOTHING, PROPOSER)
    assert step.draft.protocol.max_repeats == repeats


@pytest.mark.parametrize(("drift", "outside_cpu"), [(0.004, 0.01), (None, None)])
def test_cycles_that_were_no_steady_ones_yet_do_not_make_a_machine_restless(
    drift: float | None, outside_cpu: float | None
) -> None:
    """Dropped as warm-ups, or something was compiled in them, the last without a repeat left: the guard saw nothing."""
    cycles = [f.cycle(i, accepted=i > 3, noisy=i == 4, drift=drift, outside_cpu=outside_cpu) for i in range(6)]
    trial = f.finished(0).with_(cycles=tuple(cycles))
    assert protocols.without_repeats(f.protocol(), [trial]).max_repeats == 3


@pytest.mark.parametrize(("disturbed", "repeats"), [(0, 3), (1, 3), (3, 5), (4, 9), (5, 12), (6, 0)])
def test_a_confirmation_has_the_repeats_that_undisturbed_cycles_need(disturbed: int, repeats: int) -> None:
    """Where every cycle was disturbed no repeat is worth its time."""
    trials = [_restless(0, disturbed), _restless(1, disturbed).with_(configuration=FASTER)]
    assert protocols.with_repeats(f.protocol(), trials).max_repeats == repeats


def test_a_confirmation_keeps_its_repeats_on_a_restless_machine() -> None:
    trials = [_restless(0, 4), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(), NOTHING, OneProposal(None))
    assert (step.draft.kind, step.draft.protocol.max_repeats) == (TrialKind.CONFIRM, 4)


def test_two_disturbed_cycles_do_not_make_a_machine_restless() -> None:
    first = f.finished(0)
    trial = first.with_(cycles=tuple(f.cycle(i, noisy=i < 2, drift=0.1 if i < 2 else 0.0) for i in range(3)))
    step = schedule.next_step(WITH_LENGTHS, [trial], Budget(), NOTHING, PROPOSER)
    assert step.draft.protocol.max_repeats == 3


def test_after_a_failed_baseline_the_next_trial_records_the_lengths() -> None:
    step = schedule.next_step(STUDY, [f.failed(0, kind=TrialKind.BASELINE)], Budget(), NOTHING, PROPOSER)
    assert step.draft.protocol.natural == NATURAL_CYCLES


@pytest.mark.parametrize(("wall", "kind"), [(10_000.0, TrialKind.SEARCH), (270.0, TrialKind.CONFIRM)])
def test_search_gives_way_to_confirmation_while_there_is_time_for_it(wall: float, kind: TrialKind) -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0), f.finished(2, cycle_seconds=20.0)]
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=wall), Spent(100.0, 0.0), PROPOSER)
    assert step.draft.kind is kind


def _leading() -> list[Trial]:
    return [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]


def _round_s(trials: Sequence[Trial]) -> float:
    """Predicted seconds of the leader's barest first round."""
    plan = not_none(confirmation.next_trial(WITH_LENGTHS, trials, at_most=1))
    barest = confirmation.bare(plan.draft.protocol)
    return sum(confirmation.predict_s(plan.narrow(barest, c), trials, c) for c in plan.round)


def test_no_search_trial_is_ended_for_a_confirmation_that_cannot_follow() -> None:
    """A study of five minutes once ended a trial 40 s in for one, and then stopped with two of them left."""
    trials = _leading()
    cost = not_none(predict_search(trials, NEW, kept=False))
    needed = cost.total(protocols.search_protocol(WITH_LENGTHS, trials))
    kinds = []
    for left in range(10, 600, 5):
        budget, spent = Budget(wall_s=600.0), Spent(600.0 - left, 0.0)
        step = schedule.next_step(WITH_LENGTHS, trials, budget, spent, PROPOSES_NEW)
        kinds.append("end" if isinstance(step, StudyEnd) else step.draft.kind.value)
        if isinstance(step, NextTrial) and step.draft.kind is TrialKind.SEARCH:
            waiting = f.trial(2, configuration=NEW).with_(protocol=step.draft.protocol)
            bound = schedule.deadline(WITH_LENGTHS, waiting, trials, budget, spent)
            assert bound.seconds >= needed - schedule.ENDING_S
            assert left - bound.seconds >= _round_s(trials) or left < _round_s(trials)
    order = [kind for kind, _ in itertools.groupby(kinds)]
    assert order == ["end", "search", "confirm", "search"], order


def test_a_leader_whose_round_fits_only_now_is_confirmed_however_few_the_trials() -> None:
    trials = _leading()
    left = 1.1 * _round_s(trials)
    for wall, kind in ((left, TrialKind.CONFIRM), (0.9 * _round_s(trials), TrialKind.SEARCH)):
        step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=wall), NOTHING, PROPOSER)
        assert step.draft.kind is kind


def test_the_search_does_not_begin_again_where_a_second_round_does_not_fit() -> None:
    trials = _leading()
    round_s = _round_s(trials)
    for number, configuration in enumerate((STUDY.spec.baseline, FASTER)):
        done = f.finished(2 + number, kind=TrialKind.CONFIRM, pair=0, cycle_seconds=10.0 - 5.0 * number)
        trials.append(done.with_(configuration=configuration))
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=0.9 * round_s), NOTHING, PROPOSES_NEW)
    assert isinstance(step, StudyEnd)


def test_before_anything_leads_a_search_trial_has_its_time_though_no_round_fits_beside_it() -> None:
    baseline = f.finished(0, cycle_seconds=9.0)
    waiting = f.trial(1, configuration=FASTER)
    cost = not_none(predict([baseline]))
    needed = cost.total(waiting.protocol)
    spent, wall = Spent(80.0, 0.0), 270.0
    assert wall - spent.wall_s < needed + confirmation.reserve_s(STUDY, [baseline], 1e9)
    assert schedule.deadline(WITH_LENGTHS, waiting, [baseline], Budget(wall_s=wall), spent).seconds >= needed


def test_while_nothing_leads_the_search_goes_on_with_the_time_kept_for_confirming() -> None:
    """Slow trials on a short budget: kept for a confirmation of nothing, the time would end the study unused."""
    trials = [f.finished(0), *(f.finished(n, cycle_seconds=20.0, configuration=FASTER) for n in (1, 2))]
    cost = not_none(predict_search(trials, NEW, kept=False))
    needed = cost.total(protocols.search_protocol(WITH_LENGTHS, trials))
    budget, spent = Budget(wall_s=4000.0), Spent(4000.0 - 1.1 * needed, 0.0)
    assert 1.1 * needed < needed + schedule.reserve_s(WITH_LENGTHS, trials, budget)
    step = schedule.next_step(WITH_LENGTHS, trials, budget, spent, PROPOSES_NEW)
    assert step.draft.kind is TrialKind.SEARCH
    trial = f.trial(3, configuration=NEW)
    assert schedule.deadline(WITH_LENGTHS, trial, trials, budget, spent).seconds >= needed
    leading = [*trials[:2], f.finished(2, cycle_seconds=5.0, configuration=NEW)]
    enough = Spent(4000.0 - 1.05 * _round_s(leading), 0.0)
    after = schedule.next_step(WITH_LENGTHS, leading, budget, enough, PROPOSER)
    assert after.draft.kind is TrialKind.CONFIRM


def test_a_search_trial_is_not_started_where_it_would_eat_the_confirmation() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0), f.finished(2, cycle_seconds=20.0)]
    for left in range(60, 400, 10):
        step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=1000.0), Spent(1000.0 - left, 0.0), PROPOSES_NEW)
        if isinstance(step, NextTrial) and step.draft.kind is TrialKind.SEARCH:
            own = not_none(predict_search(trials, NEW, kept=False))
            kept = schedule.reserve_s(WITH_LENGTHS, trials, Budget(wall_s=1000.0))
            assert left - own.total(step.draft.protocol) >= kept or left < _round_s(trials)


def test_nothing_is_started_that_cannot_reach_its_first_measurement() -> None:
    trials = [f.finished(0)]
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=110.0), Spent(100.0, 0.0), PROPOSER)
    assert isinstance(step, StudyEnd)
    assert "time" in step.because


@pytest.mark.parametrize(("share", "double"), [(1.01, 1), (0.99, 0)])
def test_a_first_round_that_does_not_fit_whole_goes_without_its_extras(share: float, double: int) -> None:
    """A study of 32 minutes once ended unconfirmed with 11 of them left."""
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0), f.finished(2, cycle_seconds=20.0)]
    plan = not_none(confirmation.next_trial(replace(STUDY, lengths=(8, 8)), trials, at_most=1))
    whole = plan.draft.protocol
    left = share * sum(confirmation.predict_s(plan.narrow(whole, c), trials, c) for c in plan.round)
    ran: list[Configuration] = []
    while isinstance(
        step := schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=left), NOTHING, PROPOSER), NextTrial
    ):
        assert step.draft.kind is TrialKind.CONFIRM
        if not ran:  # what the first leaves over may be enough for the second's extras
            assert step.draft.configuration == STUDY.spec.baseline
            assert step.draft.protocol.maximum == 0
        else:
            assert step.draft.protocol.maximum == 1
            assert step.draft.protocol.natural >= double
            assert step.draft.protocol.double >= double
        ran.append(step.draft.configuration)
        cost = not_none(predict(trials, step.draft.configuration))
        left -= cost.total(step.draft.protocol)
        done = f.finished(len(trials), kind=TrialKind.CONFIRM, pair=step.draft.pair)
        trials.append(done.with_(configuration=step.draft.configuration))
    assert ran == list(plan.round)


def test_with_no_time_for_a_bare_round_a_study_ends() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0), f.finished(2, cycle_seconds=20.0)]
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=50.0), NOTHING, PROPOSER)
    assert isinstance(step, StudyEnd)


def test_an_exhausted_space_confirms_and_then_stops() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    empty = OneProposal(None)
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(), NOTHING, empty)
    assert step.draft.kind is TrialKind.CONFIRM
    step = schedule.next_step(WITH_LENGTHS, [f.finished(0)], Budget(), NOTHING, empty)
    assert isinstance(step, StudyEnd)
    assert "every legal combination" in step.because


def test_max_trials_ends_the_search_but_not_the_confirmation() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(max_trials=2), NOTHING, PROPOSER)
    assert step.draft.kind is TrialKind.CONFIRM


def test_a_broken_reward_ends_the_study_at_once() -> None:
    broken = f.failed(0, f.failure(FailureReason.REWARD_ERROR, message="KeyError: 'answer'"), kind=TrialKind.BASELINE)
    step = schedule.next_step(STUDY, [broken], Budget(), NOTHING, PROPOSER)
    assert isinstance(step, StudyEnd)
    assert "KeyError" in step.because


@pytest.mark.parametrize(("reason", "enough"), [(FailureReason.CRASH, 4), (FailureReason.NAN, 2)])
def test_the_same_crash_from_the_start_ends_the_study_and_ooms_do_not(reason: FailureReason, enough: int) -> None:
    crashed = [f.failed(n, f.failure(reason)) for n in range(enough)]
    assert isinstance(schedule.next_step(STUDY, crashed, Budget(), NOTHING, PROPOSER), StudyEnd)
    assert isinstance(schedule.next_step(STUDY, crashed[:-1], Budget(), NOTHING, PROPOSER), NextTrial)
    ooms = [f.failed(n) for n in range(schedule.SAME_FAILURES)]
    assert isinstance(schedule.next_step(STUDY, ooms, Budget(), NOTHING, PROPOSER), NextTrial)


def test_a_search_trial_may_not_eat_the_confirmation_reserve() -> None:
    trials = (f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0))
    search = f.trial(2)
    budget, spent = Budget(wall_s=1000.0), Spent(700.0, 0.0)
    bound = schedule.deadline(WITH_LENGTHS, search, trials, budget, spent)
    confirming = schedule.deadline(
        WITH_LENGTHS, f.trial(2, TrialKind.CONFIRM, configuration=FASTER), trials, budget, spent
    )
    assert bound.seconds < confirming.seconds <= 330.0
    assert bound.by_budget


def test_deadline_without_a_budget_is_the_trials_own() -> None:
    bound = schedule.deadline(WITH_LENGTHS, f.trial(1), (f.finished(0),), Budget(), NOTHING)
    assert not bound.by_budget
    assert bound.seconds >= schedule.SHORTEST_TIMEOUT_S


def test_a_trial_has_the_time_to_start_a_process_of_its_own_though_another_might_go_on() -> None:
    """On a GPU it is expected to go on with the last one's; with ``--cold``, or several ranks, none can."""
    study = replace(WITH_LENGTHS, spec=replace(STUDY.spec, resources=f.resources(gpus=1, device="cuda")))
    slow = {"spawn": 20.0, "import": 400.0, "load": 30.0}
    baseline = replace(f.finished(0, cycle_seconds=2.0), startup=slow, seconds=500.0)
    kept = not_none(predict_search([baseline], FASTER, kept=True))
    trial = f.trial(1, configuration=FASTER)
    assert schedule.TIMEOUT_FACTOR * kept.total(trial.protocol) < 450.0, "which is less than the start takes"
    assert schedule.deadline(study, trial, [baseline], Budget(), NOTHING).seconds >= 2 * 450.0


def test_the_first_rollout_server_of_a_study_has_the_time_to_start() -> None:
    """The trials before it, which generate in the training process, do not tell how long one takes."""
    resources = f.resources(gpus=2, device="cuda")
    study = replace(WITH_LENGTHS, spec=replace(STUDY.spec, resources=resources))
    served = FASTER.with_(rollout_engine="vllm", rollout_mode="server", rollout_gpus=1)
    baseline, trial = f.finished(0, cycle_seconds=2.0), f.trial(1, configuration=served)

    def seconds(*before: Trial) -> float:
        return schedule.deadline(study, trial, [baseline, *before], Budget(), NOTHING).seconds

    assert seconds() >= schedule.FIRST_SERVER_S
    known = replace(
        f.finished(1, configuration=served.with_(micro_batch_size=8)), startup={"server": 60.0, "load": 1.0}
    )
    assert seconds(known) < schedule.FIRST_SERVER_S
    colocated = f.trial(1, configuration=FASTER)
    assert schedule.deadline(study, colocated, [baseline], Budget(), NOTHING).seconds < schedule.FIRST_SERVER_S


def test_a_timeout_the_budget_caused_teaches_nothing() -> None:
    late = Outcome(reason=FailureReason.TIMEOUT, message="too slow")
    trial = f.finished(1)
    assert schedule.judged(late, trial, schedule.Deadline(1.0, by_budget=True)).reason is FailureReason.CANCELLED
    assert schedule.judged(late, trial, schedule.Deadline(1.0, by_budget=False)).reason is FailureReason.TIMEOUT


def test_a_baseline_the_budget_was_not_enough_for_says_what_would_be() -> None:
    """Somebody whose step takes minutes has waited for the whole budget, and is to know what to ask for."""
    late, bound = Outcome(reason=FailureReason.TIMEOUT, message="too slow"), schedule.Deadline(1.0, by_budget=True)
    slow = f.finished(0, kind=TrialKind.BASELINE, cycles=0)
    assert "not one cycle" in schedule.judged(late, slow, bound).suggestion
    protocol = replace(slow.protocol, warmup=1, natural=2, recorded=3, maximum=0, double=0)
    cycles = (f.cycle(0, seconds=200.0), f.cycle(1, seconds=100.0))
    said = schedule.judged(late, replace(slow, protocol=protocol, cycles=cycles), bound).suggestion
    assert "took 2 min 30 s, and a trial has 6 of them: give a budget of 1 h or more" in said
    quick = replace(slow, protocol=protocol, cycles=(f.cycle(0, seconds=1.0),))
    said = schedule.judged(late, quick, schedule.Deadline(100.0, by_budget=True)).suggestion
    assert "a budget of 7 min or more" in said, "not one that was there and did not hold it"
    assert not schedule.judged(late, f.finished(1, cycles=1), bound).suggestion, "of a search trial it is no news"


def test_success_without_worst_case_or_measurement_is_no_success() -> None:
    bound = schedule.Deadline(1.0, by_budget=False)
    assert schedule.judged(Outcome(), f.finished(1), bound).ok
    assert not schedule.judged(Outcome(), f.finished(1, worst_case_passed=False), bound).ok
    assert not schedule.judged(Outcome(), f.finished(1, cycles=0), bound).ok


_HOST_OOM = Outcome(FailureReason.OOM, pool=Pool.HOST)


@pytest.mark.parametrize(
    ("outcome", "earlier", "compiled", "again"),
    [
        (_HOST_OOM, 0, True, True),
        (_HOST_OOM, 0, False, False),
        (_HOST_OOM, 1, True, False),
        (Outcome(FailureReason.OOM, pool=Pool.DEVICE), 0, True, False),
        (Outcome(FailureReason.CRASH), 0, True, False),
        (Outcome(), 0, True, False),
        (Outcome(FailureReason.INFRA), 0, False, True),
        (Outcome(FailureReason.INFRA), 1, False, False),
        (Outcome(FailureReason.REWARD_ERROR), 0, False, True),
        (Outcome(FailureReason.REWARD_ERROR), 1, False, False),
    ],
)
def test_what_is_tried_again(outcome: Outcome, earlier: int, compiled: bool, again: bool) -> None:
    """What a compiler held is needed once; a device's memory and a crash are not its doing."""
    assert schedule.again(outcome, earlier, compiled=compiled) is again


def test_an_interrupted_trial_goes_on_if_it_still_fits() -> None:
    trials = (f.finished(0), f.trial(1))
    assert schedule.interrupted(WITH_LENGTHS, trials, Budget(), NOTHING) == trials[1]
    assert schedule.interrupted(WITH_LENGTHS, trials, Budget(wall_s=1000.0), Spent(990.0, 0.0)) is None
    assert schedule.interrupted(WITH_LENGTHS, trials[:1], Budget(), NOTHING) is None


def test_where_a_round_of_two_leaders_does_not_fit_the_one_with_the_same_learning_has_its_own() -> None:
    permitted = f.configuration(num_generations=2)
    trials = [
        f.finished(0),
        f.finished(1, configuration=FASTER, cycle_seconds=5.0),
        f.finished(2, configuration=permitted, cycle_seconds=3.0),
    ]
    whole = 1000.0
    left = confirmation.reserve_s(STUDY, trials[:2], 1e9) / confirmation.KEPT_ROUNDS * 1.05
    ran = []
    while True:
        spent = Spent(whole - left, 0.0)
        step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=whole), spent, OneProposal(None))
        if isinstance(step, StudyEnd):
            break
        cost = not_none(predict(trials, step.draft.configuration))
        left -= cost.total(step.draft.protocol)
        ran.append(step.draft.configuration)
        seconds = 5.0 if step.draft.configuration == FASTER else 10.0
        done = f.finished(len(trials), cycle_seconds=seconds, kind=TrialKind.CONFIRM, pair=step.draft.pair)
        trials.append(done.with_(configuration=step.draft.configuration))
    assert ran == [STUDY.spec.baseline, FASTER]
    assert permitted not in ran


def test_a_reward_that_fails_and_weights_of_nan_make_a_study_hopeless_and_ended_budgets_do_not() -> None:
    trials = [f.broken_off(n, kind=TrialKind.BASELINE) for n in range(schedule.SAME_FAILURES)]
    assert schedule.hopeless(trials) is None
    reward = f.failed(4, f.failure(FailureReason.REWARD_ERROR), kind=TrialKind.BASELINE)
    assert "the reward fails" in (schedule.hopeless([*trials, reward]) or "")
    nan = f.failed(4, f.failure(FailureReason.NAN, phase="first_batch", message="the model's weights are NaN"))
    assert schedule.hopeless([*trials, nan]) == "no configuration can mend this: the model's weights are NaN"


@pytest.mark.parametrize("reason", [FailureReason.CANCELLED, FailureReason.INFRA])
def test_a_baseline_that_the_machine_or_the_tuners_death_ended_is_measured_again(reason: FailureReason) -> None:
    """It has not failed: nobody knows what it is worth."""
    ended = f.failed(0, schedule.lost(f.trial(0), schedule.LOST_ATTEMPTS), kind=TrialKind.BASELINE)
    ended = ended.with_(outcome=replace(ended.outcome or Outcome(), reason=reason))
    step = schedule.next_step(STUDY, [ended], Budget(), NOTHING, PROPOSER)
    assert step.draft.kind is TrialKind.BASELINE
    assert schedule.hopeless([ended] * 9) is None


def test_a_search_trials_broken_reward_is_not_its_configurations_fault() -> None:
    once = f.failed(1, f.failure(FailureReason.REWARD_ERROR))
    assert once.inconclusive
    assert schedule.hopeless([f.finished(0), once]) is None


def test_a_reward_that_has_not_returned_is_told_and_no_larger_budget_advised() -> None:
    late = Outcome(reason=FailureReason.TIMEOUT, phase="reward", message=f"{NOT_RETURNED} 2 min 23 s")
    said = schedule.judged(late, f.finished(0, cycles=3), schedule.Deadline(120.0, by_budget=True))
    assert said.reason is FailureReason.CANCELLED
    assert said.suggestion.startswith("the reward has not returned for 2 min 23 s")
    assert "budget" not in said.suggestion


def test_a_search_trial_that_its_share_ended_says_so_counts_for_nothing_and_warns_the_next() -> None:
    late, bound = Outcome(reason=FailureReason.TIMEOUT, message="too slow"), schedule.Deadline(1.0, by_budget=True)
    outcome = schedule.judged(late, f.trial(1), bound)
    assert outcome.message == "its share of the study's budget ended"
    cut = f.failed(1, outcome, seconds=500.0)
    budget = Budget(wall_s=2000.0, max_trials=2)
    cost = not_none(predict_search([f.finished(0)], NEW, kept=False))
    assert cost.total(protocols.search_protocol(WITH_LENGTHS, [f.finished(0)], NEW)) < 300.0
    step = schedule.next_step(WITH_LENGTHS, [f.finished(0), cut], budget, NOTHING, PROPOSES_NEW)
    assert step.draft.kind is TrialKind.SEARCH, "max_trials holds one more"
    ended = schedule.next_step(WITH_LENGTHS, [f.finished(0), cut], budget, Spent(1550.0, 0.0), PROPOSES_NEW)
    assert isinstance(ended, StudyEnd)
    assert "a search trial takes 8 min 20 s" in ended.because


class Starting(OneProposal):
    """Wants another engine, and can do without."""

    def propose_in_process(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        return (NEW.with_(rollout_engine="vllm"), "in process")


def _on_gpu() -> tuple[list[Trial], Study]:
    """A study of one GPU: an engine that takes 70 s to start is there, and leads."""
    vllm = STUDY.spec.baseline.with_(rollout_engine="vllm")
    parts = {"spawn": 0.1, "import": 10.0, "engine": 60.0}
    first = f.finished(1, configuration=vllm, cycle_seconds=2.0, startup=parts, seconds=76.0)
    study = replace(WITH_LENGTHS, spec=f.study_spec(resources=f.resources(device="cuda", gpus=1)))
    return [f.finished(0, startup={"spawn": 1.0, "import": 5.0}), first], study


def test_a_search_trial_that_goes_on_in_the_last_process_has_the_time_that_holds_no_start() -> None:
    trials, study = _on_gpu()
    other = trials[1].configuration.with_(max_num_seqs=64)
    budget = Budget(wall_s=1000.0)
    kept = schedule.reserve_s(study, trials, budget)
    spent = Spent(1000.0 - kept - 30.0, 0.0)
    step = schedule.next_step(study, trials, budget, spent, Starting(other))
    assert (step.draft.kind, step.draft.source) == (TrialKind.SEARCH, "in process")
    step = schedule.next_step(study, trials, budget, spent, OneProposal(other))
    assert step.draft.kind is TrialKind.CONFIRM
    roomy = schedule.next_step(study, trials, budget, Spent(0.0, 0.0), Starting(other))
    assert roomy.draft.configuration == other


def test_the_time_left_is_told_with_what_it_does_not_hold() -> None:
    trials = _leading()
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=50.0), NOTHING, PROPOSES_NEW)
    assert isinstance(step, StudyEnd)
    assert "50 s are left" in step.because
    assert "takes" in step.because


def test_the_second_half_of_a_round_may_use_a_part_of_the_grace_and_comes_before_anything_else() -> None:
    trials = [*_leading(), f.finished(2, kind=TrialKind.CONFIRM, pair=0, configuration=STUDY.spec.baseline)]
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=10_000.0), NOTHING, PROPOSES_NEW)
    assert (step.draft.kind, step.draft.configuration) == (TrialKind.CONFIRM, FASTER)
    cost = not_none(predict(trials, FASTER))
    least = cost.total(confirmation.barest(step.draft.protocol))
    step = schedule.next_step(WITH_LENGTHS, trials, Budget(wall_s=least - GRACE_S / 2 + 1), NOTHING, PROPOSES_NEW)
    assert step.draft.configuration == FASTER
    assert step.draft.protocol.recorded == 3
