"""The loop on a fake clock: what ends a study, what is resumed, what is recommended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import (
    Budget,
    Configuration,
    FailureReason,
    Outcome,
    Phase,
    Pool,
    StudySpec,
    StudyStatus,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.ports import Assignment, RunReport, StopToken, Store, Watcher
from autotune.specification.prepare import Prepared
from autotune.store import open_store
from autotune.study.budget import GRACE_S
from autotune.study.loop import StudyLoop, StudyResult
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock, FakeStop, SeenObserver
from tests.support.not_none import not_none
from tests.support.simulated import SimulatedRunner, cycle_seconds, host_bytes, study_loop

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
            "precision": ["fp32", "bf16"],
            "num_generations": [2, 4],
        }
    }
)


class Killed(BaseException):
    """Stands for SIGKILL: nothing below may catch it."""


class House:
    """A study's surroundings: one store and clock, a new loop for each run of the tuner."""

    space = SPACE
    prepared: Prepared | None = None

    def __init__(self, spec: StudySpec | None = None, store: Store | None = None) -> None:
        self.clock = FakeClock()
        self.store = store or open_store(":memory:")
        self.spec = spec or f.study_spec(space=self.space.as_json())
        self.study = self.store.create_study(self.spec, self.clock.now())
        self.observer = SeenObserver()

    def run(self, budget: Budget, stop: FakeStop | None = None, runner: SimulatedRunner | None = None) -> StudyResult:
        self.runner = runner or SimulatedRunner(self.clock)
        return self.loop(budget, stop or FakeStop(), self.runner).run()

    def loop(self, budget: Budget, stop: FakeStop, runner: SimulatedRunner) -> StudyLoop:
        given = {"observer": self.observer, "stop": stop, "prepared": self.prepared}
        return study_loop(self.store, self.study.id, self.clock, budget, runner=runner, **given)


@pytest.fixture(scope="module")
def an_hour() -> StudyResult:
    """Of a study that nothing disturbed."""
    return House().run(Budget(wall_s=3600.0))


@pytest.fixture(scope="module")
def eight() -> House:
    """Eight trials that nothing disturbed."""
    house = House()
    house.run(Budget(max_trials=8))
    return house


def _limited(trials: tuple[Trial, ...]) -> list[Configuration]:
    return [t.configuration for t in trials if t.outcome and t.outcome.reason is FailureReason.OOM]


class Looking(SimulatedRunner):
    """Notes, as each attempt begins, what the user has been shown last."""

    def __init__(self, house: House) -> None:
        super().__init__(house.clock)
        self.shown: list[tuple[int, TrialState, int]] = []
        self._house = house

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        last = self._house.observer.trials[-1]
        self.shown.append((last.number, last.state, len(last.cycles)))
        return super().run(assignment, watcher, stop)


def test_a_trial_is_shown_as_it_starts_and_not_with_its_first_record() -> None:
    house = House()
    runner = Looking(house)
    house.run(Budget(max_trials=3), runner=runner)
    assert len(runner.shown) >= 3
    assert runner.shown == [(number, TrialState.RUNNING, 0) for number in range(len(runner.shown))]


def test_a_study_ends_by_itself_with_a_confirmed_gain(an_hour: StudyResult) -> None:
    row = not_none(an_hour.recommendation).rows[0]
    assert row.confirmed
    assert not_none(row.gain).low > 0
    assert row.configuration["micro_batch_size"] == 4
    assert row.configuration["gradient_checkpointing"] is False
    assert row.configuration["precision"] == "fp32"
    assert row.tokens_per_hour == pytest.approx(3600 * sum(f.LENGTHS) / cycle_seconds(row.configuration))


def test_the_second_row_says_what_more_would_be_possible(an_hour: StudyResult) -> None:
    second = not_none(an_hour.recommendation).rows[1]
    assert second.configuration["precision"] == "bf16"
    assert "precision bf16" in second.title


@pytest.mark.parametrize("minutes", [4, 10, 30])
def test_a_study_keeps_to_its_budget(minutes: int) -> None:
    house = House()
    result = house.run(Budget(wall_s=60.0 * minutes), runner=SimulatedRunner(house.clock, noise=0.05))
    assert house.clock.monotonic() <= 60.0 * minutes + GRACE_S
    assert result.trials
    assert all(t.state.is_finished for t in result.trials)
    assert house.store.spent(house.study.id)[0] == pytest.approx(house.clock.monotonic())


@pytest.mark.parametrize("minutes", [15, 20, 25, 30, 45])
def test_the_search_leaves_time_to_confirm_what_leads(minutes: int) -> None:
    house = House()
    result = house.run(Budget(wall_s=60.0 * minutes), runner=SimulatedRunner(house.clock, noise=0.03))
    first = not_none(result.recommendation).rows[0]
    assert first.confirmed or first.gain is None


def test_no_configuration_is_searched_twice() -> None:
    result = House().run(Budget(wall_s=20_000.0))
    searched = [t.configuration for t in result.trials if t.kind in (TrialKind.BASELINE, TrialKind.SEARCH)]
    assert len(searched) == len(set(searched))
    assert "every legal combination" in result.ended_by


def test_no_trial_after_an_oom_asks_for_more_of_that_pool() -> None:
    house = House()
    limit = int(3.2 * f.GIB)
    result = house.run(Budget(wall_s=20_000.0), runner=SimulatedRunner(house.clock, memory_limit=limit))
    met: list[Configuration] = []
    for trial in result.trials:
        worse = [
            c
            for c in met
            if all(
                trial.configuration[k] == c[k]
                for k in c
                if k != "micro_batch_size" and k != "gradient_accumulation_steps" and k != "steps_per_generation"
            )
            and trial.configuration["micro_batch_size"] >= c["micro_batch_size"]
        ]  # type: ignore[operator]
        assert not worse, f"trial {trial.number} repeats what {worse} showed"
        if trial.outcome and trial.outcome.reason is FailureReason.OOM:
            met.append(trial.configuration)
    assert met
    assert all(host_bytes(c) > limit for c in _limited(result.trials))
    assert all(host_bytes(r.configuration) <= limit for r in not_none(result.recommendation).rows)


def test_a_baseline_that_runs_out_of_memory_gives_a_gain_over_the_reference() -> None:
    hungry = f.configuration(
        micro_batch_size=8, gradient_accumulation_steps=1, steps_per_generation=1, gradient_checkpointing=False
    )
    house = House(f.study_spec(space=SPACE.as_json(), baseline=hungry))
    result = house.run(Budget(wall_s=7200.0), runner=SimulatedRunner(house.clock, memory_limit=4 * f.GIB))
    found = not_none(result.recommendation)
    assert found.baseline.startswith("OOM in update")
    assert found.reference > 0
    assert not_none(result.trials[0].outcome).reason is FailureReason.OOM
    assert found.rows[0].confirmed


def test_when_nothing_beats_the_baseline_the_baseline_is_recommended() -> None:
    best = f.configuration(
        micro_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=2,
        gradient_checkpointing=False,
        precision="bf16",
    )
    house = House(f.study_spec(space=SPACE.as_json(), baseline=best))
    result = house.run(Budget(wall_s=7200.0))
    assert [r.configuration for r in result.recommendation.rows] == [best]
    assert result.recommendation.rows[0].gain is None
    assert any("keep it" in note for note in result.recommendation.notes)


def _sequence(store: Store, study_id: int) -> list[tuple[int, str, str]]:
    return [(t.number, str(t.kind), t.configuration.key) for t in store.trials(study_id)]


@pytest.mark.parametrize(("trial", "cycle"), [(0, 1), (1, 0), (3, 2), (6, 1)])
def test_a_killed_study_goes_on_as_if_it_had_not_been(eight: House, trial: int, cycle: int) -> None:
    killed = House()

    def kill(running: Trial, index: int) -> None:
        if (running.number, index, running.attempt) == (trial, cycle, 1):
            raise Killed

    with pytest.raises(Killed):
        killed.run(Budget(max_trials=8), runner=SimulatedRunner(killed.clock, on_cycle=kill))
    before = killed.store.trial(killed.study.id, trial)
    assert before.state is TrialState.RUNNING
    assert len(before.cycles) == cycle + 1
    spent = killed.clock.monotonic()
    result = killed.run(Budget(max_trials=8), runner=SimulatedRunner(killed.clock))
    assert _sequence(killed.store, killed.study.id) == _sequence(eight.store, eight.study.id)
    assert all(t.state.is_finished for t in result.trials)
    assert killed.store.trial(killed.study.id, trial).attempt == 2
    assert killed.store.spent(killed.study.id)[0] > spent


class Sweeping(SimulatedRunner):
    def sweep(self, study_id: int) -> tuple[int, ...]:
        self.swept = [*getattr(self, "swept", []), study_id]
        return (study_id,)


def test_what_dead_tuners_of_other_studies_left_is_ended_as_well() -> None:
    """It may hold the GPU. A study that is being run keeps its processes."""
    house = House()
    dead, alive, done = (house.store.create_study(replace(house.spec, name=n), 0.0).id for n in ("a", "b", "c"))
    house.store.set_status(done, StudyStatus.DONE)
    runner = Sweeping(house.clock)
    with house.store.lock(alive):
        house.run(Budget(max_trials=1), runner=runner)
    assert runner.swept == [house.study.id, dead]
    assert sum(e.kind == "swept" for e in house.observer.events) == 2


def test_the_budget_counts_over_both_runs() -> None:
    house = House()
    stop = FakeStop()

    def stop_later(trial: Trial, index: int) -> None:
        stop.level = max(stop.level, int(trial.number == 2))

    first = house.run(Budget(wall_s=1800.0), stop, SimulatedRunner(house.clock, on_cycle=stop_later))
    assert first.stopped
    assert first.recommendation is not None
    house.run(Budget(wall_s=1800.0))
    assert house.clock.monotonic() <= 1800.0 + GRACE_S


def test_stopping_once_finishes_the_running_trial() -> None:
    house = House()
    stop = FakeStop()

    def press(trial: Trial, index: int) -> None:
        stop.level = 1 if trial.number == 1 else 0

    result = house.run(Budget(max_trials=9), stop, SimulatedRunner(house.clock, on_cycle=press))
    assert [t.state for t in result.trials] == [TrialState.COMPLETE, TrialState.COMPLETE]
    assert result.ended_by == "stopped by the user"
    assert result.recommendation is not None


def test_stopping_twice_keeps_every_cycle_and_the_trial_for_later() -> None:
    house = House()
    stop = FakeStop()

    def press(trial: Trial, index: int) -> None:
        stop.level = 2 if trial.number == 1 else 0

    result = house.run(Budget(max_trials=3), stop, SimulatedRunner(house.clock, on_cycle=press))
    assert result.trials[1].state is TrialState.WAITING
    again = house.run(Budget(max_trials=3))
    assert again.trials[1].state is TrialState.COMPLETE
    assert again.trials[1].attempt == 2
    assert sum(t.kind in (TrialKind.BASELINE, TrialKind.SEARCH) for t in again.trials) == 3


def test_infra_is_repeated_once_and_then_recorded() -> None:
    house = House()

    def broken(trial: Trial) -> Outcome | None:
        return Outcome(FailureReason.INFRA, message="a stranger took the GPU") if trial.number == 1 else None

    result = house.run(Budget(max_trials=3), runner=SimulatedRunner(house.clock, tamper=broken))
    assert [n for n, *_ in house.runner.ran].count(1) == 2
    assert not_none(result.trials[1].outcome).reason is FailureReason.INFRA


def _drowns_while_compiling(house: House, *, attempts: int, compiling: int) -> SimulatedRunner:
    """Trial 1 runs out of host memory in its first ``attempts``; a compiler runs in the first ``compiling`` of them."""

    def drown(trial: Trial) -> Outcome | None:
        if trial.number != 1 or trial.attempt > attempts:
            return None
        return Outcome(FailureReason.OOM, Phase.GENERATE.value, Pool.HOST, "the process tree passed its limit")

    return SimulatedRunner(house.clock, tamper=drown, compiles=lambda t: t.number == 1 and t.attempt <= compiling)


def test_what_ran_out_of_memory_while_it_was_compiled_is_tried_once_more_and_taught_nothing() -> None:
    house = House()
    runner = _drowns_while_compiling(house, attempts=1, compiling=1)
    result = house.run(Budget(max_trials=3), runner=runner)
    assert [n for n, *_ in runner.ran].count(1) == 2
    assert result.trials[1].state is TrialState.COMPLETE
    assert result.trials[1].attempt == 2
    messages = [e.message for e in house.observer.events if e.kind == "trial_repeated"]
    assert len(messages) == 1
    assert "a compiler ran" in messages[0]
    assert not [e for e in house.observer.events if e.kind == "ruled_out"]


@pytest.mark.parametrize(("attempts", "compiling", "ran"), [(2, 2, 2), (2, 1, 2), (1, 0, 1)])
def test_what_runs_out_of_memory_again_or_without_a_compiler_is_out_of_memory(
    attempts: int, compiling: int, ran: int
) -> None:
    house = House()
    runner = _drowns_while_compiling(house, attempts=attempts, compiling=compiling)
    result = house.run(Budget(max_trials=3), runner=runner)
    assert [n for n, *_ in runner.ran].count(1) == ran
    assert not_none(result.trials[1].outcome).reason is FailureReason.OOM


def test_a_study_in_which_everything_crashes_alike_stops_early() -> None:
    house = House()
    crash = Outcome(FailureReason.CRASH, message="libfoo.so is missing")
    result = house.run(Budget(wall_s=36_000.0), runner=SimulatedRunner(house.clock, tamper=lambda _: crash))
    assert len(result.trials) <= 4
    assert "libfoo" in result.ended_by
    assert result.recommendation is None


def test_more_budget_continues_a_finished_study() -> None:
    house = House()
    first = house.run(Budget(max_trials=3))
    more = house.run(Budget(max_trials=6))
    assert [t.configuration for t in more.trials[: len(first.trials)]] == [t.configuration for t in first.trials]
    assert sum(t.kind in (TrialKind.BASELINE, TrialKind.SEARCH) for t in more.trials) == 6


def _stopped(result: StudyResult) -> list[Trial]:
    return [t for t in result.trials if t.state is TrialState.PRUNED]


def test_a_trial_that_cannot_win_is_stopped_never_named_and_frees_budget() -> None:
    house, full = House(), House()
    budget = Budget(wall_s=1500.0)
    result = house.run(budget)
    stopped = _stopped(result)
    assert stopped
    for trial in stopped:
        assert trial.kind is TrialKind.SEARCH
        assert trial.tokens_per_hour is None
        best = house.store.trial(house.study.id, trial.outcome.ceiling.rival)
        assert best.number < trial.number
        true_speed = 3600 * sum(f.LENGTHS) / cycle_seconds(trial.configuration)
        assert true_speed < trial.at_most < trial.outcome.ceiling.best_at_least < best.tokens_per_hour
    found = not_none(result.recommendation)
    assert not {t.configuration for t in stopped} & {r.configuration for r in found.rows}
    eight = full.run(budget, runner=DeafRunner(full.clock))
    counts = [sum(t.kind is TrialKind.SEARCH for t in r.trials) for r in (result, eight)]
    assert counts[0] > counts[1]


class DeafRunner(SimulatedRunner):
    """Its trials make all their cycles, whatever they are told."""

    ends_early = False


def test_every_search_trial_says_when_it_may_end_and_no_other_does(an_hour: StudyResult) -> None:
    looks = {t.kind: t.protocol.looks for t in an_hour.trials}
    assert looks == {TrialKind.BASELINE: (), TrialKind.SEARCH: (3, 5, 8), TrialKind.CONFIRM: ()}
    confirmed = [t for t in an_hour.trials if t.kind is TrialKind.CONFIRM]
    assert confirmed
    assert all(len(t.speed_cycles()) == 3 for t in confirmed)
    assert all(t.state is TrialState.COMPLETE for t in confirmed)


def test_the_best_is_not_discarded_on_a_noisy_machine() -> None:
    best = f.configuration(
        micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=2, gradient_checkpointing=False
    )
    for seed in range(3):
        house = House(f.study_spec(space=SPACE.as_json(), seed=seed))
        result = house.run(Budget(max_trials=12), runner=SimulatedRunner(house.clock, noise=0.05))
        assert best not in {t.configuration for t in _stopped(result)}


def test_a_baseline_the_budget_broke_off_is_measured_first_when_there_is_more() -> None:
    house = House()
    first = house.run(Budget(wall_s=60.0))
    assert [(t.kind, t.state) for t in first.trials] == [(TrialKind.BASELINE, TrialState.FAIL)]
    assert first.recommendation is None
    result = house.run(Budget(wall_s=3600.0))
    kinds = [t.kind for t in result.trials]
    assert kinds[:3] == [TrialKind.BASELINE, TrialKind.BASELINE, TrialKind.SEARCH]
    assert kinds.count(TrialKind.BASELINE) == 2
    assert (result.recommendation.baseline, result.recommendation.reference) == ("ok", 1)
    assert result.recommendation.rows[0].gain is not None
