"""Which confirmation runs are owed, in which order."""

from __future__ import annotations

from dataclasses import replace

from autotune.domain import Configuration, FailureReason, Trial, TrialKind
from autotune.study import confirmation
from tests.support import factories as f
from tests.support.not_none import not_none

STUDY = f.study()
UNRECORDED = f.study(lengths=())
BASELINE = STUDY.spec.baseline
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
SECOND = f.configuration(gradient_checkpointing=False)
FOUR_TO_TWO = f.configuration(num_generations=2)


def _searched(*, base: float = 10.0, fast: float = 5.0) -> list[Trial]:
    return [f.finished(0, cycle_seconds=base), f.finished(1, configuration=FASTER, cycle_seconds=fast)]


def _play(trials: list[Trial], seconds: dict[Configuration, float], limit: int = 40) -> list[tuple[int, Configuration]]:
    """Run confirmation trials as asked until none is owed."""
    ran: list[tuple[int, Configuration]] = []
    while (plan := confirmation.next_trial(STUDY, trials)) is not None:
        assert len(ran) < limit
        draft = plan.draft
        assert draft.pair is not None
        longer = (draft.protocol.natural, draft.protocol.maximum, draft.protocol.double)
        assert longer == ((0, 0, 0) if draft.pair else (1, 1, 1)), "they are measured in the first round alone"
        ran.append((draft.pair, draft.configuration))
        cycles = seconds[draft.configuration]
        done = f.finished(len(trials), kind=TrialKind.CONFIRM, pair=draft.pair, cycle_seconds=cycles)
        trials.append(done.with_(configuration=draft.configuration))
    return ran


def test_a_leader_that_is_decided_by_its_first_round_has_no_second() -> None:
    assert _play(_searched(), {BASELINE: 10.0, FASTER: 5.0}) == [(0, BASELINE), (0, FASTER)]


def test_both_rows_share_the_baseline_of_a_round() -> None:
    trials = [*_searched(), f.finished(2, configuration=FOUR_TO_TWO, cycle_seconds=3.0)]
    ran = _play(trials, {BASELINE: 10.0, FASTER: 5.0, FOUR_TO_TWO: 3.0})
    assert ran == [(0, BASELINE), (0, FASTER), (0, FOUR_TO_TWO)]


def test_a_baseline_that_leads_needs_no_confirmation() -> None:
    assert _play(_searched(fast=20.0), {}) == []


def test_a_tie_gets_more_rounds_but_not_for_ever() -> None:
    trials = _searched(base=10.0, fast=9.9)
    for trial in list(trials):
        noisy = [c.seconds * s for c, s in zip(trial.cycles, (0.8, 1.0, 1.2), strict=True)]
        trials[trial.number] = f.finished(trial.number, configuration=trial.configuration, cycle_seconds=noisy)
    ran = _play(trials, {BASELINE: 10.0, FASTER: 9.9})
    assert max(pair for pair, _ in ran) == confirmation.MAX_ROUNDS - 1
    assert ran[:4] == [(0, BASELINE), (0, FASTER), (1, FASTER), (1, BASELINE)], "the order turns"


def test_a_leader_that_fails_gives_its_place_to_the_next() -> None:
    trials = [*_searched(), f.finished(2, configuration=SECOND, cycle_seconds=7.0)]
    trials.append(f.finished(3, kind=TrialKind.CONFIRM, configuration=BASELINE, pair=0))
    trials.append(f.failed(4, kind=TrialKind.CONFIRM, configuration=FASTER, pair=0))
    plan = not_none(confirmation.next_trial(STUDY, trials))
    assert plan.draft.configuration == SECOND


def test_when_the_baseline_failed_the_leader_is_still_confirmed() -> None:
    trials = [f.failed(0, kind=TrialKind.BASELINE, configuration=BASELINE), f.finished(1, configuration=FASTER)]
    plan = not_none(confirmation.next_trial(STUDY, trials))
    assert plan.narrow(plan.draft.protocol, FASTER) == plan.draft.protocol, "it is the answer"
    assert _play(trials, {FASTER: 10.0}) == [(0, FASTER)]


def test_nothing_measured_owes_nothing_and_reserves_nothing() -> None:
    trials = [f.failed(0, kind=TrialKind.BASELINE, configuration=BASELINE)]
    assert confirmation.next_trial(STUDY, trials) is None
    assert confirmation.reserve_s(UNRECORDED, trials, 600.0) == 0.0


def test_the_reserve_holds_three_rounds_or_as_many_as_a_share_of_the_budget_has_room_for() -> None:
    trials, share = _searched(), confirmation.SHARE
    one, two, three = (_narrow_s(trials, rounds) for rounds in (1, 2, 3))
    assert one < two < 2 * one, "only the first has the longer lengths"
    assert confirmation.reserve_s(UNRECORDED, trials, 1e9) == three
    assert confirmation.reserve_s(UNRECORDED, trials, three / share - 1) == two
    assert confirmation.reserve_s(UNRECORDED, trials, two / share - 1) == one
    assert confirmation.reserve_s(UNRECORDED, trials, one / share - 1) <= one


def test_once_a_leader_is_decided_only_its_part_of_a_round_is_kept_for_one_that_may_follow() -> None:
    trials = _searched()
    before = confirmation.reserve_s(STUDY, trials, 1.0)
    _play(trials, {BASELINE: 10.0, FASTER: 5.0})
    assert 0 < confirmation.reserve_s(STUDY, trials, 1.0) < before


def _standing(count: int, seconds: float = 8.0) -> list[Trial]:
    """A leader, and ``count`` slower trials after it."""
    later = [f.finished(2 + n, cycle_seconds=seconds, configuration=f.numbered(n)) for n in range(count)]
    return [*_searched(), *later]


def test_a_leader_that_stood_is_confirmed_before_the_end_for_a_fifth_of_the_time_at_most() -> None:
    trials = _standing(confirmation.STOOD)
    round_s = _narrow_s(trials)
    enough = round_s * (1 - confirmation.SHARE) / confirmation.SHARE + 1
    assert confirmation.between(UNRECORDED, trials, enough) is not None
    assert confirmation.between(UNRECORDED, trials, enough - 2) is None
    assert confirmation.between(UNRECORDED, _standing(confirmation.STOOD - 1), 1e9) is None
    _play(trials, {BASELINE: 10.0, FASTER: 5.0})
    assert confirmation.between(UNRECORDED, trials, 1e9) is None, "it is decided"
    trials += [
        f.finished(len(trials) + n, cycle_seconds=s, configuration=c)
        for n, (s, c) in enumerate(((4.9, SECOND), *((8.0, f.numbered(90 + i)) for i in range(confirmation.STOOD))))
    ]
    assert confirmation.between(UNRECORDED, trials, 1e9) is None, "2 % more is not worth it"


def test_the_other_half_of_a_round_follows_at_once() -> None:
    trials = _searched()
    assert confirmation.half_done(STUDY, trials) is None
    trials.append(f.finished(2, kind=TrialKind.CONFIRM, configuration=BASELINE, pair=0))
    plan = not_none(confirmation.half_done(STUDY, trials))
    assert plan.draft.configuration == FASTER
    trials.append(f.finished(3, kind=TrialKind.CONFIRM, configuration=FASTER, pair=0, cycle_seconds=5.0))
    assert confirmation.half_done(STUDY, trials) is None


def test_on_a_small_budget_the_barest_round_has_its_time_with_a_little_to_spare() -> None:
    """A study of 32 minutes once kept 16 of them for a round with all its repeats, and searched three trials."""
    trials = _searched()
    plan = not_none(confirmation.next_trial(STUDY, trials))
    bare = confirmation.bare(plan.draft.protocol)
    barest = sum(confirmation.predict_s(plan.narrow(bare, c), trials, c) for c in plan.round)
    assert barest < confirmation.reserve_s(STUDY, trials, 1.0) <= 1.2 * barest


def test_what_the_gain_is_over_is_measured_for_the_gain_alone_where_the_rounds_do_not_all_fit() -> None:
    plan = not_none(confirmation.next_trial(STUDY, _searched()))
    whole = plan.draft.protocol
    narrow = plan.narrow(whole, BASELINE)
    assert (narrow.natural, narrow.maximum, narrow.double) == (0, 0, 0)
    assert (narrow.warmup, narrow.recorded, narrow.lengths) == (whole.warmup, whole.recorded, whole.lengths)
    assert plan.narrow(whole, FASTER) == whole
    unknown = replace(whole, lengths=())
    assert plan.narrow(unknown, BASELINE).natural == whole.natural >= 1, "what was never recorded has to be first"


def _narrow_s(trials: list[Trial], rounds: int = 1) -> float:
    """Predicted seconds of rounds by themselves."""
    protocol = confirmation.protocol_for(UNRECORDED)
    reference = confirmation.predict_s(confirmation.of_reference(protocol), trials, BASELINE)
    further = reference + confirmation.predict_s(confirmation.of_reference(protocol), trials, FASTER)
    return reference + confirmation.predict_s(protocol, trials, FASTER) + (rounds - 1) * further


def test_where_both_rows_do_not_fit_twice_the_same_learning_is_kept_room_for() -> None:
    trials = [*_searched(), f.finished(2, configuration=FOUR_TO_TWO, cycle_seconds=3.0)]
    both, first = confirmation.reserve_s(UNRECORDED, trials, 1e9), confirmation.reserve_s(UNRECORDED, _searched(), 1e9)
    assert both > first
    assert confirmation.reserve_s(UNRECORDED, trials, both / confirmation.SHARE - 1) == first


def test_cancelled_runs_are_owed_again_and_infra_ones_are_not() -> None:
    def after(reason: FailureReason) -> Configuration | None:
        broken = f.failed(2, f.failure(reason), kind=TrialKind.CONFIRM, configuration=BASELINE, pair=0)
        plan = confirmation.next_trial(STUDY, [*_searched(), broken])
        return plan.draft.configuration if plan else None

    assert after(FailureReason.CANCELLED) == BASELINE
    assert after(FailureReason.INFRA) == FASTER


def test_confirmation_replays_the_recorded_lengths_with_maximum_cycles_between() -> None:
    plan = not_none(confirmation.next_trial(STUDY, _searched()))
    assert plan.draft.protocol.lengths == f.LENGTHS
    assert plan.draft.protocol.maximum >= 1
    assert plan.draft.protocol.natural >= 1
