"""``ports.Store`` over SQL: one transaction a method; the topics do the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.orm import Session

from autotune.domain import (
    Beforehand,
    CycleRecord,
    Event,
    Fingerprint,
    Outcome,
    Recommendation,
    StartupRecord,
    Study,
    StudySpec,
    StudyStatus,
    Trial,
    TrialDraft,
    TrialState,
)
from autotune.errors import StoreError
from autotune.ports import Clock, StopToken, StudyLock
from autotune.store import measurements, studies, trials
from autotune.store.backend import Backend
from autotune.store.faults import explained
from autotune.store.patience import OutageLimits, Patient, Talk
from autotune.store.schema import prepare
from autotune.store.transactions import Transactions
from trainer.child.contract import NoteRecord, WorstCaseRecord

_attempt = trials.unfinished_attempt


class SqlStore:
    """See ``ports.Store`` for what every method promises.

    May be used by several threads. Not across a fork.
    """

    def __init__(
        self,
        backend: Backend,
        patience: OutageLimits,
        clock: Clock,
        talk: Talk,
        stop: StopToken | None,
        *,
        create: bool = True,
    ) -> None:
        """Migrates the tables; makes them only with ``create``. Raises ``StoreError``."""
        self._backend = backend
        patient = Patient(backend, patience, clock, talk, stop)
        with explained(backend):
            self._engine = engine = backend.engine()
            try:
                if backend.remote:
                    prepare(backend, engine, talk, create=create)
                else:
                    patient.do(lambda: prepare(backend, engine, talk, create=create))
            except BaseException:
                engine.dispose()
                raise
        transactions = Transactions(backend, engine, patient)
        self._read, self._write, self.close = transactions.read, transactions.write, transactions.close

    def create_study(self, spec: StudySpec, now: float) -> Study:
        return self._write(lambda s: studies.create(s, spec, now))

    def study(self, name_or_id: str | int) -> Study:
        return self._read(lambda s: studies.one(s, name_or_id))

    def studies(self) -> tuple[Study, ...]:
        return self._read(studies.every)

    def revisions(self) -> Mapping[int, int]:
        return self._read(studies.revisions)

    def set_lengths(self, study_id: int, lengths: Sequence[int]) -> None:
        self._write(lambda s: studies.set_lengths(s, study_id, lengths))

    def set_beforehand(self, study_id: int, beforehand: Beforehand) -> Study:
        return self._write(lambda s: studies.set_beforehand(s, study_id, beforehand))

    def set_status(self, study_id: int, status: StudyStatus) -> None:
        self._write(lambda s: studies.set_status(s, study_id, status))

    def add_trial(self, study_id: int, draft: TrialDraft, now: float) -> Trial:
        return self._write(lambda s: trials.add(s, study_id, draft, now))

    def start_attempt(self, study_id: int, number: int, now: float, told: Event | None = None) -> Trial:
        return self._change(study_id, told, lambda s: trials.start(s, study_id, number, now))

    def requeue(self, study_id: int, number: int, seconds: float, told: Event | None = None) -> Trial:
        return self._change(study_id, told, lambda s: trials.requeue(s, study_id, number, seconds))

    def add_cycle(self, study_id: int, number: int, attempt: int, cycle: CycleRecord) -> None:
        self._write(lambda s: measurements.add_cycle(s, _attempt(s, study_id, number, attempt), cycle))

    def add_startup(self, study_id: int, number: int, attempt: int, part: StartupRecord) -> None:
        self._write(lambda s: measurements.add_startup(s, _attempt(s, study_id, number, attempt), part))

    def add_worst_case(self, study_id: int, number: int, attempt: int, record: WorstCaseRecord) -> None:
        self._write(lambda s: measurements.add_worst_case(s, _attempt(s, study_id, number, attempt), record))

    def add_note(self, study_id: int, number: int, attempt: int, note: NoteRecord) -> None:
        self._write(lambda s: measurements.add_note(s, _attempt(s, study_id, number, attempt), note))

    def finish_trial(
        self,
        study_id: int,
        number: int,
        state: TrialState,
        outcome: Outcome,
        now: float,
        seconds: float,
        host_peak: int | None,
        told: Event | None = None,
    ) -> Trial:
        if not state.is_finished:
            raise StoreError(f"trial {number} cannot be finished as {state}")
        ended = state, outcome
        return self._change(
            study_id, told, lambda s: trials.finish(s, study_id, number, ended, now, seconds, host_peak)
        )

    def trial(self, study_id: int, number: int) -> Trial:
        return self._read(lambda s: trials.one(s, study_id, number))

    def trials(self, study_id: int, since: int = 0, until: int | None = None) -> tuple[Trial, ...]:
        return self._read(lambda s: trials.every(s, study_id, since, until))

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        return self._read(lambda s: trials.notes(s, study_id, number))

    def worst_case(self, study_id: int, number: int) -> WorstCaseRecord | None:
        return self._read(lambda s: trials.worst_case(s, study_id, number))

    def add_event(self, study_id: int, event: Event) -> Event:
        return self._write(lambda s: studies.add_event(s, study_id, event))

    def events(self, study_id: int, after: int = 0, limit: int = 1000, kind: str | None = None) -> tuple[Event, ...]:
        return self._read(lambda s: studies.read_events(s, study_id, after, limit, kind))

    def last_event_id(self, study_id: int) -> int:
        return self._read(lambda s: studies.last_event_id(s, study_id))

    def open_session(self, study_id: int, now: float) -> int:
        return self._write(lambda s: studies.open_session(s, study_id, now))

    def spend(self, session_id: int, wall_s: float, gpu_s: float, now: float) -> None:
        self._write(lambda s: studies.spend(s, session_id, wall_s, gpu_s, now))

    def spent(self, study_id: int) -> tuple[float, float]:
        return self._read(lambda s: studies.spent(s, study_id))

    def save_fingerprint(self, study_id: int, fingerprint: Fingerprint, now: float) -> None:
        self._write(lambda s: studies.save_fingerprint(s, study_id, fingerprint, now))

    def fingerprint(self, study_id: int) -> Fingerprint | None:
        return self._read(lambda s: studies.newest_fingerprint(s, study_id))

    def fingerprints(self, study_id: int) -> tuple[tuple[Fingerprint, float], ...]:
        return self._read(lambda s: studies.fingerprints(s, study_id))

    def save_recommendation(self, study_id: int, recommendation: Recommendation) -> None:
        self._write(lambda s: studies.save_recommendation(s, study_id, recommendation))

    def recommendation(self, study_id: int) -> Recommendation | None:
        return self._read(lambda s: studies.newest_recommendation(s, study_id))

    def _change(self, study_id: int, told: Event | None, change: Callable[[Session], Trial]) -> Trial:
        """A change of a trial's state and the event that tells of it, in one transaction."""

        def both(session: Session) -> Trial:
            trial = change(session)
            if told is not None:
                studies.add_event(session, study_id, told)
            return trial

        return self._write(both)

    def lock(self, study_id: int) -> StudyLock:
        study = self.study(study_id)
        return self._backend.study_lock(self._engine, study.id, study.spec.name)

    def is_locked(self, study_id: int) -> bool:
        return self.lock(study_id).is_held()
