"""The loop of a study: decide, run, record, until something ends it. Nothing else waits or writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune import schedule
from autotune.budget import Ledger
from autotune.domain import (
    Budget,
    CycleRecord,
    Event,
    FailureReason,
    Outcome,
    Recommendation,
    Study,
    StudyStatus,
    Trial,
    TrialDraft,
    TrialState,
)
from autotune.ports import Assignment, Clock, Observer, Proposer, RunReport, StopToken, Store, TrialRunner
from autotune.recommend import recommend, unconfirmed
from trainer.child.contract import CurrentPhase, NoteRecord, Record, StartupRecord, WorstCaseRecord

INFRA_ATTEMPTS = 2
"""A trial the machine broke is repeated once."""

LOST_ATTEMPTS = 3
"""A trial that was running each of this many times the tuner died is not tried again."""


@dataclass(frozen=True)
class StudyResult:
    """How a run of the tuner ended."""

    study: Study
    recommendation: Recommendation | None
    ended_by: str
    trials: tuple[Trial, ...]
    stopped: bool
    """The user stopped it; more could have been run."""


class StudyLoop:
    """Runs one study until its budget ends or the user stops it."""

    def __init__(
        self,
        *,
        study: Study,
        budget: Budget,
        store: Store,
        proposer: Proposer,
        runner: TrialRunner,
        clock: Clock,
        observer: Observer,
        stop: StopToken,
        directory_of: Callable[[Trial], Path],
        fingerprint: str = "",
    ) -> None:
        self._study = study
        self._budget = budget
        self._store = store
        self._proposer = proposer
        self._runner = runner
        self._clock = clock
        self._observer = observer
        self._stop = stop
        self._directory_of = directory_of
        self._fingerprint = fingerprint

    def run(self) -> StudyResult:
        """Resumes whatever is there, then runs trials until the end; the recommendation is stored.

        Raises:
            StudyBusyError: another tuner runs this study.
            StoreError: the database failed; everything acknowledged before is kept.
        """
        with self._store.lock(self._study.id):
            ledger = Ledger(self._store, self._clock, self._study.id, self._study.spec.resources.gpus)
            try:
                self._say_budget()
                self._recover()
                ended_by = self._run_trials(ledger)
            finally:
                self._runner.close()
                ledger.persist(force=True)
            return self._conclude(ended_by)

    def retry(self, draft: TrialDraft) -> Trial:
        """Run one configuration again outside the search, and no other trial.

        A retry of it that an earlier run left waiting goes on. When the study had ended, its recommendation is
        made anew.

        Returns:
            The trial; WAITING if the user broke it off.

        Raises:
            StudyBusyError: another tuner runs this study; nothing was stored.
            StoreError: the database failed; everything acknowledged before is kept.
        """
        with self._store.lock(self._study.id):
            ledger = Ledger(self._store, self._clock, self._study.id, self._study.spec.resources.gpus)
            try:
                self._recover()
                trial = self._waiting(draft) or self._store.add_trial(self._study.id, draft, self._clock.now())
                while trial.state is TrialState.WAITING and self._stop.level == 0:
                    self._execute(trial, self._store.trials(self._study.id), ledger)
                    trial = self._store.trial(self._study.id, trial.number)
            finally:
                self._runner.close()
                ledger.persist(force=True)
            self._renew()
            return trial

    def _waiting(self, draft: TrialDraft) -> Trial | None:
        alike = (
            t
            for t in self._store.trials(self._study.id)
            if (t.state, t.kind, t.configuration) == (TrialState.WAITING, draft.kind, draft.configuration)
        )
        return next(alike, None)

    def _renew(self) -> None:
        """The answer of a study that had ended, with what was run since."""
        before = self._store.recommendation(self._study.id)
        if before is None or self._store.study(self._study.id).status is not StudyStatus.DONE:
            return
        self._recommend(self._store.trials(self._study.id), before.ended_by)

    def _say_budget(self) -> None:
        """For the record, and for `status` in another terminal."""
        limits = self._budget
        self._say(
            "session_started",
            "the tuner started",
            None,
            wall_s=limits.wall_s,
            max_trials=limits.max_trials,
            gpu_hours=limits.gpu_hours,
        )

    def _run_trials(self, ledger: Ledger) -> str:
        while True:
            if self._stop.level >= 1:
                return "stopped by the user"
            trials = self._store.trials(self._study.id)
            spent = ledger.spent()
            waiting = schedule.interrupted(self._study, trials, self._budget, spent)
            if waiting is None:
                step = schedule.next_step(self._study, trials, self._budget, spent, self._proposer)
                if isinstance(step, schedule.Stop):
                    return step.because
                waiting = self._store.add_trial(self._study.id, step.draft, self._clock.now())
            self._execute(waiting, trials, ledger)

    def _execute(self, waiting: Trial, trials: tuple[Trial, ...], ledger: Ledger) -> None:
        bound = schedule.deadline(self._study, waiting, trials, self._budget, ledger.spent())
        trial = self._store.start_attempt(self._study.id, waiting.number, self._clock.now())
        self._say("trial_started", f"trial {trial.number} ({trial.kind}) started", trial)
        recorder = Recorder(self._store, self._observer, ledger, self._study, self._budget, trial)
        assignment = Assignment(self._study, trial, self._directory_of(trial), bound.seconds)
        report = self._runner.run(assignment, recorder, self._stop)
        ledger.persist(force=True)
        self._finish(trial, report, bound, recorder.lengths)

    def _finish(self, trial: Trial, report: RunReport, bound: schedule.Deadline, lengths: tuple[int, ...]) -> None:
        measured = self._store.trial(self._study.id, trial.number)
        outcome = schedule.judged(report.outcome, measured, bound)
        if report.bad_lines:
            message = f"trial {trial.number}: {report.bad_lines} unreadable lines in its metrics were skipped"
            self._say("bad_lines", message, trial)
        for pid in report.quarantined:
            self._say("quarantined", f"process {pid} of trial {trial.number} could not be ended", trial)
        if self._repeat(trial, outcome):
            self._store.requeue(self._study.id, trial.number, report.seconds)
            self._say("trial_repeated", f"trial {trial.number} will be repeated: {outcome.sentence()}", trial)
            return
        if outcome.ok and lengths and not self._study.lengths:
            self._store.set_lengths(self._study.id, lengths)
            self._study = replace(self._study, lengths=lengths)
        state = TrialState.COMPLETE if outcome.ok else TrialState.FAIL
        finished = self._store.finish_trial(
            self._study.id, trial.number, state, outcome, self._clock.now(), report.seconds, report.host_peak
        )
        self._say("trial_finished", f"trial {trial.number}: {outcome.sentence()}", finished)
        self._observer.trial(finished)
        if outcome.reason is FailureReason.OOM:
            self._say_ruled_out(finished)

    def _say_ruled_out(self, trial: Trial) -> None:
        count = self._proposer.count_ruled_out(self._store.trials(self._study.id))
        message = f"{count} configurations need at least as much memory as one that ran out, and will not be tried"
        self._say("ruled_out", message, trial, ruled_out=count)

    def _repeat(self, trial: Trial, outcome: Outcome) -> bool:
        if outcome.reason is FailureReason.CANCELLED and self._stop.level >= 2:
            return True  # Broken off by the user: the same trial goes on when the study is resumed.
        return outcome.reason is FailureReason.INFRA and trial.attempt < INFRA_ATTEMPTS

    def _recover(self) -> None:
        """Bring a study whose tuner died back to a state in which no trial is RUNNING."""
        for pid in self._runner.sweep(self._study.id):
            self._say("swept", f"ended process {pid}, left by an earlier run", None)
        for trial in self._store.trials(self._study.id):
            if trial.state is TrialState.RUNNING:
                self._recover_trial(trial)

    def _recover_trial(self, trial: Trial) -> None:
        records, _ = self._runner.recover(self._directory_of(trial))
        for record in records:
            _store_record(self._store, self._study.id, trial, record)
        if trial.attempt >= LOST_ATTEMPTS:
            outcome = Outcome(
                reason=FailureReason.CRASH,
                message=f"the tuner died {trial.attempt} times while this trial ran",
                suggestion="look for the kernel's out-of-memory killer, and give --memory-limit",
            )
            self._store.finish_trial(
                self._study.id, trial.number, TrialState.FAIL, outcome, self._clock.now(), 0.0, None
            )
            return
        self._store.requeue(self._study.id, trial.number, 0.0)
        self._say("trial_repeated", f"trial {trial.number} was interrupted and will be repeated", trial)

    def _conclude(self, ended_by: str) -> StudyResult:
        trials = self._store.trials(self._study.id)
        stopped = self._stop.level >= 1
        found = self._recommend(trials, ended_by)
        if not stopped:
            self._store.set_status(self._study.id, StudyStatus.DONE)
        self._say("study_ended", f"the study ended: {ended_by}", None)
        return StudyResult(self._study, found, ended_by, trials, stopped)

    def _recommend(self, trials: tuple[Trial, ...], ended_by: str) -> Recommendation | None:
        found = recommend(self._study.spec, trials, ended_by, fingerprint=self._fingerprint, now=self._clock.now())
        if found is None:
            return None
        found = unconfirmed(found)
        self._store.save_recommendation(self._study.id, found)
        return found

    def _say(self, kind: str, message: str, trial: Trial | None, **data: int | float | str | None) -> None:
        number = None if trial is None else trial.number
        event = Event(kind=kind, message=message, data=data, trial=number, at=self._clock.now())
        self._observer.event(self._store.add_event(self._study.id, event))


class Recorder:
    """Puts what a running trial reports into the store at once, and shows it."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        ledger: Ledger,
        study: Study,
        budget: Budget,
        trial: Trial,
    ) -> None:
        self._store = store
        self._observer = observer
        self._ledger = ledger
        self._study = study
        self._budget = budget
        self._trial = trial
        self.lengths: tuple[int, ...] = ()

    def record(self, record: Record) -> None:
        _store_record(self._store, self._study.id, self._trial, record)
        if isinstance(record, NoteRecord) and record.name == "lengths":
            self.lengths = tuple(int(n) for n in record.data.get("lengths", ()))
        if isinstance(record, CycleRecord):
            self._trial = self._trial.with_(cycles=(*self._trial.cycles, record))
            self._observer.trial(self._trial)

    def phase(self, phase: CurrentPhase) -> None:
        self._observer.phase(self._trial, phase)

    def tick(self) -> None:
        self._ledger.persist()
        spent = self._ledger.spent()
        self._observer.tick(spent.wall_s, schedule.predicted_end_s(self._study, self._budget, spent))


def _store_record(store: Store, study_id: int, trial: Trial, record: Record) -> None:
    if isinstance(record, CycleRecord):
        store.add_cycle(study_id, trial.number, trial.attempt, record)
    elif isinstance(record, StartupRecord):
        store.add_startup(study_id, trial.number, trial.attempt, record)
    elif isinstance(record, WorstCaseRecord):
        store.add_worst_case(study_id, trial.number, trial.attempt, record)
    else:
        store.add_note(study_id, trial.number, trial.attempt, record)
