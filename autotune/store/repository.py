"""``ports.Store`` over SQL: one transaction a method; the topics do the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy.orm import Session

from autotune.domain import (
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
from autotune.ports import StudyLock
from autotune.store import measurements, studies, trials
from autotune.store.backend import WRITE, Backend
from autotune.store.faults import explained
from autotune.store.schema import prepare
from trainer.child.contract import NoteRecord, WorstCaseRecord

__all__ = ["SqlStore"]


class SqlStore:
    """See ``ports.Store`` for what every method promises.

    May be used by several threads. Not across a fork.
    """

    def __init__(self, backend: Backend) -> None:
        """Creates or migrates the tables. Raises ``StoreError``."""
        self._backend = backend
        self._closed = False
        with explained(backend):
            self._engine = backend.engine()
            try:
                prepare(backend, self._engine)
            except BaseException:
                self._engine.dispose()
                raise

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with self._transaction(write=False) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with self._transaction(write=True) as session:
            yield session

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Session]:
        if self._closed:
            raise StoreError(f"{self._backend.place} has been closed")
        engine = self._engine.execution_options(**{WRITE: write})
        with explained(self._backend), self._backend.turn(), Session(engine) as session, session.begin():
            yield session

    def create_study(self, spec: StudySpec, now: float) -> Study:
        with self._write() as session:
            return studies.create(session, spec, now)

    def study(self, name_or_id: str | int) -> Study:
        with self._read() as session:
            return studies.one(session, name_or_id)

    def studies(self) -> tuple[Study, ...]:
        with self._read() as session:
            return studies.every(session)

    def set_lengths(self, study_id: int, lengths: Sequence[int]) -> None:
        with self._write() as session:
            studies.set_lengths(session, study_id, lengths)

    def set_status(self, study_id: int, status: StudyStatus) -> None:
        with self._write() as session:
            studies.set_status(session, study_id, status)

    def add_trial(self, study_id: int, draft: TrialDraft, now: float) -> Trial:
        with self._write() as session:
            return trials.add(session, study_id, draft, now)

    def start_attempt(self, study_id: int, number: int, now: float) -> Trial:
        with self._write() as session:
            return trials.start(session, study_id, number, now)

    def requeue(self, study_id: int, number: int, seconds: float) -> Trial:
        with self._write() as session:
            return trials.requeue(session, study_id, number, seconds)

    def add_cycle(self, study_id: int, number: int, attempt: int, cycle: CycleRecord) -> None:
        with self._write() as session:
            measurements.add_cycle(session, trials.unfinished_attempt(session, study_id, number, attempt), cycle)

    def add_startup(self, study_id: int, number: int, attempt: int, part: StartupRecord) -> None:
        with self._write() as session:
            measurements.add_startup(session, trials.unfinished_attempt(session, study_id, number, attempt), part)

    def add_worst_case(self, study_id: int, number: int, attempt: int, record: WorstCaseRecord) -> None:
        with self._write() as session:
            measurements.add_worst_case(session, trials.unfinished_attempt(session, study_id, number, attempt), record)

    def add_note(self, study_id: int, number: int, attempt: int, note: NoteRecord) -> None:
        with self._write() as session:
            measurements.add_note(session, trials.unfinished_attempt(session, study_id, number, attempt), note)

    def finish_trial(
        self,
        study_id: int,
        number: int,
        state: TrialState,
        outcome: Outcome,
        now: float,
        seconds: float,
        host_peak: int | None,
    ) -> Trial:
        if not state.is_finished:
            raise StoreError(f"trial {number} cannot be finished as {state}")
        with self._write() as session:
            return trials.finish(session, study_id, number, (state, outcome), now, seconds, host_peak)

    def trial(self, study_id: int, number: int) -> Trial:
        with self._read() as session:
            return trials.one(session, study_id, number)

    def trials(self, study_id: int) -> tuple[Trial, ...]:
        with self._read() as session:
            return trials.every(session, study_id)

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        with self._read() as session:
            return trials.notes(session, study_id, number)

    def worst_case(self, study_id: int, number: int) -> WorstCaseRecord | None:
        with self._read() as session:
            return trials.worst_case(session, study_id, number)

    def add_event(self, study_id: int, event: Event) -> Event:
        with self._write() as session:
            return studies.add_event(session, study_id, event)

    def events(self, study_id: int, after: int = 0, limit: int = 1000) -> tuple[Event, ...]:
        with self._read() as session:
            return studies.read_events(session, study_id, after, limit)

    def open_session(self, study_id: int, now: float) -> int:
        with self._write() as session:
            return studies.open_session(session, study_id, now)

    def spend(self, session_id: int, wall_s: float, gpu_s: float, now: float) -> None:
        with self._write() as session:
            studies.spend(session, session_id, wall_s, gpu_s, now)

    def spent(self, study_id: int) -> tuple[float, float]:
        with self._read() as session:
            return studies.spent(session, study_id)

    def save_fingerprint(self, study_id: int, fingerprint: Fingerprint, now: float) -> None:
        with self._write() as session:
            studies.save_fingerprint(session, study_id, fingerprint, now)

    def fingerprint(self, study_id: int) -> Fingerprint | None:
        with self._read() as session:
            return studies.newest_fingerprint(session, study_id)

    def save_recommendation(self, study_id: int, recommendation: Recommendation) -> None:
        with self._write() as session:
            studies.save_recommendation(session, study_id, recommendation)

    def recommendation(self, study_id: int) -> Recommendation | None:
        with self._read() as session:
            return studies.newest_recommendation(session, study_id)

    def lock(self, study_id: int) -> StudyLock:
        return self._backend.study_lock(self._engine, self.study(study_id))

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()
