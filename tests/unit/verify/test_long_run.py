"""A long run against the stated figure: which cycles count, and what is said when they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import CycleKind, CycleRecord, FailureReason, Outcome, Phase, Trial
from autotune.errors import UsageError
from autotune.statistics.evidence import feasible
from autotune.study import schedule
from autotune.verify import long_run
from autotune.verify.long_run import LongVerdict
from autotune.verify.sentences import long_lines, long_sentence
from tests.support import factories as f
from tests.support.not_none import not_none
from tests.unit.verify.test_length_model import HALVES, machine, predicted, trial


def natural(count: int, slower: dict[str, float] | None = None, noisy: int = 0) -> list[CycleRecord]:
    cycles = []
    for index in range(count):
        one = machine(f.LENGTHS, CycleKind.NATURAL, HALVES)
        phases = {p: s + (slower or {}).get(p, 0.0) for p, s in one.phases.items()}
        cycles.append(replace(one, index=index, phases=phases, seconds=sum(phases.values()), noisy=index < noisy))
    return cycles


def compared(cycles: list[CycleRecord]) -> LongVerdict:
    return not_none(long_run.compare(predicted([trial()]), cycles))


@pytest.mark.parametrize(
    ("text", "behind", "updates", "cycles"),
    [("10x", 9, 1, 90), ("2.5x", 9, 1, 23), ("200", 9, 1, 200), ("200", 9, 3, 67), (" 1x ", 3, 2, 3)],
)
def test_steps_are_a_multiple_of_the_cycles_behind_the_figure_or_updates(
    text: str, behind: int, updates: int, cycles: int
) -> None:
    assert long_run.cycles_asked(text, behind, updates) == cycles


@pytest.mark.parametrize("text", ["", "x", "10 x", "-3", "10X", "1e3", "0", "0x", "2", "9999x", "9999999", "ten"])
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        long_run.cycles_asked(text, 9, 1)
    assert "--steps" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_run_as_predicted_agrees_and_its_raw_figure_is_the_stated_one() -> None:
    verdict = compared(natural(20))
    assert verdict.ratio == pytest.approx(1.0)
    assert verdict.agrees
    assert verdict.raw == pytest.approx(verdict.stated)
    assert (verdict.cycles, verdict.updates, verdict.compared, verdict.disturbed) == (20, 20, 20, 0)
    assert verdict.stated_longest == pytest.approx((40 + 128) / 2) == verdict.observed_longest


def test_the_phase_that_took_longer_is_named_with_its_seconds_and_the_others_are_not() -> None:
    verdict = compared(natural(10, {Phase.UPDATE.value: 1.5, Phase.REWARD.value: 0.01}))
    assert not verdict.agrees
    assert verdict.phases[0].phase == Phase.UPDATE.value
    assert verdict.phases[0].excess == pytest.approx(1.5)
    assert verdict.reason.startswith("update took 1.50 s a cycle longer than predicted")
    assert "reward" not in verdict.reason
    assert "NOT within 5 %: update took" in long_sentence(verdict)
    assert long_lines(verdict)[-1].startswith("reason    update took")


def test_a_phase_the_study_never_saw_is_named_too() -> None:
    cycles = [replace(c, phases={**c.phases, "wait": 2.0}, seconds=c.seconds + 2.0) for c in natural(5)]
    assert compared(cycles).reason.startswith("wait took 2.00 s")


def test_disturbed_cycles_are_in_the_raw_figure_alone_unless_they_are_most() -> None:
    cycles = natural(10, noisy=4)
    cycles[:4] = [replace(c, seconds=3 * c.seconds) for c in cycles[:4]]
    verdict = compared(cycles)
    assert (verdict.compared, verdict.disturbed) == (6, 4)
    assert verdict.ratio == pytest.approx(1.0)
    assert verdict.raw < verdict.measured
    most = compared(natural(10, noisy=6))
    assert (most.compared, most.disturbed) == (10, 6)


def test_a_run_that_slows_down_shows_it_by_thirds() -> None:
    cycles = [replace(c, seconds=c.seconds * (1 + i / 10)) for i, c in enumerate(natural(9))]
    verdict = compared(cycles)
    assert verdict.early > 0.9 > verdict.late
    assert verdict.low < verdict.ratio < verdict.high


def test_too_few_cycles_are_no_verdict() -> None:
    assert long_run.compare(predicted([trial()]), natural(2)) is None


def long_trial(**changes: object) -> Trial:
    study = f.study()
    draft = long_run.draft(study, f.configuration(), 5)
    made = f.finished(7, kind=draft.kind, configuration=draft.configuration, protocol=draft.protocol)
    return made.with_(source=draft.source, cycles=tuple(natural(5)), **changes)


def test_a_long_run_is_natural_alone_and_is_nobodys_figure() -> None:
    one = long_trial()
    assert (one.protocol.natural, one.protocol.recorded, one.protocol.maximum, one.protocol.double) == (5, 0, 0, 0)
    assert one.protocol.lengths == f.LENGTHS
    assert len(long_run.natural(one)) == 5
    assert one.feasible
    assert feasible([one]) == {}
    assert schedule.judged(Outcome(), one, schedule.Deadline(1.0, False)).ok


def test_a_trial_that_should_have_measured_and_did_not_is_still_a_crash() -> None:
    empty = f.finished(1).with_(cycles=())
    assert schedule.judged(Outcome(), empty, schedule.Deadline(1.0, False)).reason is FailureReason.CRASH


def test_when_the_tuner_dies_a_long_run_ends_and_any_other_trial_is_repeated() -> None:
    ended = not_none(schedule.lost(long_trial()))
    assert ended.reason is FailureReason.CANCELLED
    assert schedule.lost(f.trial(1, attempt=1)) is None
    given_up = not_none(schedule.lost(f.trial(1, attempt=schedule.LOST_ATTEMPTS)))
    assert given_up.reason is FailureReason.CRASH


def test_it_is_given_as_long_as_so_many_cycles_may_take() -> None:
    study = f.study()
    slow = f.finished(0, cycle_seconds=100.0, seconds=400.0)
    long = f.trial(7, kind=long_trial().kind, configuration=slow.configuration, protocol=long_trial().protocol)
    long = long.with_(protocol=replace(long.protocol, natural=90))
    bound = schedule.deadline(study, long, [slow], schedule.Budget(), schedule.Spent(0.0, 0.0))
    assert bound.seconds > 90 * 100.0
    assert not bound.by_budget
