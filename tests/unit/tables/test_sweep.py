"""A sweep through the study loop, on a fake clock: what is run, what is run again, what a kill costs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from autotune.domain import SWEEP, Budget, Configuration, FailureReason, Trial, TrialKind, TrialState
from autotune.proposals.sweep import SweepProposer
from autotune.store import open_store
from autotune.study.budget import Spent
from autotune.study.loop import StudyLoop, StudyResult
from autotune.study.schedule import NextTrial
from autotune.tables import repeats
from autotune.tables.sweep import ALL_THERE, Again, fastest, is_row, owed, steps
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock, FakeStop, SeenObserver
from tests.support.simulated import SimulatedRunner, host_bytes

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
        }
    }
)
ROWS = 8
AGAIN = Again(top=2, times=3)


class Killed(BaseException):
    """Stands for SIGKILL."""


class House:
    """A sweep's surroundings: one store and clock, a new loop for each run of the tuner."""

    def __init__(self, rows: int | None = None) -> None:
        self.clock, self.store, self.observer = FakeClock(), open_store(":memory:"), SeenObserver()
        self.spec = f.study_spec(space=SPACE.as_json(), sampler=SWEEP)
        self.study = self.store.create_study(self.spec, self.clock.now())
        self.rows = rows
        self.ran: list[tuple[int, str, Configuration]] = []

    def run(
        self,
        budget: Budget | None = None,
        *,
        again: Again = AGAIN,
        stop: FakeStop | None = None,
        runner: SimulatedRunner | None = None,
    ) -> StudyResult:
        made = runner or SimulatedRunner(self.clock)
        loop = StudyLoop(
            study=self.store.study(self.study.id),
            budget=budget or Budget(),
            store=self.store,
            proposer=SweepProposer(
                SPACE, self.spec.baseline, self.spec.resources, rows=self.rows, same_learning=False, seed=0
            ),
            runner=made,
            clock=self.clock,
            observer=self.observer,
            stop=stop or FakeStop(),
            directory_of=lambda t: Path("runs") / str(t.number) / str(t.attempt),
            steps=steps(again),
        )
        try:
            return loop.run()
        finally:
            self.ran += made.ran


def rows_of(result: StudyResult) -> list[Trial]:
    return [t for t in result.trials if is_row(t)]


@pytest.fixture(scope="module")
def house() -> House:
    """Whose table is whole."""
    made = House()
    made.run()
    return made


@pytest.fixture(scope="module")
def whole(house: House) -> StudyResult:
    """What the same command says then."""
    return house.run()


def test_every_row_is_measured_once_in_full_and_nothing_is_confirmed(whole: StudyResult) -> None:
    rows = rows_of(whole)
    complete = {SPACE.complete(t.configuration, f.resources()) for t in rows}
    assert len(rows) == len(complete) == ROWS
    assert rows[0].kind is TrialKind.BASELINE
    assert {t.state for t in rows} == {TrialState.COMPLETE}
    assert {len(t.speed_cycles()) for t in rows} == {3}
    assert all(not t.protocol.looks for t in rows)
    assert not any(t.kind is TrialKind.CONFIRM for t in whole.trials)
    assert whole.ended_by == ALL_THERE


def test_what_runs_out_of_memory_is_a_row_and_rules_nothing_out() -> None:
    house = House()
    limit = int(3.2 * f.GIB)
    result = house.run(runner=SimulatedRunner(house.clock, memory_limit=limit))
    rows = rows_of(result)
    failed = [t for t in rows if t.state is TrialState.FAIL]
    assert len(rows) == ROWS
    assert {t.configuration for t in failed} == {t.configuration for t in rows if host_bytes(t.configuration) > limit}
    assert len(failed) > 1
    for trial in failed:
        assert trial.outcome is not None
        assert (trial.outcome.reason, trial.outcome.phase) == (FailureReason.OOM, "update")
        assert trial.seconds
    assert not any(e.kind == "ruled_out" for e in house.observer.events)


def test_the_fastest_are_repeated_in_rounds_that_turn_round(whole: StudyResult) -> None:
    again = [t for t in whole.trials if t.source == repeats.SOURCE]
    best = list(fastest(whole.trials, AGAIN.top))
    assert [t.configuration for t in again] == [*best, *best[::-1], *best]
    assert min(t.number for t in again) > max(t.number for t in rows_of(whole))
    assert owed(whole.trials, AGAIN) == ()


@pytest.mark.parametrize("killed_at", [1, 9])
def test_a_killed_sweep_goes_on_and_no_row_that_is_there_is_run_again(whole: StudyResult, killed_at: int) -> None:
    house = House()

    def kill(trial: Trial, index: int) -> None:
        if trial.number == killed_at and index == 1:
            raise Killed

    with pytest.raises(Killed):
        house.run(runner=SimulatedRunner(house.clock, on_cycle=kill))
    there = sum(t.state.is_finished for t in house.store.trials(house.study.id))
    result = house.run()
    starts = Counter(number for number, _, _ in house.ran)
    assert there == killed_at
    assert starts.pop(killed_at) == 2
    assert set(starts.values()) == {1}
    assert [t.configuration for t in result.trials] == [t.configuration for t in whole.trials]


def test_the_same_command_on_a_whole_table_runs_nothing(house: House, whole: StudyResult) -> None:
    assert whole.ended_by == ALL_THERE
    assert len(house.ran) == len(whole.trials)


def test_more_rows_add_to_those_that_are_there() -> None:
    house = House(rows=5)
    few = rows_of(house.run(again=Again(0, 1)))
    house.rows = None
    everything = rows_of(house.run(again=Again(0, 1)))
    assert len(few) == 5
    assert everything[:5] == few
    assert len({t.configuration for t in everything}) == len(everything) == ROWS


def test_a_budget_ends_it_between_rows_and_more_goes_on() -> None:
    house = House()
    result = house.run(Budget(wall_s=400.0))
    assert 1 < len(result.trials) < ROWS
    assert sum(not t.feasible for t in result.trials) <= 1
    assert house.clock.monotonic() <= 460.0
    assert result.ended_by == "the time budget is used up"
    held = [t for t in rows_of(house.run()) if t.feasible]
    assert len({t.configuration for t in held}) == len(held) == ROWS


def test_a_repeat_that_fails_is_not_run_for_ever() -> None:
    house = House()

    def breaks(trial: Trial) -> object:
        return f.failure(FailureReason.CRASH) if trial.kind is TrialKind.VERIFY else None

    result = house.run(runner=SimulatedRunner(house.clock, tamper=breaks))  # type: ignore[arg-type]
    counted = Counter(t.configuration for t in result.trials if t.source == repeats.SOURCE)
    assert result.ended_by == ALL_THERE
    assert set(counted.values()) == {AGAIN.times}


@pytest.mark.parametrize(("broken", "there", "ended"), [(1, AGAIN.times, ALL_THERE), (99, 0, "configuration's fault")])
def test_a_repeat_the_machine_broke_is_run_again_but_not_for_ever(broken: int, there: int, ended: str) -> None:
    """Broken twice (the loop tries each twice itself) it would be missing from the table for good."""
    house, left = House(), [2 * broken]

    def breaks(trial: Trial) -> object:
        if trial.kind is not TrialKind.VERIFY or not left[0]:
            return None
        left[0] -= 1
        return f.failure(FailureReason.INFRA)

    result = house.run(runner=SimulatedRunner(house.clock, tamper=breaks))  # type: ignore[arg-type]
    again = [t for t in result.trials if t.source == repeats.SOURCE]
    best = fastest(result.trials, AGAIN.top)
    assert ended in result.ended_by
    assert {c: sum(t.feasible for t in again if t.configuration == c) for c in best} == dict.fromkeys(best, there)


def restless(number: int) -> Trial:
    return f.finished(number).with_(cycles=tuple(f.cycle(i, noisy=True, outside_cpu=0.2) for i in range(6)))


@pytest.mark.parametrize("disturbed", [True, False])
def test_where_cycles_are_mostly_disturbed_rows_repeat_none_and_the_fastest_do(disturbed: bool) -> None:
    """A row that repeated cycles all the same would take half as long again and be no more exact."""
    study = f.study()
    first = restless(0) if disturbed else f.finished(0)
    propose = SweepProposer(SPACE, study.spec.baseline, study.spec.resources, rows=2, same_learning=False, seed=0)
    decide = steps(Again(1, 1))
    step = decide(study, [first], Budget(), Spent(0.0, 0.0), propose)
    assert isinstance(step, NextTrial)
    assert step.draft.protocol.max_repeats == (0 if disturbed else 3)
    measured = f.finished(1, configuration=step.draft.configuration, cycle_seconds=1.0)
    again = decide(study, [first, measured], Budget(), Spent(0.0, 0.0), propose)
    assert isinstance(again, NextTrial)
    assert (again.draft.kind, again.draft.protocol.max_repeats) == (TrialKind.VERIFY, 3)


def test_when_everything_fails_alike_it_stops_and_says_so() -> None:
    house = House()
    runner = SimulatedRunner(house.clock, tamper=lambda _: f.failure(FailureReason.CRASH))
    result = house.run(runner=runner)
    assert "all failed alike" in result.ended_by
    assert len(result.trials) == 4
