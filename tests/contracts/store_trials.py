"""What every ``Store`` must do with trials and what their attempts measure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from autotune.domain import (
    Ceiling,
    CycleKind,
    FailureReason,
    Outcome,
    Peaks,
    PriorKnowledge,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.errors import FinishedTrialError, NotFoundError, StoreError
from autotune.ports import Store
from tests.contracts.store_cases import HOSTILE, TRIAL_CHANGES, begin, finish
from tests.support import factories as make
from tests.support.not_none import not_none
from trainer.child.contract import StartupPart


class TrialTests:
    def test_a_draft_becomes_a_waiting_trial(self, store: Store) -> None:
        study = store.create_study(make.study_spec(), 1.0).id
        draft = make.draft(TrialKind.CONFIRM, pair=3, configuration=make.numbered(4), source="confirm")
        trial = store.add_trial(study, draft, 7.0)
        assert trial == Trial(
            study, 0, draft.kind, draft.configuration, draft.protocol, 8, pair=3, source="confirm", created_at=7.0
        )
        assert store.trial(study, 0) == trial

    def test_numbers_have_no_gaps_and_are_each_studys_own(self, store: Store) -> None:
        first, second = (store.create_study(make.study_spec(n), 1.0).id for n in "ab")
        numbers = [store.add_trial(s, make.draft(), 1.0).number for s in (first, first, second, first, second)]
        assert numbers == [0, 1, 0, 2, 1]
        assert [t.number for t in store.trials(first)] == [0, 1, 2]

    def test_trials_can_be_read_from_a_number_on(self, store: Store) -> None:
        study, other = begin(store), begin(store, name="other")
        for owner in (study, other) * 4:
            number = store.add_trial(owner, make.draft(), 1.0).number
            store.start_attempt(owner, number, 2.0)
            store.add_startup(owner, number, 1, make.startup())
            store.add_cycle(owner, number, 1, make.cycle())
            finish(store, owner, number)
        every = store.trials(study)
        assert len(every) >= 4
        assert all(t.cycles and t.startup for t in every[1:])
        for since in range(6):
            assert store.trials(study, since) == every[since:]
            for until in range(6):
                assert store.trials(study, since, until) == every[since:until]

    @pytest.mark.parametrize("kind", TrialKind)
    def test_every_kind_is_kept(self, store: Store, kind: TrialKind) -> None:
        study = store.create_study(make.study_spec(), 1.0).id
        assert store.add_trial(study, make.draft(kind), 1.0).kind is kind

    def test_an_attempt_runs_and_ends(self, store: Store) -> None:
        study = store.create_study(make.study_spec(), 1.0).id
        store.add_trial(study, make.draft(), 2.0)
        running = store.start_attempt(study, 0, 3.0)
        assert (running.state, running.attempt, running.started_at) == (TrialState.RUNNING, 1, 3.0)
        assert (running.seconds, running.outcome, running.finished_at) == (None, None, None)
        ended = finish(store, study, state=TrialState.FAIL, outcome=make.oom(), now=8.0, seconds=5.0, host_peak=77)
        assert (ended.state, ended.outcome, ended.finished_at) == (TrialState.FAIL, make.oom(), 8.0)
        assert (ended.seconds, ended.watchdog_peak, ended.started_at) == (5.0, 77, 3.0)
        assert store.trial(study, 0) == ended == store.trials(study)[0]

    @pytest.mark.parametrize("state", [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL])
    @pytest.mark.parametrize("change", TRIAL_CHANGES)
    def test_a_finished_trial_never_changes(self, store: Store, state: TrialState, change: str) -> None:
        study = begin(store)
        before, revision = finish(store, study, state=state), store.study(study).revision
        with pytest.raises(FinishedTrialError, match=f"trial 0 is {state}"):
            TRIAL_CHANGES[change](store, 0)
        assert store.trial(study, 0) == before
        assert store.study(study).revision == revision
        assert store.notes(study, 0) == ()

    @pytest.mark.parametrize("change", ["requeue", "finish_trial"])
    def test_a_waiting_trial_cannot_end(self, store: Store, change: str) -> None:
        study = store.create_study(make.study_spec(), 1.0).id
        waiting = store.add_trial(study, make.draft(), 1.0)
        with pytest.raises(FinishedTrialError, match="trial 0 is WAITING"):
            TRIAL_CHANGES[change](store, 0)
        assert store.trial(study, 0) == waiting

    def test_a_running_trial_cannot_be_started(self, store: Store) -> None:
        study = begin(store)
        with pytest.raises(FinishedTrialError, match="trial 0 is RUNNING"):
            store.start_attempt(study, 0, 1.0)
        assert store.trial(study, 0).attempt == 1

    @pytest.mark.parametrize("state", [TrialState.WAITING, TrialState.RUNNING])
    def test_a_trial_cannot_end_as_unfinished(self, store: Store, state: TrialState) -> None:
        study = begin(store)
        with pytest.raises(StoreError, match=state.value):
            finish(store, study, state=state)
        assert store.trial(study, 0).state is TrialState.RUNNING

    @pytest.mark.parametrize("change", TRIAL_CHANGES)
    def test_an_unknown_trial_is_not_found(self, store: Store, change: str) -> None:
        begin(store)
        with pytest.raises(NotFoundError, match="no trial 1"):
            TRIAL_CHANGES[change](store, 1)

    def test_a_requeued_trial_keeps_its_number_and_seconds_and_starts_clean(self, store: Store) -> None:
        study = begin(store)
        store.add_startup(study, 0, 1, make.startup())
        store.add_worst_case(study, 0, 1, make.worst_case())
        store.add_note(study, 0, 1, make.note())
        assert store.trial(study, 0).worst_case_passed
        waiting = store.requeue(study, 0, 30.0)
        assert (waiting.state, waiting.number, waiting.seconds) == (TrialState.WAITING, 0, 30.0)
        again = store.start_attempt(study, 0, 50.0)
        assert (again.attempt, again.started_at, again.seconds) == (2, 50.0, 30.0)
        assert (again.cycles, again.startup, again.worst_case_passed) == ((), {}, False)
        assert store.notes(study, 0) == ()
        assert finish(store, study, seconds=12.0).seconds == 42.0

    def test_a_baseline_that_begins_anew_has_another_workload_and_starts_clean(self, store: Store) -> None:
        study, other = begin(store), begin(store, name="other")
        store.set_beforehand(study, PriorKnowledge({"name": "cpu"}))
        before, untouched = store.study(study), store.study(other)
        fewer = make.protocol(recorded=2)
        spec = replace(before.spec, workload=make.workload(max_completion_length=16), protocol=fewer)
        draft = make.draft(TrialKind.BASELINE, protocol=fewer, rows_per_update=4)
        found = store.begin_anew(study, spec, draft, make.event("plan_changed"))
        assert found == store.study(study)
        assert (found.id, found.spec, found.beforehand) == (study, spec, None)
        assert found.spec.digest == spec.digest != before.spec.digest
        assert found.revision > before.revision
        waiting = store.trial(study, 0)
        assert (waiting.state, waiting.attempt) == (TrialState.WAITING, 1)
        assert (waiting.protocol, waiting.rows_per_update) == (draft.protocol, 4)
        assert [e.kind for e in store.events(study)] == ["plan_changed"]
        again = store.start_attempt(study, 0, 50.0)
        assert (again.attempt, again.cycles, again.seconds) == (2, (), None)
        assert finish(store, study, seconds=12.0).seconds == 12.0
        assert store.study(other) == untouched

    @pytest.mark.parametrize("state", ["waiting", "finished", "followed"])
    def test_only_a_baseline_that_runs_alone_begins_anew(self, store: Store, state: str) -> None:
        study = begin(store)
        if state == "waiting":
            store.requeue(study, 0, 1.0)
        elif state == "finished":
            finish(store, study)
        else:
            store.add_trial(study, make.draft(), 1.0)
        before = store.study(study), store.trials(study)
        spec = replace(before[0].spec, workload=make.workload(max_completion_length=16))
        with pytest.raises(FinishedTrialError):
            store.begin_anew(study, spec, make.draft(TrialKind.BASELINE), make.event())
        assert (store.study(study), store.trials(study)) == before
        assert store.events(study) == ()

    @pytest.mark.parametrize("reason", [None, *FailureReason])
    def test_every_outcome_is_kept(self, store: Store, reason: Any) -> None:
        study = begin(store)
        outcome = make.oom(reason=reason, message=HOSTILE, log_path="/tmp/\udcff", fresh=False)
        assert finish(store, study, outcome=outcome).outcome == outcome
        assert store.trial(study, 0).outcome == outcome

    def test_the_bound_of_a_stopped_trial_is_kept_and_is_no_figure(self, store: Store) -> None:
        study = begin(store)
        for index in range(3):
            store.add_cycle(study, 0, 1, make.cycle(index))
        store.add_worst_case(study, 0, 1, make.worst_case())
        outcome = Outcome(ceiling=Ceiling(171_000.5, 190_000.25, rival=4, cycles=3))
        stopped = finish(store, study, state=TrialState.PRUNED, outcome=outcome)
        assert stopped.outcome == outcome
        assert store.trials(study) == (stopped,)
        assert (stopped.at_most, stopped.tokens_per_hour, len(stopped.speed_cycles())) == (171_000.5, None, 3)
        assert (stopped.feasible, stopped.fits) == (False, True)

    def test_a_protocol_keeps_its_looks(self, store: Store) -> None:
        study = store.create_study(make.study_spec(), 1.0).id
        protocol = make.protocol(recorded=8, looks=(3, 5, 8))
        store.add_trial(study, make.draft(protocol=protocol), 1.0)
        assert store.trial(study, 0).protocol == protocol


class MeasurementTests:
    def test_cycles_come_back_exactly_and_in_order(self, store: Store) -> None:
        study = begin(store)
        given = [make.cycle(i, rank=r, seconds=10.0 + r) for i in (2, 1, 0, 10) for r in (1, 0)]
        for cycle in given:
            store.add_cycle(study, 0, 1, cycle)
        expected = sorted(given, key=lambda c: (c.index, c.rank))
        assert list(store.trial(study, 0).cycles) == expected
        assert list(store.trials(study)[0].cycles) == expected

    @pytest.mark.parametrize(
        "changes",
        [
            {"phases": {}, "peaks": {}, "lengths": (), "rows": 0},
            {"phases": {"generate": 0.0}, "peaks": {"cycle": Peaks()}},
            {"phases": {"update": 1.0}, "peaks": {"update": Peaks(2**62, 2**61, 2**60, 0), "sync": Peaks(host=1)}},
            {"loss": math.inf, "grad_norm": -math.inf, "reward_mean": 1e300, "drift": None, "outside_cpu": None},
            {"accepted": False, "noisy": True, "cycle_kind": CycleKind.MAXIMUM, "logp_mismatch": 1e-12},
            {"clipped_share": None, "loss": None, "grad_norm": None, "reward_mean": None, "seconds": 0.1 + 0.2},
            {"lengths": tuple(range(5000)), "completion_tokens": 2**60, "started": 1.7e9 + 1 / 3},
        ],
    )
    def test_unusual_cycles_are_kept_exactly(self, store: Store, changes: dict[str, Any]) -> None:
        study, cycle = begin(store), make.cycle(1, **changes)
        store.add_cycle(study, 0, 1, cycle)
        assert store.trial(study, 0).cycles[1] == cycle

    def test_a_loss_that_is_no_number_is_kept(self, store: Store) -> None:
        study = begin(store)
        store.add_cycle(study, 0, 1, make.cycle(1, loss=math.nan))
        loss = not_none(store.trial(study, 0).cycles[1].loss)
        assert math.isnan(loss)

    @pytest.mark.parametrize(
        "changes", [{"seconds": math.nan}, {"phases": {"update": math.inf}}, {"rank": 10**30}, {"started": math.nan}]
    )
    def test_an_impossible_cycle_is_refused_whole(self, store: Store, changes: dict[str, Any]) -> None:
        study = begin(store)
        before, revision = store.trial(study, 0), store.study(study).revision
        with pytest.raises(StoreError):
            store.add_cycle(study, 0, 1, make.cycle(1, **changes))
        assert store.trial(study, 0) == before
        assert store.study(study).revision == revision

    def test_the_same_cycle_twice_is_stored_once_and_the_first_stays(self, store: Store) -> None:
        study = begin(store)
        store.add_cycle(study, 0, 1, make.cycle(0))
        store.add_cycle(study, 0, 1, make.cycle(0, seconds=99.0))
        assert store.trial(study, 0).cycles == (make.cycle(0),)

    @pytest.mark.parametrize("attempt", [0, 2, -1])
    def test_a_record_of_no_attempt_is_refused(self, store: Store, attempt: int) -> None:
        study = begin(store)
        with pytest.raises(NotFoundError, match="attempt"):
            store.add_cycle(study, 0, attempt, make.cycle(1))
        with pytest.raises(NotFoundError, match="attempt"):
            store.add_startup(study, 0, attempt, make.startup())
        with pytest.raises(NotFoundError, match="attempt"):
            store.add_worst_case(study, 0, attempt, make.worst_case())
        with pytest.raises(NotFoundError, match="attempt"):
            store.add_note(study, 0, attempt, make.note())
        assert store.trial(study, 0).cycles == (make.cycle(0),)

    def test_a_late_record_of_an_earlier_attempt_stays_with_it(self, store: Store) -> None:
        study = begin(store)
        store.requeue(study, 0, 1.0)
        store.start_attempt(study, 0, 2.0)
        store.add_cycle(study, 0, 1, make.cycle(5))
        store.add_worst_case(study, 0, 1, make.worst_case())
        store.add_cycle(study, 0, 2, make.cycle(0, seconds=3.0))
        trial = store.trial(study, 0)
        assert trial.cycles == (make.cycle(0, seconds=3.0),)
        assert not trial.worst_case_passed

    def test_startup_parts_are_kept_by_name_and_the_last_word_counts(self, store: Store) -> None:
        study = begin(store)
        for part, seconds in ((StartupPart.IMPORT, 2.0), (StartupPart.LOAD, 3.0), (StartupPart.LOAD, 4.0)):
            store.add_startup(study, 0, 1, make.startup(part, seconds))
        assert store.trial(study, 0).startup == {"import": 2.0, "load": 4.0}

    def test_the_worst_case_is_kept(self, store: Store) -> None:
        study = begin(store)
        assert not store.trial(study, 0).worst_case_passed
        store.add_worst_case(study, 0, 1, make.worst_case())
        assert store.trial(study, 0).worst_case_passed

    def test_notes_are_kept_in_order_and_the_same_one_once(self, store: Store) -> None:
        study = begin(store)
        notes = [make.note("b", text=HOSTILE, deep={"$float": [1, None, math.inf]}), make.note("a")]
        for note in (*notes, notes[0]):
            store.add_note(study, 0, 1, note)
        assert list(store.notes(study, 0)) == notes
