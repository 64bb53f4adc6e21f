"""Two exports in turns: which steps count, and what their ratio is. What fails here makes the judge of gains err."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.verify.compare_run import TAKEN, CycleShape, LoggedUpdate, observe
from autotune.verify.in_turns import ANSWER, BASELINE, Step, compare, interval_holds, order, steps_of, turns_lines
from tests.support import factories as f
from tests.support.not_none import not_none

SHAPE = CycleShape(rows=8, trained_rows=8, updates=1, generation_rows=8)


def turn(run: str, number: int, *seconds: float, tokens: float = 200.0, taken: float | None = 0.01) -> list[Step]:
    return [Step(run, number, each, tokens, taken) for each in seconds]


def test_every_second_round_is_turned_round() -> None:
    assert order(3) == [(1, BASELINE), (1, ANSWER), (2, ANSWER), (2, BASELINE), (3, BASELINE), (3, ANSWER)]


def test_tokens_an_hour_are_of_all_steps_and_seconds_of_the_median_round() -> None:
    steps = [*turn(BASELINE, 1, 4.0, 5.0, 60.0), *turn(ANSWER, 1, 2.0, 2.5, 3.0, tokens=100.0)]
    steps += [*turn(ANSWER, 2, 2.0), *turn(BASELINE, 2, 8.0), *turn(BASELINE, 3, 6.0), *turn(ANSWER, 3, 2.0)]
    verdict = compare(steps)
    assert verdict.rounds == (2.0, 4.0, 3.0)
    assert verdict.by_seconds == 3.0
    assert verdict.baseline.tokens_per_hour == pytest.approx(3600 * 1000 / 83.0)
    assert verdict.answer.tokens_per_hour == pytest.approx(3600 * 700 / 11.5)
    assert verdict.by_tokens == pytest.approx(700 / 11.5 / (1000 / 83.0))
    assert (verdict.baseline.seconds, verdict.answer.seconds) == (6.0, 2.0)


def test_what_others_took_never_counts_wherever_it_falls() -> None:
    quiet = [*turn(BASELINE, 1, 4.0, 4.2, 4.1), *turn(ANSWER, 1, 2.0, 2.1, 2.2)]
    disturbed = [*turn(BASELINE, 1, 40.0, 90.0, taken=TAKEN + 0.001), *turn(ANSWER, 1, 0.1, taken=1.0)]
    assert compare(quiet + disturbed) == compare(disturbed + quiet) == compare(quiet)
    assert compare([*quiet, *turn(BASELINE, 2, 900.0)]) != compare(quiet), "a clean step counts in its side"
    assert not compare(quiet).disturbed


@pytest.mark.parametrize("rounds", [(1, 1), (1, 2)])
def test_where_no_round_has_clean_steps_of_both_all_are_shown_and_nothing_is_decided(rounds: tuple[int, int]) -> None:
    steps = [*turn(BASELINE, rounds[0], 4.0), *turn(ANSWER, rounds[1], 2.0), *turn(BASELINE, rounds[1], 5.0, taken=0.5)]
    steps += turn(ANSWER, 1, 2.5, taken=0.5)
    verdict = compare([step if step.run == BASELINE else replace(step, outside_cpu=0.5) for step in steps])
    assert verdict.disturbed
    assert verdict.by_tokens == pytest.approx(9.0 / 4.5)
    assert len(verdict.rounds) == len(set(rounds))
    assert interval_holds(verdict, f.gain(value=1.0, low=0.0, high=9.0)) is None


def test_a_machine_that_tells_nothing_of_others_counts_every_step() -> None:
    verdict = compare([*turn(BASELINE, 1, 4.0, taken=None), *turn(ANSWER, 1, 2.0, taken=None)])
    assert (verdict.disturbed, verdict.by_tokens) == (False, 2.0)


def test_the_share_of_others_is_read_between_the_lines_of_the_log() -> None:
    busy = [(0.0, 100.0), (10.0, 100.2), (20.0, 103.2), (30.0, 103.1), (40.0, None), (50.0, 104.0)]
    lines = [LoggedUpdate(at, 25.0, 32.0, None, others) for at, others in busy]
    observed = not_none(observe(lines, SHAPE, warming=2))
    assert [cycle.seconds for cycle in observed.cycles] == [10.0] * 4
    taken = [cycle.taken for cycle in observed.cycles]
    assert taken == [pytest.approx(0.3), 0.0, None, None]
    once = not_none(observe(lines, SHAPE))
    assert [cycle.taken for cycle in once.cycles[1:]] == taken
    assert observe(lines[:2], SHAPE, warming=2) is None


def test_prompts_are_those_of_the_cycles_that_count() -> None:
    lines = [LoggedUpdate(10.0 * n, 25.0, 32.0, total) for n, total in enumerate((1000.0, 1280.0, 1640.0, 2000.0))]
    lengths = [one.prompt for warming in (1, 2) if (one := observe(lines, SHAPE, warming)) is not None]
    assert lengths == [pytest.approx((1000 - 3 * 200) / 24), pytest.approx((720 - 2 * 200) / 16)]


def test_updates_that_share_their_completions_are_steps_of_their_mean() -> None:
    shape = replace(SHAPE, updates=2, rows=16, trained_rows=32)
    lengths = (30.0, None, 20.0, None, 10.0, None)
    lines = [LoggedUpdate(at, mean, mean, None, 0.0) for at, mean in zip((1, 2, 7, 8, 10, 14), lengths, strict=True)]
    observed = not_none(observe(lines, shape))
    assert steps_of(observed, ANSWER, 3, 2) == [Step(ANSWER, 3, 3.0, 160.0, 0.0), Step(ANSWER, 3, 3.0, 80.0, 0.0)]


@pytest.mark.parametrize(
    ("low", "high", "holds", "word"),
    [(0.9, 1.1, True, "which holds the +100.0 %"), (1.01, 1.5, False, "which does NOT hold the +100.0 %")],
)
def test_a_gain_is_held_against_the_ratio_of_tokens_an_hour(low: float, high: float, holds: bool, word: str) -> None:
    steps = [*turn(BASELINE, 1, 4.0, 4.0, taken=None), *turn(ANSWER, 1, 2.0)]
    verdict, gain = compare(steps), f.gain(value=1.05, low=low, high=high)
    assert interval_holds(verdict, gain) is holds
    assert word in turns_lines(steps, verdict, gain)[-1]


def test_without_a_gain_or_without_a_quiet_round_nothing_is_decided() -> None:
    steps = [*turn(BASELINE, 1, 4.0), *turn(ANSWER, 1, 2.0)]
    assert interval_holds(compare(steps), None) is None
    assert turns_lines(steps, compare(steps), None)[-1] == "not decided: the study states no gain"
    disturbed = [replace(step, outside_cpu=0.4) for step in steps]
    lines = turns_lines(disturbed, compare(disturbed), f.gain())
    assert lines[0] == "steps     2; in 2 of them other programs took more than 5 % of the CPU"
    assert lines[-1] == "not decided: other programs disturbed every round"
