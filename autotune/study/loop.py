"""The loop of a study: decide, run, record, until something ends it. Nothing else waits or writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.domain import (
    Budget,
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
from autotune.errors import MachineError
from autotune.ports import (
    Assignment,
    Clock,
    Observer,
    PreparingProposer,
    Proposer,
    Requests,
    RunReport,
    StopToken,
    Store,
    TrialRunner,
)
from autotune.recommendation.recommend import recommend, unconfirmed
from autotune.study import schedule
from autotune.study.budget import Ledger, Uncounted
from autotune.study.control import take_up
from autotune.study.halting import MachineFaults
from autotune.study.history import History
from autotune.study.judging import judge_of
from autotune.study.recorder import Recorder, store_record
from autotune.verify import long_run


@dataclass(frozen=True)
class StudyResult:
    """How a run of the tuner ended."""

    study: Study
    recommendation: Recommendation | None
    ended_by: str
    trials: tuple[Trial, ...]
    stopped: bool
    """The user or the machine stopped it; more could have been run."""
    halted: bool = False
    """The machine did: no trial could be run."""


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
        requests: Requests | None = None,
        steps: schedule.Steps = schedule.next_step,
    ) -> None:
        self._requests = requests
        self._study = study
        self._budget = budget
        self._store = store
        self._history = History(store, study.id)
        self._proposer = proposer
        self._runner = runner
        self._clock = clock
        self._observer = observer
        self._stop = stop
        self._directory_of = directory_of
        self._fingerprint = fingerprint
        self._steps = steps
        self._faults = MachineFaults()
        self._shown = store.last_event_id(study.id)

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

    def retry(self, draft: TrialDraft, *, counted: bool = True) -> Trial:
        """Run one configuration again outside the search, and no other trial.

        A retry of it that an earlier run left waiting goes on. When the study had ended, its recommendation is
        made anew. Unless ``counted`` its time is not the study's.

        Returns:
            The trial; WAITING if the user broke it off.

        Raises:
            StudyBusyError: another tuner runs this study; nothing was stored.
            StoreError: the database failed; everything acknowledged before is kept.
            MachineError: no trial can be run at present; the trial is WAITING.
        """
        with self._store.lock(self._study.id):
            gpus = self._study.spec.resources.gpus
            new = Ledger(self._store, self._clock, self._study.id, gpus) if counted else None
            ledger = new or Uncounted(self._store, self._study.id)
            try:
                self._recover()
                trial = self._waiting(draft) or self._store.add_trial(self._study.id, draft, self._clock.now())
                while trial.state is TrialState.WAITING and self._stop.level == 0:
                    if self._faults.halted is not None:
                        raise MachineError(self._faults.halted)
                    self._execute(trial, self._history.trials(), ledger)
                    trial = self._store.trial(self._study.id, trial.number)
            finally:
                self._runner.close()
                ledger.persist(force=True)
            self._renew()
            return trial

    def _waiting(self, draft: TrialDraft) -> Trial | None:
        alike = (
            t
            for t in self._history.trials()
            if (t.state, t.source, t.configuration) == (TrialState.WAITING, draft.source, draft.configuration)
        )
        return next(alike, None)

    def _renew(self) -> None:
        """The answer of a study that had ended, with what was run since."""
        before = self._store.recommendation(self._study.id)
        if before is None or self._store.study(self._study.id).status is not StudyStatus.DONE:
            return
        self._recommend(self._history.trials(), before.ended_by)

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
            ledger.leave_out(take_up(self._requests, self._store, self._study, self._clock.now))
            if self._stop.level >= 1:
                return "stopped by the user"
            if self._faults.halted is not None:
                return self._faults.halted
            trials = self._history.trials()
            spent = ledger.spent()
            waiting = schedule.interrupted(self._study, trials, self._budget, spent)
            if waiting is None:
                step = self._steps(self._study, trials, self._budget, spent, self._proposer)
                if isinstance(step, schedule.StudyEnd):
                    return step.because
                waiting = self._store.add_trial(self._study.id, step.draft, self._clock.now())
            self._execute(waiting, trials, ledger)

    def _execute(self, waiting: Trial, trials: tuple[Trial, ...], ledger: Ledger) -> None:
        bound = schedule.deadline(self._study, waiting, trials, self._budget, ledger.spent())
        told = self._event("trial_started", f"trial {waiting.number} ({waiting.kind}) started", waiting)
        trial = self._store.start_attempt(self._study.id, waiting.number, self._clock.now(), told)
        self._show(told)
        self._observer.trial(trial)
        until = self._clock.monotonic() + bound.seconds
        judge = judge_of(self._study.spec, trial, trials, lambda: until - self._clock.monotonic())
        recorder = Recorder(self._store, self._observer, ledger, self._study, self._budget, trial, judge)
        assignment = Assignment(self._study, trial, self._directory_of(trial), bound.seconds)
        if isinstance(self._proposer, PreparingProposer):
            before = (t for t in trials if t.number != trial.number)
            self._proposer.prepare((*before, trial), trial.number + 1)
        report = self._runner.run(assignment, recorder, self._stop)
        ledger.persist(force=True)
        self._finish(trial, report, bound, recorder)

    def _finish(self, trial: Trial, report: RunReport, bound: schedule.Deadline, recorder: Recorder) -> None:
        self._faults.see(report)
        measured, lengths = self._store.trial(self._study.id, trial.number), recorder.lengths
        outcome = recorder.concluded(schedule.judged(report.outcome, measured, bound))
        if report.bad_lines:
            message = f"trial {trial.number}: {report.bad_lines} unreadable lines in its metrics were skipped"
            self._say("bad_lines", message, trial)
        for pid in report.quarantined:
            self._say("quarantined", f"process {pid} of trial {trial.number} could not be ended", trial)
        for fault in report.gpu_faults:
            self._say("gpu_quarantined", f"trials avoid {fault}", trial)
        if self._repeat(trial, outcome, report):
            kept = " (a compiler ran, and what it made is kept)" if outcome.reason is FailureReason.OOM else ""
            self._requeue(trial, report.seconds, f"will be repeated{kept}: {outcome.sentence()}")
            return
        if outcome.ok and lengths and not self._study.lengths:
            self._store.set_lengths(self._study.id, lengths)
            self._study = replace(self._study, lengths=lengths)
        ended_well = TrialState.COMPLETE if outcome.ceiling is None else TrialState.PRUNED
        state = ended_well if outcome.ok else TrialState.FAIL
        finished = self._close(trial, state, outcome, report.seconds, report.host_peak)
        if outcome.reason is FailureReason.OOM:
            self._say_ruled_out(finished)

    def _say_ruled_out(self, trial: Trial) -> None:
        count = self._proposer.count_ruled_out(self._history.trials())
        if not count:  # a sweep runs every row, whatever ran out
            return
        message = f"{count} configurations need at least as much memory as one that ran out, and will not be tried"
        self._say("ruled_out", message, trial, ruled_out=count)

    def _repeat(self, trial: Trial, outcome: Outcome, report: RunReport) -> bool:
        if not outcome.ok and self._stop.level >= 2:
            # Broken off: the same trial goes on when the study is resumed, whatever it met as all its processes were
            # told to end. A long run does not.
            return not long_run.is_long(trial)
        return report.absent or schedule.again(outcome, trial, compiled=report.compiled)

    def _recover(self) -> None:
        """Bring a study whose tuner died back to a state in which no trial is RUNNING."""
        for pid in self._runner.sweep(self._study.id):
            self._say("swept", f"ended process {pid}, left by an earlier run", None)
        for trial in self._history.trials():
            if trial.state is TrialState.RUNNING:
                self._recover_trial(trial)

    def _recover_trial(self, trial: Trial) -> None:
        records, _ = self._runner.recover(self._directory_of(trial))
        for record in records:
            store_record(self._store, self._study.id, trial, record)
        outcome = schedule.lost(trial)
        if outcome is not None:
            self._close(trial, TrialState.FAIL, outcome, 0.0, None)
            return
        self._requeue(trial, 0.0, "was interrupted and will be repeated")

    def _close(self, trial: Trial, state: TrialState, outcome: Outcome, seconds: float, host_peak: int | None) -> Trial:
        """The finished trial, stored and displayed."""
        told = self._event("trial_finished", f"trial {trial.number}: {outcome.sentence()}", trial)
        ended = state, outcome, self._clock.now(), seconds, host_peak
        finished = self._store.finish_trial(self._study.id, trial.number, *ended, told)
        self._show(told)
        self._observer.trial(finished)
        return finished

    def _requeue(self, trial: Trial, seconds: float, why: str) -> None:
        told = self._event("trial_repeated", f"trial {trial.number} {why}", trial)
        self._store.requeue(self._study.id, trial.number, seconds, told)
        self._show(told)

    def _conclude(self, ended_by: str) -> StudyResult:
        trials = self._history.trials()
        halted = self._faults.halted is not None and ended_by == self._faults.halted
        stopped = self._stop.level >= 1 or halted
        found = self._recommend(trials, ended_by)
        if not stopped:
            self._store.set_status(self._study.id, StudyStatus.DONE)
        self._say("study_ended", f"the study ended: {ended_by}", None)
        return StudyResult(self._study, found, ended_by, trials, stopped, halted)

    def _recommend(self, trials: tuple[Trial, ...], ended_by: str) -> Recommendation | None:
        found = recommend(self._study.spec, trials, ended_by, fingerprint=self._fingerprint, now=self._clock.now())
        if found is None:
            return None
        found = unconfirmed(found)
        self._store.save_recommendation(self._study.id, found)
        return found

    def _say(self, kind: str, message: str, trial: Trial | None, **data: int | float | str | None) -> None:
        event = self._event(kind, message, trial, **data)
        self._observer.event(self._store.add_event(self._study.id, event))

    def _event(self, kind: str, message: str, trial: Trial | None, **data: int | float | str | None) -> Event:
        number = None if trial is None else trial.number
        return Event(kind=kind, message=message, data=data, trial=number, at=self._clock.now())

    def _show(self, told: Event) -> None:
        """An event that was stored with the change it tells of, under the number it has there."""
        stored = self._store.events(self._study.id, self._shown, kind=told.kind)[-1]
        self._shown = stored.id
        self._observer.event(stored)
