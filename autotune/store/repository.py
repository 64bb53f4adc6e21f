"""Implements ``ports.Store`` over SQL: one transaction per method, whose work is in the modules by topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from autotune.ports import Clock, StopToken, StudyLock
from autotune.store import measurements, studies, trials
from autotune.store.backend import Backend, explained
from autotune.store.models import AttemptRow, prepare
from autotune.store.transactions import OutageLimits, Patient, Talk, Transactions

P = ParamSpec("P")
T = TypeVar("T")
Record = TypeVar("Record")


def _read(work: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[SqlStore, P], T]:
    """Makes a method that does ``work`` in a read-only transaction."""

    @wraps(work)
    def method(store: SqlStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.transactions.read(lambda session: work(session, *args, **kwargs))

    return method


def _write(work: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[SqlStore, P], T]:
    """Makes a method that does ``work`` in a transaction that is durable when the method returns."""

    @wraps(work)
    def method(store: SqlStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.transactions.write(lambda session: work(session, *args, **kwargs))

    return method


def _record(add: Callable[[Session, AttemptRow, Record], None]) -> Callable[[SqlStore, int, int, int, Record], None]:
    """Makes a method that adds a record to a trial's attempt, unless the trial is finished."""

    @wraps(add)
    def method(store: SqlStore, study_id: int, number: int, attempt: int, record: Record, /) -> None:
        store.transactions.write(lambda s: add(s, trials.unfinished_attempt(s, study_id, number, attempt), record))

    return method


class SqlStore:
    """Implementation of ``ports.Store``, which documents the methods.

    Several threads may use it, but not a forked process.
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
        """Opens the database; creates its tables if ``create`` is set. Raises ``StoreError``."""
        self._backend = backend
        patient = Patient(backend, patience, clock, talk, stop)
        with explained(backend):
            self._engine = engine = backend.engine()
            try:
                if backend.remote:
                    prepare(backend, engine, create=create)
                else:
                    patient.do(lambda: prepare(backend, engine, create=create))
            except BaseException:
                engine.dispose()
                raise
        self.transactions = Transactions(backend, engine, patient)
        self.close = self.transactions.close

    create_study = _write(studies.create)
    study = _read(studies.one)
    revisions = _read(studies.revisions)
    set_lengths = _write(studies.set_lengths)
    set_beforehand = _write(studies.set_beforehand)
    set_status = _write(studies.set_status)

    add_trial = _write(trials.add)
    start_attempt = _write(trials.start)
    requeue = _write(trials.requeue)
    begin_anew = _write(trials.begin_anew)
    finish_trial = _write(trials.finish)
    trial = _read(trials.one)
    notes = _read(trials.notes)

    add_cycle = _record(measurements.add_cycle)
    add_startup = _record(measurements.add_startup)
    add_worst_case = _record(measurements.add_worst_case)
    add_note = _record(measurements.add_note)

    add_event = _write(studies.add_event)
    events = _read(studies.read_events)
    last_event_id = _read(studies.last_event_id)
    open_session = _write(studies.open_session)
    spend = _write(studies.spend)
    spent = _read(studies.spent)
    save_fingerprint = _write(studies.save_fingerprint)
    fingerprint = _read(studies.newest_fingerprint)
    fingerprints = _read(studies.fingerprints)
    save_recommendation = _write(studies.save_recommendation)
    recommendation = _read(studies.newest_recommendation)

    # Last, for in this class their names are no longer the topics'.
    studies = _read(studies.every)
    trials = _read(trials.every)

    def lock(self, study_id: int) -> StudyLock:
        study = self.study(study_id)
        return self._backend.study_lock(self._engine, study.id, study.spec.name)

    def is_locked(self, study_id: int) -> bool:
        return self.lock(study_id).is_held()
