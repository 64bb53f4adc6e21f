"""Which workload a budget holds, where nobody chose one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import CycleKind, Trial
from autotune.specification.request import CPU_SIZE, GPU_SIZE
from autotune.specification.workload_size import LEAST, TRIALS, Pace, Plan, Workload, choose, ladder
from search_spaces.configuration import KnobValue
from tests.support import factories as f
from tests.support.not_none import not_none

BUDGET_S = 600.0


def pace_on(token_s: float, start_s: float = 8.0) -> Callable[[Workload], Pace]:
    """A machine on which a cycle costs so many seconds a completion token, less for a model of fewer layers."""

    def pace_of(one: Workload) -> Pace:
        cycle = token_s * one.rows * one.tokens * (1.0 if one.layers is None else one.layers / 30)
        return Pace(start_s + 1.5 * cycle, cycle)

    return pace_of


def sizes() -> Iterator[Workload]:
    return ladder(CPU_SIZE, rows=True, tokens=True, layers=(15, 7))


def chosen(token_s: float, budget_s: float = BUDGET_S, start_s: float = 8.0, layers: int = 30) -> Plan:
    pace_of = pace_on(token_s, start_s)
    return choose([(one, pace_of(one)) for one in sizes()], budget_s, layers)


def test_completions_get_shorter_and_rows_fewer_in_turn_and_the_model_smaller_only_at_last() -> None:
    assert [(w.rows, w.tokens, w.layers) for w in sizes()] == [
        (8, 32, None),
        (8, 16, None),
        (4, 16, None),
        (4, 8, None),
        (4, 8, 15),
        (4, 8, 7),
    ]


@pytest.mark.parametrize(
    ("rows", "tokens", "found"),
    [(False, True, [(8, 32), (8, 16), (8, 8)]), (True, False, [(8, 32), (4, 32)]), (False, False, [(8, 32)])],
)
def test_what_the_user_said_is_on_every_step(rows: bool, tokens: bool, found: list[tuple[int, int]]) -> None:
    assert [(w.rows, w.tokens) for w in ladder(CPU_SIZE, rows=rows, tokens=tokens)] == found


def test_the_ladder_of_a_gpu_ends_at_the_least_too() -> None:
    last = list(ladder(GPU_SIZE, rows=True, tokens=True))[-1]
    assert (last.rows, last.tokens) == (LEAST.rows_per_update, LEAST.max_completion_length)


def test_a_study_is_the_baseline_the_search_and_one_round_of_confirmation() -> None:
    """One warm-up is in the start. The baseline has 2 + 3 cycles, a search trial 3, the round 3 + 2 and 3."""
    pace = Pace(start_s=10.0, cycle_s=2.0)
    assert pace.study_s() == pytest.approx((10 + 5 * 2) + 5 * (10 + 3 * 2) + (10 + 5 * 2) + (10 + 3 * 2))
    assert pace.trials(pace.study_s()) == TRIALS
    assert pace.trials(pace.study_s() - 0.01) == TRIALS - 1
    assert (pace.trials(20.0), pace.trials(19.9)) == (1, 0)


def test_an_idle_machine_keeps_the_default_and_a_busier_one_gets_less() -> None:
    found = [chosen(slow).workload for slow in (0.02, 0.1, 0.2, 0.5, 1.0)]
    work = [w.rows * w.tokens * (w.layers or 30) for w in found]
    assert found[0] == Workload(8, 32)
    assert work == sorted(work, reverse=True)
    assert found[-1].layers is not None


@given(st.floats(0.001, 20.0), st.floats(0.0, 60.0), st.floats(60.0, 7200.0))
def test_what_is_chosen_holds_the_trials_or_is_the_least_there_is(slow: float, start: float, budget: float) -> None:
    every = list(sizes())
    found = chosen(slow, budget, start)
    assert found.holds or found.workload == every[-1]
    if found.holds:
        assert found.pace.trials(budget) >= TRIALS
        larger = every[: every.index(found.workload)]
        assert all(pace_on(slow, start)(w).study_s() > budget for w in larger)
    assert ("need a budget" in found.words()) == (not found.holds)
    assert "\n" not in found.words()


def test_a_larger_budget_never_gets_a_smaller_workload() -> None:
    found = [list(sizes()).index(chosen(0.2, b).workload) for b in (300, 600, 1200, 2400, 9600)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


def test_the_line_says_what_was_chosen_and_why() -> None:
    assert chosen(0.2).words() == (
        "4 rows per update, completions of at most 16 tokens (chosen because the default is too large): "
        "a cycle takes about 13 s here now, of the default about 51 s, so 10 min hold about 6 trials"
    )
    assert (
        chosen(0.01)
        .words()
        .startswith("8 rows per update, completions of at most 32 tokens (the default): a cycle takes about 2.6 s")
    )
    least = chosen(2.0).words()
    assert "the first 7 of the model's 30 layers" in least
    assert "6 trials need a budget of about" in least


def test_a_workload_the_user_chose_is_warned_about_with_the_budget_it_needs() -> None:
    def said(budget_s: float) -> str:
        return choose([(Workload(8, 32), Pace(start_s=100.0, cycle_s=60.0))], budget_s).too_small_words()

    assert said(BUDGET_S) == (
        "a cycle of this workload takes about 1 min here now, so 10 min hold about 1 trial; "
        "6 trials need a budget of about 42 min"
    )
    assert said(42 * 60.0) == ""
    assert "no whole trial" in said(300.0)


def cycles(*seconds: float, kind: CycleKind = CycleKind.NATURAL, **knobs: KnobValue) -> Trial:
    """A baseline after a warm-up of the first seconds and cycles of ``kind`` of the others."""
    kinds = [CycleKind.WARMUP, *[kind] * len(seconds)]
    found = tuple(f.cycle(i, seconds=s, cycle_kind=k) for i, (s, k) in enumerate(zip(seconds, kinds, strict=False)))
    return f.trial(configuration=f.configuration(**{"rollout_engine": "transformers", **knobs}), cycles=found)


def test_a_cycle_as_forecast_says_nothing_and_one_of_three_times_as_much_says_so() -> None:
    plan = chosen(0.08)  # of 10 s, as a cycle that takes 20 s is a third of what the budget could bear
    cycle_s = plan.pace.cycle_s
    for fine in ((), (1.5 * cycle_s,), (1.9 * cycle_s,), (2.0 * cycle_s, 1.2 * cycle_s)):
        assert plan.after(cycles(*fine), 8.0 + sum(fine), 500.0) is None
    for wrong in ((4.5 * cycle_s,), (1.5 * cycle_s, 3.0 * cycle_s)):
        found = not_none(plan.after(cycles(*wrong), 8.0 + sum(wrong), 500.0))
        assert found.differs(plan)
        assert found.workload.rows * found.workload.tokens < plan.workload.rows * plan.workload.tokens
        assert found.correction_words(plan).startswith(
            "the first cycle took 3.0 times its forecast: the baseline begins"
        )
        assert found.pace.start_s == pytest.approx(8.0 + 1.5 * found.pace.cycle_s)


@pytest.mark.parametrize("knobs", [{"rollout_engine": "vllm"}, {"torch_compile": True}])
def test_where_much_is_done_once_two_cycles_are_waited_for_and_the_shorter_counts(knobs: dict[str, KnobValue]) -> None:
    plan = chosen(0.08)
    cycle_s = plan.pace.cycle_s
    slow, usual = 9.0 * cycle_s, 1.2 * cycle_s
    assert plan.after(cycles(slow, **knobs), 100.0, 500.0) is None
    assert plan.after(cycles(slow, slow, **knobs), 200.0, 400.0) is None
    assert plan.after(cycles(slow, slow, usual, **knobs), 220.0, 380.0) is None
    assert plan.after(cycles(slow, slow, 0.9 * slow, **knobs), 300.0, 300.0) is not None


def test_other_ranks_and_later_cycles_say_nothing_of_the_forecast() -> None:
    plan = chosen(0.08)
    cycle_s = plan.pace.cycle_s
    later = cycles(1.5 * cycle_s, cycle_s, cycle_s, 9.0 * cycle_s)
    assert plan.after(later, 100.0, 500.0) is None
    of_another = later.with_(cycles=tuple(replace(c, rank=1) for c in later.cycles[:2]))
    assert plan.after(of_another, 1.0, 500.0) is None


@given(st.floats(0.001, 2.0), st.floats(0.1, 100.0), st.floats(60.0, 7200.0), st.floats(0.0, 1.2), st.floats(0.0, 60.0))
def test_a_plan_that_is_made_anew_is_better_or_the_old_one_stays(
    slow: float, times: float, budget: float, share: float, began: float
) -> None:
    plan = chosen(slow, budget)
    elapsed = share * budget
    found = plan.corrected(times, began, elapsed, budget - elapsed)
    stays = next(pace.slowed(times, began) for one, pace in plan.steps if one == plan.workload)
    if not found.differs(plan):
        assert found.pace == stays
        return
    assert stays.study_s() > budget
    assert found.workload in [one for one, _ in plan.steps]
    assert found.holds or elapsed + found.pace.study_s() < stays.study_s()
    assert found.protocol.max_repeats == 0
    assert found.holds or found.protocol.recorded == found.pace.recorded == 2
    again = found.corrected(1.0, began, 0.0, budget - elapsed)
    assert not again.differs(found), "it would begin again and again"


def test_a_slow_reward_is_named_with_its_share_of_a_cycle() -> None:
    """Its seconds are known before the first trial: no configuration makes them fewer."""
    pace = Pace(start_s=14.0, cycle_s=14.0, reward_s=10.0)
    said = choose([(Workload(8, 32), pace)], 120.0).too_small_words()
    assert "takes about 14 s (71 % of it the reward) here now" in said
    assert "6 trials need a budget of" in said
    quick = choose([(Workload(8, 32), Pace(start_s=14.0, cycle_s=14.0, reward_s=1.0))], 120.0).too_small_words()
    assert "reward" not in quick
