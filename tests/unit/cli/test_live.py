from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from autotune.cli.screens.live import LiveState, begin, live_table, with_event, with_phase, with_tick, with_trial
from autotune.domain import Budget, TrialState
from tests.support import factories
from tests.support.properties import examples
from tests.unit.cli.drawing import lines, text, widest
from trainer.child.contract import CurrentPhase

NOW = factories.NOW
BUDGET = Budget(wall_s=600, max_trials=40)


def running(number: Any, **changes: Any) -> Any:
    return factories.trial(number, state=TrialState.RUNNING, attempt=1, **changes)


def faster(number: Any, seconds: float = 5.0, **knobs: Any) -> Any:
    return factories.finished(number, cycle_seconds=seconds, configuration=factories.configuration(**knobs))


@pytest.fixture
def state() -> Any:
    trials = [
        factories.finished(0, cycle_seconds=10.0),
        faster(1, 5.0, micro_batch_size=4, gradient_accumulation_steps=2),
        factories.failed(2, configuration=factories.configuration(micro_batch_size=8, gradient_accumulation_steps=1)),
        faster(3, 8.0, gradient_checkpointing=False),
        faster(4, 4.0, precision="bf16"),
    ]
    state = begin(factories.study(), trials, BUDGET, NOW, legal=1248)
    trial = running(5, configuration=factories.configuration(micro_batch_size=4, gradient_checkpointing=False))
    return with_phase(state, trial, CurrentPhase("update", 2, "recorded"), NOW)


def test_trials_side_by_side_all_stand_there_and_each_keeps_when_its_phase_began(state: LiveState) -> None:
    other = running(6, configuration=factories.configuration(micro_batch_size=8, gradient_accumulation_steps=1))
    both = with_phase(state, other, CurrentPhase("generate", 1, "recorded"), NOW + 10)
    again = with_phase(both, running(5), CurrentPhase("update", 2, "recorded"), NOW + 30)
    shown = [line for line in lines(live_table(again)) if line.startswith("running")]
    assert [line.split()[:2] for line in shown] == [["running", "#5"], ["running", "#6"]], "and no line moves"
    assert "update, cycle 2 for 30 s" in shown[0], "the other one's report in between changed nothing"
    assert "generate, cycle 1 for 20 s" in shown[1]
    ended = with_trial(again, faster(5, 4.0), NOW + 31)
    assert [line.split()[1] for line in lines(live_table(ended)) if line.startswith("running")] == ["#6"]
    put_off = with_event(ended, factories.event("trial_repeated", "will be repeated", trial=6), NOW + 32)
    assert "running  nothing" in text(live_table(put_off))


def test_a_trial_stands_with_the_place_it_was_started_in(state: LiveState) -> None:
    started = factories.event("trial_started", "trial 6 started on GPU 3", trial=6, data={"place": "GPU 3"})
    state = with_trial(with_event(state, started, NOW), running(6), NOW)
    assert "running  #6 search, GPU 3, starting for 0 s" in text(live_table(state))


def test_best_comes_first_with_its_gain_over_the_baseline(state: LiveState) -> None:
    rows = [line for line in lines(live_table(state)) if line.startswith("#")]
    assert [row.split()[0] for row in rows] == ["#4", "#1", "#3", "#0"]
    assert "+150.0 %" in rows[0]
    assert "+100.0 %" in rows[1]
    assert "baseline" in rows[3]
    assert "%" not in rows[3]


def test_what_changes_rounding_is_marked(state: LiveState) -> None:
    rows = [line for line in lines(live_table(state)) if line.startswith("#")]
    assert ["°" in row for row in rows] == [True, False, False, False]
    assert "° changes numerics or the update" in text(live_table(state))


def test_only_differing_knobs_have_columns_and_their_names_are_told(state: LiveState) -> None:
    drawn = text(live_table(state))
    assert "mb micro_batch_size" in drawn
    assert "ckpt gradient_checkpointing" in drawn
    assert "attn" not in drawn


def test_the_running_trial_shows_phase_cycle_and_how_long(state: LiveState) -> None:
    state = with_tick(state, 120.0, 480.0, NOW + 12)
    running = next(line for line in lines(live_table(state)) if line.startswith("running"))
    assert running.startswith("running  #5 search, update, cycle 2 for 12 s: micro_batch_size 4,")


def test_the_same_phase_again_does_not_restart_its_clock(state: LiveState) -> None:
    trial = state.trials[-1]
    state = with_phase(state, trial, CurrentPhase("update", 2, "recorded"), NOW + 5)
    assert state.phases[5][1] == NOW
    state = with_phase(state, trial, CurrentPhase("sync", 2, "recorded"), NOW + 6)
    assert state.phases[5][1] == NOW + 6


def test_budget_bar_stop_time_and_counts(state: LiveState) -> None:
    state = with_tick(state, 300.0, 300.0, NOW)
    drawn = text(live_table(state))
    assert "██████████░░░░░░░░░░ 5 min of 10 min · ends " in drawn
    assert "6 tried: 4 ok, 1 OOM, 1 running · 1,248 legal combinations" in drawn


def test_ruled_out_is_taken_from_events(state: LiveState) -> None:
    state = with_event(state, factories.event("ruled_out", "", data={"ruled_out": 34}), NOW)
    assert "34 of 1,248 ruled out" in text(live_table(state))


def test_only_the_last_three_causes_of_failures_with_their_count_newest_first(state: LiveState) -> None:
    for number, message in ((6, "a"), (7, "b"), (8, "c"), (9, "c"), (10, "d"), (11, "c")):
        failed = factories.failed(number, factories.oom(message=message), finished_at=NOW + 1000 + number)
        state = with_trial(state, failed, NOW)
    failures = [line for line in lines(live_table(state)) if line.startswith("failed")]
    assert [line.partition(" OOM")[0].split("   ")[1] for line in failures] == ["#11 and 2 earlier", "#10", "#7"]
    assert "OOM in update (host memory)" in failures[0]


def test_a_trial_that_ends_is_no_longer_running_and_joins_the_best(state: LiveState) -> None:
    state = with_trial(state, faster(5, 1.0, micro_batch_size=4, gradient_checkpointing=False), NOW)
    drawn = lines(live_table(state))
    assert any(line.startswith("running  nothing") for line in drawn)
    assert next(line for line in drawn if line.startswith("#")).startswith("#5")


def test_a_configuration_measured_thrice_has_one_row(state: LiveState) -> None:
    again = faster(6, 5.0, micro_batch_size=4, gradient_accumulation_steps=2)
    state = with_trial(with_trial(state, again, NOW), replace(again, number=7), NOW)
    rows = [line for line in lines(live_table(state)) if line.startswith("#")]
    assert sum(row.startswith("#1 x3") for row in rows) == 1


def test_events_that_trials_show_leave_no_message(state: LiveState) -> None:
    state = with_event(state, factories.event("trial_started", "trial 5 started"), NOW)
    assert state.message == ""
    state = with_event(state, factories.event("swept", "ended process 17, left by an earlier run"), NOW)
    assert "ended process 17" in text(live_table(state))


def test_before_anything_is_measured() -> None:
    drawn = text(live_table(begin(factories.study(), [], Budget(), NOW)))
    assert "nothing measured yet" in drawn
    assert "running  nothing" in drawn


def test_drawing_changes_nothing(state: LiveState) -> None:
    before = replace(state)
    live_table(state)
    assert state == before


hostile = st.text(max_size=120) | st.sampled_from(["\x1b[31m" * 5, "模型" * 60, "x" * 300, "a\nb\nc"])


@given(hostile, hostile, hostile, st.integers(0, 10**7), st.floats(1e-3, 1e6), st.integers(24, 80), st.floats(0, 1e8))
@examples(25, 60, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_makes_it_wider_or_steers_the_terminal(
    name: str, message: Any, value: Any, number: Any, seconds: float, width: int, spent: Any
) -> None:
    spec = factories.study_spec(name)
    study = factories.study(spec=replace(spec, workload=factories.workload(model=name)))
    odd = factories.configuration(attn_implementation=value, optimizer=value, micro_batch_size=number)
    trials = [
        factories.finished(0, cycle_seconds=seconds),
        factories.finished(number + 1, cycle_seconds=seconds / 3, configuration=odd),
        factories.failed(number + 2, factories.oom(message=message), configuration=odd),
    ]
    state = begin(study, trials, Budget(wall_s=1e7, max_trials=number, gpu_hours=1e6), NOW, legal=number)
    state = with_event(state, factories.event("swept", message), NOW)
    state = with_phase(state, running(number + 3, configuration=odd), CurrentPhase(value, 10**9, value), NOW)
    state = with_tick(state, spent, spent, NOW)
    table = live_table(state, width)
    assert widest(table, width) <= width
    assert "\x1b" not in text(table, width)


def test_all_eighty_columns_may_be_used_but_no_more() -> None:
    knobs = {f"knob_number_{n}": "v" * 20 for n in range(20)}
    trials = [factories.finished(0), factories.finished(1, configuration=factories.configuration())]
    base = factories.configuration()
    wide = factories.study(spec=factories.study_spec(baseline=base))
    state = begin(wide, trials, BUDGET, NOW)
    state = with_trial(state, running(2, configuration=base.with_(**knobs)), NOW)
    drawn = text(live_table(state))
    assert widest(live_table(state)) <= 80
    assert "16 more knobs not shown" in drawn


def test_the_baseline_stays_in_sight_however_many_beat_it(state: LiveState) -> None:
    for number in range(10, 20):
        state = with_trial(state, faster(number, 1.0 + number / 10, logprob_rows=number), NOW)
    drawn = lines(live_table(state))
    rows = [line for line in drawn if line.startswith("#")]
    assert len(rows) == 6
    assert rows[-1].startswith("#0")
    assert "8 more not shown" in drawn
