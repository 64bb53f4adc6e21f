"""Budgets, the ledger, and predictions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Budget, CycleKind, FailureReason, Protocol, Trial, TrialKind, TrialState
from autotune.store import open_store
from autotune.study.budget import READ_AGAIN, Cost, Ledger, Spent, limit_reached, predict, predict_search, remaining_s
from tests.support import factories as f
from tests.support.fakes import FakeClock
from tests.support.not_none import not_none


def test_the_first_limit_reached_is_named() -> None:
    trials = [f.finished(0), f.finished(1)]
    assert limit_reached(Budget(), Spent(1e9, 1e9), trials) is None
    assert "time" in (limit_reached(Budget(wall_s=10), Spent(10, 0), trials) or "")
    assert "GPU" in (limit_reached(Budget(gpu_hours=1), Spent(0, 3600), trials) or "")
    assert limit_reached(Budget(max_trials=1), Spent(0, 0), trials) == "the limit of 1 trial is reached"


def test_confirmations_do_not_count_against_max_trials() -> None:
    trials = [f.finished(0), f.finished(1, kind=TrialKind.CONFIRM)]
    assert limit_reached(Budget(max_trials=2), Spent(0, 0), trials) is None


def test_trials_that_the_machine_ended_do_not_count_against_max_trials() -> None:
    failed = f.finished(1, outcome=f.failure(FailureReason.INFRA))
    assert limit_reached(Budget(max_trials=2), Spent(0, 0), [f.finished(0), failed]) is None
    failed = f.finished(1, outcome=f.failure(FailureReason.CRASH))
    assert limit_reached(Budget(max_trials=2), Spent(0, 0), [f.finished(0), failed]) is not None


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 8))
def test_remaining_is_the_tightest_time_limit(wall: float, spent: float, gpus: int) -> None:
    budget = Budget(wall_s=wall, gpu_hours=1.0)
    left = remaining_s(budget, Spent(spent, spent * gpus), gpus)
    assert left == min(wall - spent, (3600.0 - spent * gpus) / gpus)


def test_no_time_limit_means_no_remaining() -> None:
    assert remaining_s(Budget(max_trials=3), Spent(5, 5), 1) is None
    assert remaining_s(Budget(gpu_hours=3), Spent(5, 0), 0) is None


def test_prediction_comes_from_the_configuration_itself_when_it_has_run() -> None:
    slow = f.configuration(gradient_checkpointing=True, logprob_rows=1)
    trials = [f.finished(0, cycle_seconds=2.0), f.finished(1, configuration=slow, cycle_seconds=20.0)]
    own = not_none(predict(trials, slow))
    assert own.cycle == 20.0
    assert predict([], slow) is None
    assert predict([f.failed(0)], slow) is None


@pytest.mark.parametrize("how", ["timeout", "budget"])
def test_a_trial_that_was_cut_corrects_the_forecast_of_the_next(how: str) -> None:
    baseline = f.finished(0, cycle_seconds=10.0)
    kinds = (CycleKind.WARMUP, CycleKind.NATURAL)
    cycles = tuple(f.cycle(i, seconds=40.0, cycle_kind=kind) for i, kind in enumerate(kinds))
    outcome = f.failure(FailureReason.TIMEOUT) if how == "timeout" else None
    cut = (f.failed(1, outcome) if outcome else f.broken_off(1)).with_(cycles=cycles, seconds=110.0)
    before, after = (predict_search(trials, f.numbered(2), kept=False) for trials in ([baseline], [baseline, cut]))
    assert (before.cycle, not_none(after).cycle) == (10.0, 25.0)
    own = not_none(predict([cut], cut.configuration))
    assert (own.cycle, own.maximum_cycle) == (40.0, 40.0)
    assert own.start_up == 3.5, "the cycle it was cut in is no start"
    assert predict([baseline, f.failed(1)], f.numbered(2)) == predict([baseline], f.numbered(2)), "memory tells no time"
    assert predict([cut.with_(cycles=())], cut.configuration) is None


def test_cost_counts_every_cycle_of_the_protocol() -> None:
    cost = Cost(start_up=10.0, cycle=2.0, maximum_cycle=5.0)
    assert cost.total(f.protocol(warmup=1, natural=2, recorded=3, maximum=1)) == 10 + 5 * 2 + 2 * 5
    assert cost.first_measurement(f.protocol(warmup=1)) == 10 + 5 + 2


def test_start_up_is_what_is_left_beside_the_cycles() -> None:
    trial = f.finished(0, cycle_seconds=10.0, seconds=50.0)
    warm = f.cycle(9, seconds=4.0, cycle_kind=CycleKind.WARMUP)
    cost = not_none(predict([trial.with_(cycles=(*trial.cycles, warm))]))
    assert (cost.start_up, cost.maximum_cycle) == (50.0 - 34.0, 4.0)


def test_ledger_adds_up_over_runs_and_survives_being_killed() -> None:
    store = open_store(":memory:")
    study = store.create_study(f.study_spec(), f.NOW)
    clock = FakeClock()
    first = Ledger(store, clock, study.id, gpus=2)
    clock.advance(10.0)
    first.persist()
    clock.advance(0.5)
    first.persist()  # Within a second of the last: not written, and then the tuner is killed.
    second = Ledger(store, clock, study.id, gpus=2)
    assert second.spent() == Spent(10.0, 20.0)
    clock.advance(5.0)
    second.persist(force=True)
    assert store.spent(study.id) == (15.0, 30.0)


def test_a_trial_that_may_be_ended_early_is_predicted_by_what_such_trials_took() -> None:
    looks = f.protocol(recorded=8, looks=(3, 5, 8))
    nothing_known = not_none(predict([f.finished(0, cycle_seconds=2.0)]))
    assert nothing_known.total(looks) == nothing_known.total(f.protocol(recorded=3))
    assert nothing_known.total(f.protocol(recorded=8)) > nothing_known.total(looks)
    stopped = [
        f.finished(n, cycle_seconds=[2.0] * made, protocol=looks, state=TrialState.PRUNED)
        for n, made in enumerate((1, 1, 2, 5), start=1)
    ]
    cost = not_none(predict([f.finished(0, cycle_seconds=2.0), *stopped]))
    assert cost.looked == 5
    assert cost.total(looks) == cost.total(f.protocol(recorded=5))
    assert predict(stopped) is not None


def test_a_start_up_a_used_process_was_spared_is_expected_all_the_same() -> None:
    """Confirmation runs in fresh processes: a reserve made of warm start-ups would be too small."""

    def ran(number: int, seconds: float, rollout: str, startup: dict[str, float]) -> Trial:
        trial = f.finished(number, configuration=f.configuration(rollout_engine=rollout), cycle_seconds=1.0)
        cycles = sum(c.seconds for c in trial.cycles)
        return trial.with_(seconds=cycles + seconds, startup=startup)

    with_engine = {"import": 12.0, "engine": 20.0, "load": 1.0}
    trials = [
        ran(0, 9.0, "transformers", {"import": 7.0, "engine": 1.0}),
        ran(1, 40.0, "vllm", with_engine),
        ran(2, 5.0, "vllm", {"import": 0.0, "engine": 0.5, "load": 1.0}),
    ]
    warm, cold = predict(trials[2:] + trials[:2], trials[2].configuration), predict(trials[:2], trials[1].configuration)
    assert cold.start_up == pytest.approx(40.0)
    assert warm.start_up == pytest.approx(40.0)  # of the two alike, the upper
    alone = not_none(predict([trials[0], trials[2]], trials[2].configuration))
    assert alone.start_up == pytest.approx(5.0)  # nothing is known of that engine's cold start


def test_where_the_clock_guard_had_cycles_repeated_it_is_expected_to_again() -> None:
    """A machine that changes its speed: a reserve without repeats would not hold the confirmation."""

    def ran(number: int, repeated: int) -> Trial:
        trial = f.finished(number, cycle_seconds=2.0)
        lost = tuple(f.cycle(9 + i, seconds=2.0, accepted=False) for i in range(repeated))
        cycles = (*trial.cycles, *lost)
        return trial.with_(cycles=cycles, seconds=5.0 + sum(c.seconds for c in cycles))

    calm, restless = predict([ran(n, 0) for n in range(4)]), predict([ran(n, (0, 2, 3, 3)[n]) for n in range(4)])
    assert calm.start_up == restless.start_up == pytest.approx(5.0)
    for allowed, expected in ((3, 4.0), (1, 2.0), (0, 0.0)):  # two on average
        asked = Protocol(warmup=1, recorded=3, max_repeats=allowed)
        assert restless.total(asked) - calm.total(asked) == pytest.approx(expected)


def started(number: int, engine_s: float, spawn: bool = True, **knobs: object) -> Trial:
    """A trial of one cycle of a second, that took 3 s beside its engine's start."""
    trial = f.finished(number, configuration=f.configuration(rollout_engine="vllm", **knobs), cycle_seconds=1.0)
    cycles = sum(c.seconds for c in trial.cycles)
    startup = {"engine": engine_s, **({"spawn": 0.1} if spawn else {})}
    return trial.with_(seconds=cycles + engine_s + 3.0, startup=startup)


def test_that_one_engine_compiled_says_nothing_of_those_that_do_not() -> None:
    plain, compiled = started(0, 2.0, enforce_eager=True), started(1, 50.0, enforce_eager=False)
    for trial in (plain, started(0, 2.0, spawn=False, enforce_eager=True)):
        cost = not_none(predict([trial, compiled], trial.configuration))
        assert cost.start_up == pytest.approx(5.0)


def test_what_was_compiled_is_expected_to_be_read_once_a_start_has_shown_it() -> None:
    first = started(0, 50.0, enforce_eager=False)
    alone = not_none(predict([first], first.configuration))
    assert alone.start_up == pytest.approx(3.0 + READ_AGAIN * 50.0)
    other = started(1, 6.0, enforce_eager=False, micro_batch_size=2)
    cost = not_none(predict([first, other], first.configuration))
    assert cost.start_up == pytest.approx(9.0)
    used = started(2, 0.1, spawn=False, enforce_eager=False, micro_batch_size=1)
    again = predict([first, other, used], first.configuration)  # a kept engine is no start
    assert again == cost


def test_a_configuration_that_never_ran_may_have_to_compile() -> None:
    first, other = started(0, 50.0, enforce_eager=False), started(1, 6.0, enforce_eager=False, micro_batch_size=2)
    new = f.configuration(rollout_engine="vllm", enforce_eager=False, micro_batch_size=1)
    cost = not_none(predict([first, other], new))
    assert cost.start_up == pytest.approx(53.0)


def test_the_start_of_an_engine_a_leader_never_had_is_not_counted_twice() -> None:
    """A leader measured in a used process was once expected to need its engine's first start twice over."""
    first = started(0, 50.0, enforce_eager=False)
    used = started(1, 0.5, spawn=False, enforce_eager=False, micro_batch_size=1)
    cost = not_none(predict([first, used], used.configuration))
    assert cost.start_up == pytest.approx(0.1 + 3.0 + READ_AGAIN * 50.0)


def test_a_leader_measured_in_a_used_process_is_expected_to_need_a_start_of_its_own() -> None:
    fresh, used = started(0, 2.0, enforce_eager=True), started(1, 2.0, spawn=False, enforce_eager=True)
    fresh = fresh.with_(startup={"spawn": 9.0, "engine": 2.0}, configuration=used.configuration.with_(logprob_rows=1))
    assert not_none(predict([fresh, used], used.configuration)).start_up == pytest.approx(3.0 + 2.0 + 9.0)


def test_a_search_trial_in_a_living_process_is_expected_to_be_spared_its_start() -> None:
    first = started(0, 50.0, enforce_eager=False)
    new = first.configuration.with_(micro_batch_size=8)
    kept, fresh = not_none(predict_search([first], new, kept=True)), not_none(predict_search([first], new, kept=False))
    assert kept.start_up == pytest.approx(2.9)
    assert fresh.start_up == pytest.approx(53.0)
    used = started(1, 0.5, spawn=False, enforce_eager=False, micro_batch_size=1)
    again = not_none(predict_search([first, used], new, kept=True))
    assert again.start_up == pytest.approx(3.5)


def test_imports_that_could_not_be_shared_are_not_paid_by_the_next_start() -> None:
    """On a GPU they took 20 s once for each engine; with them no confirmation seemed to fit, or nothing beside it."""
    baseline = f.finished(0, cycle_seconds=1.0).with_(seconds=3.0 + 8.0, startup={"spawn": 6.0, "load": 1.0})
    tried = started(1, 50.0, enforce_eager=False)
    tried = tried.with_(seconds=(tried.seconds or 0.0) + 20.0)
    new = tried.configuration.with_(micro_batch_size=8)
    unnamed = 53.0 - sum(started(1, 50.0, enforce_eager=False).startup.values())
    spared = 20.0 + unnamed - min(1.0, 20.0 + unnamed)
    for kept in (True, False):
        before, after = (
            predict_search([baseline, t], new, kept=kept) for t in (started(1, 50.0, enforce_eager=False), tried)
        )
        assert not_none(after).start_up == pytest.approx(before.start_up), "whatever it took beyond the least is gone"
    own = not_none(predict([baseline, tried], tried.configuration))
    assert own.start_up == pytest.approx(73.0 - spared - (1 - READ_AGAIN) * 50.0)
    again = started(2, 50.0, enforce_eager=False, micro_batch_size=2)
    again = again.with_(seconds=(again.seconds or 0.0) + 20.0)
    paid = not_none(predict_search([baseline, tried, again], new, kept=False))
    assert paid.start_up == pytest.approx(73.0), "what the second start paid as well is paid always"
