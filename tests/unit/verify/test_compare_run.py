"""Observed against stated: if one of these fails, `verify` blesses a figure it should not, or the reverse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Phase
from autotune.verify.compare_run import (
    CycleShape,
    LoggedUpdate,
    ObservedCycle,
    ObservedRun,
    StatedFigure,
    judge,
    observe,
    read_step,
    shape_of,
    stated_by,
    together,
)
from tests.support import factories as f
from tests.support.not_none import not_none

LINE = (
    "{'loss': '0.003936', 'grad_norm': '2.232', 'num_tokens': '418', 'completions/mean_length': '15.88', "
    "'completions/max_length': '16', 'reward': 'nan', 'step_time': '1.067', 'epoch': '0.125'}"
)
SHAPE = CycleShape(rows=8, trained_rows=8, updates=1, generation_rows=8)
SHARES = {Phase.GENERATE.value: 0.5, Phase.UPDATE.value: 0.4, Phase.REWARD.value: 0.1}
STATED = StatedFigure(180_000.0, mean_length=50.0, longest=100.0, prompt=60.0, width=160.0, shares=SHARES)


def steps(*durations: float, mean: float = 50.0, longest: float = 100.0) -> list[LoggedUpdate]:
    at, found = 1000.0, []
    for seconds in durations:
        at += seconds
        found.append(LoggedUpdate(at, mean, longest))
    return found


def test_a_line_of_trls_log_is_read_however_the_progress_bar_mangled_it() -> None:
    for text in (LINE, "\r 25%|##5  | 1/4\r   \r" + LINE, LINE + "\r"):
        assert read_step(text, 7.0) == LoggedUpdate(7.0, 15.88, 16.0, 418.0)
    assert read_step("{'loss': '0.1', 'epoch': '1'}", 7.0) == LoggedUpdate(7.0, None, None)


@pytest.mark.parametrize(
    "text",
    ["", "loss", "{'train_loss': '0.1'}", "{'eval_loss': 1}", "{'loss': __import__('os')}", "{'loss': 1", "}{'loss'"],
)
def test_anything_else_is_no_update_and_is_never_evaluated(text: str) -> None:
    assert read_step(text, 0.0) is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    read_step("{'loss'" + text, 0.0)


def run_of(seconds: float, tokens: float = 50.0, taken: tuple[float | None, ...] = (None,) * 3) -> ObservedRun:
    return ObservedRun(tuple(ObservedCycle(seconds, 8 * tokens, 50.0, 100.0, share) for share in taken))


@pytest.mark.parametrize(
    ("seconds", "taken", "answer"),
    [
        (8.0, (0.9,) * 3, "within 5 %"),  # agreeing is agreeing
        (80.0, (0.9, 0.2, 0.01), "not decided: other programs disturbed 2 of 3 cycles"),
        (80.0, (0.9, 0.01, 0.01), "not within 5 %"),
        (80.0, (0.06, None, 0.05, 0.02), "not within 5 %"),
        (80.0, (None,) * 3, "not within 5 %"),
    ],
)
def test_a_disturbed_machine_decides_nothing_against_an_export(
    seconds: float, taken: tuple[float | None, ...], answer: str
) -> None:
    verdict = judge(run_of(seconds, taken=taken), STATED, SHAPE)
    assert verdict.answer == answer
    assert verdict.undecided == answer.startswith("not decided")


def test_cycles_that_others_disturbed_count_only_where_most_were() -> None:
    first = ObservedCycle(8.0, 400.0, 50.0, 99.0, 0.01)
    disturbed = ObservedCycle(90.0, 4.0, 5.0, 9.0, 0.3)
    last = ObservedCycle(9.0, 450.0, 56.0, 97.0, 0.05)
    run = ObservedRun((first, disturbed, last), 7.0)
    assert run.counted == ObservedRun((first, last), 7.0)
    assert (run.counted.mean_length, run.counted.longest) == (53.0, 98.0)
    verdict = judge(run, STATED, SHAPE)
    assert (len(verdict.observed.cycles), verdict.disturbed, verdict.drowned) == (2, 1, False)
    assert verdict.observed.tokens_per_hour == pytest.approx(3600 * 850 / 17)
    worse = replace(run, cycles=(first, disturbed, replace(last, taken=0.3)))
    assert worse.counted is worse
    assert judge(worse, STATED, SHAPE).observed == worse


def test_the_first_update_never_counts() -> None:
    observed = not_none(observe(steps(500.0, 10.0, 10.0, 20.0), SHAPE))
    assert [cycle.seconds for cycle in observed.cycles] == [10.0, 10.0, 20.0]
    assert observed.tokens_per_hour == pytest.approx(3600 * 3 * 8 * 50.0 / 40.0)
    assert observe(steps(500.0), SHAPE) is None
    assert observe([], SHAPE) is None


def test_a_generation_that_serves_several_updates_is_counted_once() -> None:
    shape = CycleShape(rows=16, trained_rows=32, updates=2, generation_rows=16)
    lines = steps(90.0, 5.0, 8.0, 4.0, 9.0, 3.0, 1.0)
    lines = [
        step if number % 2 == 0 else replace(step, mean_length=None, longest=None) for number, step in enumerate(lines)
    ]
    observed = not_none(observe(lines, shape))
    assert [cycle.seconds for cycle in observed.cycles] == [
        12.0,
        12.0,
    ]  # the last update has no partner, the first cycle never counts
    assert observed.tokens_per_hour == pytest.approx(3600 * 16 * 50.0 / 12.0)


def test_the_shape_of_a_cycle_follows_the_batch_and_the_iterations() -> None:
    study = f.study(spec=f.study_spec(workload=f.workload(passthrough={})))
    assert shape_of(study, f.configuration()) == CycleShape(8, 8, 1, 8)
    assert shape_of(study, f.configuration(steps_per_generation=2)) == CycleShape(8, 8, 1, 4)
    twice = f.study(spec=f.study_spec(workload=f.workload(passthrough={"num_iterations": 2})))
    assert shape_of(twice, f.configuration()) == CycleShape(8, 16, 2, 8)


def test_stated_lengths_are_those_of_the_speed_cycles() -> None:
    shape = replace(SHAPE, generation_rows=4)
    stated = not_none(stated_by([f.finished(0)], 1000.0, shape))
    assert stated.mean_length == pytest.approx(sum(f.LENGTHS) / 8)
    assert stated.longest == pytest.approx((40 + 128) / 2)  # of the two generations of a cycle
    assert stated.width == pytest.approx(40 + 128)
    assert stated.prompt == pytest.approx(40)
    assert sum(stated.shares.values()) == pytest.approx(1.0)
    assert stated_by([f.failed(1)], 1000.0, shape) is None


def test_equal_lengths_need_no_correction() -> None:
    observed = not_none(observe(steps(1.0, 8.0, 8.0), SHAPE))
    verdict = judge(observed, STATED, SHAPE)
    assert verdict.expected == pytest.approx(STATED.tokens_per_hour)
    assert verdict.ratio == pytest.approx(1.0)
    assert verdict.agrees


def test_shorter_completions_under_the_same_longest_give_fewer_tokens_in_the_same_time() -> None:
    observed = not_none(observe(steps(1.0, 8.0, 8.0, mean=25.0), SHAPE))
    verdict = judge(observed, STATED, SHAPE)
    assert verdict.observed.tokens_per_hour == pytest.approx(90_000.0)
    assert verdict.ratio == pytest.approx(1.0)


@pytest.mark.parametrize(("prompt", "shift"), [(None, 0.0), (60.0, 0.0), (90.0, 30.0)])
def test_the_correction_is_the_documented_formula(prompt: float | None, shift: float) -> None:
    observed = ObservedRun((ObservedCycle(10.0, 8 * 30.0, 30.0, 60.0),), prompt)
    growth = 0.5 * 60 / 100 + 0.4 * (160 - 40 + shift) / 160 + 0.1
    verdict = judge(observed, STATED, SHAPE)
    assert verdict.expected == pytest.approx(180_000.0 * 30 / 50 / growth)


@pytest.mark.parametrize(("slower", "agrees"), [(0.96, True), (1.04, True), (1.06, False), (0.94, False)])
def test_more_than_five_percent_in_either_direction_is_no_agreement(slower: float, agrees: bool) -> None:
    observed = not_none(observe(steps(1.0, 8.0 * slower, 8.0 * slower), SHAPE))
    assert judge(observed, STATED, SHAPE).agrees is agrees


def test_prompt_lengths_are_what_the_tokens_of_the_counted_cycles_leave() -> None:
    logged = [
        replace(step, tokens=1000.0 + 8 * (50.0 + 70.0) * number) for number, step in enumerate(steps(9.0, 8.0, 8.0))
    ]
    observed = not_none(observe(logged, SHAPE))
    assert observed.prompt == pytest.approx(70.0)
    silent = not_none(observe([*logged[:2], replace(logged[2], tokens=None)], SHAPE))
    assert silent.prompt is None


def test_several_runs_weigh_by_their_cycles_and_the_interval_holds_the_figure() -> None:
    one, two = observe(steps(1.0, 8.0), SHAPE), observe(steps(1.0, 9.0, 9.0, 9.0, mean=30.0), SHAPE)
    assert one is not None
    assert two is not None
    both = together([one, two])
    assert both.mean_length == pytest.approx((50 + 3 * 30) / 4)
    verdict = judge(both, STATED, SHAPE)
    assert verdict.interval[0] < verdict.observed.tokens_per_hour < verdict.interval[1]
    assert len(verdict.observed.cycles) == 4


@pytest.mark.parametrize(
    ("seconds", "half_width", "answer"),
    [
        (8.0, 1.0, "within 5 %"),  # agreeing is agreeing
        (10.0, 0.1, "not within 5 %"),
        (10.0, 0.3, "not decided: processes of one configuration may differ by as much; more rounds decide it"),
        (6.0, 0.1, "not within 5 %"),
        (6.0, 0.3, "not decided: processes of one configuration may differ by as much; more rounds decide it"),
        (80.0, 1.0, "not within 5 %"),
    ],
)
def test_what_processes_may_differ_by_decides_nothing(seconds: float, half_width: float, answer: str) -> None:
    verdict = judge(run_of(seconds), STATED, SHAPE, half_width)
    assert verdict.answer == answer
    assert verdict.undecided == answer.startswith("not decided")
    assert verdict.ratio_low < verdict.ratio < verdict.ratio_high
    assert verdict.ratio_high / verdict.ratio == pytest.approx(verdict.ratio / verdict.ratio_low)
