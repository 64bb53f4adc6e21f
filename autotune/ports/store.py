"""Where studies, their trials and everything learnt of them are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol as Port

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
from trainer.child.contract import NoteRecord, WorstCaseRecord


class StudyLock(Port):
    """Held while a tuner runs a study; released by leaving the ``with`` or by the process's death."""

    def __enter__(self) -> StudyLock: ...

    def __exit__(self, *details: object) -> None: ...

    def is_held(self) -> bool:
        """Whether a tuner holds this study's lock, by this object or another."""
        ...


class Store(Port):
    """Where everything is kept. Values in and out are copies. Each method is one transaction.

    Safe for one writing tuner and any number of readers in other processes.

    Raises (any method):
        StoreError: the database cannot be read or written, and has not come back within the store's patience.
        NotFoundError: no such study or trial.
        StudyBusyError: a change, after another tuner has taken over a study this store had locked.
    """

    def create_study(self, spec: StudySpec, now: float) -> Study:
        """Raises ``AlreadyExistsError`` if the name is taken."""
        ...

    def study(self, name_or_id: str | int) -> Study: ...

    def studies(self) -> tuple[Study, ...]:
        """Newest first."""
        ...

    def revisions(self) -> Mapping[int, int]:
        """The revision of every study by its id, newest first: what a poller asks before it reads."""
        ...

    def set_lengths(self, study_id: int, lengths: Sequence[int]) -> None:
        """Once: raises ``FinishedTrialError`` if other lengths are already set."""
        ...

    def set_beforehand(self, study_id: int, beforehand: Beforehand) -> Study:
        """Once: what was set first stays. Returns the study as it is stored."""
        ...

    def set_status(self, study_id: int, status: StudyStatus) -> None: ...

    def add_trial(self, study_id: int, draft: TrialDraft, now: float) -> Trial:
        """WAITING, with the next number (0, 1, 2 ... without gaps)."""
        ...

    def start_attempt(self, study_id: int, number: int, now: float) -> Trial:
        """WAITING -> RUNNING, ``attempt`` + 1. Raises ``FinishedTrialError`` from any other state."""
        ...

    def requeue(self, study_id: int, number: int, seconds: float) -> Trial:
        """RUNNING -> WAITING, to be attempted again; ``seconds`` of the lost attempt are added."""
        ...

    def add_cycle(self, study_id: int, number: int, attempt: int, cycle: CycleRecord) -> None:
        """Durable on return. The same cycle twice is stored once. Raises ``FinishedTrialError``."""
        ...

    def add_startup(self, study_id: int, number: int, attempt: int, part: StartupRecord) -> None: ...

    def add_worst_case(self, study_id: int, number: int, attempt: int, record: WorstCaseRecord) -> None: ...

    def add_note(self, study_id: int, number: int, attempt: int, note: NoteRecord) -> None: ...

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
        """RUNNING -> a finished state. Raises ``FinishedTrialError`` if it is finished already."""
        ...

    def trial(self, study_id: int, number: int) -> Trial:
        """With its cycles of the last attempt."""
        ...

    def trials(self, study_id: int, since: int = 0, until: int | None = None) -> tuple[Trial, ...]:
        """All numbered ``since`` or later (and below ``until``), by number, with their cycles of the last attempt."""
        ...

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        """Of the last attempt, in the order they were added; the same note is kept once."""
        ...

    def worst_case(self, study_id: int, number: int) -> WorstCaseRecord | None:
        """Of the last attempt; ``None`` exactly when ``worst_case_passed`` is false."""
        ...

    def add_event(self, study_id: int, event: Event) -> Event:
        """Stored with the next id."""
        ...

    def events(self, study_id: int, after: int = 0, limit: int = 1000, kind: str | None = None) -> tuple[Event, ...]:
        """Those with a greater id than ``after``, oldest first; ``kind``: only of this one."""
        ...

    def last_event_id(self, study_id: int) -> int:
        """The greatest id of the study's events; 0 before the first."""
        ...

    def open_session(self, study_id: int, now: float) -> int:
        """A tuner's run of the study; returns its id."""
        ...

    def spend(self, session_id: int, wall_s: float, gpu_s: float, now: float) -> None:
        """Totals of this session so far (not increments)."""
        ...

    def spent(self, study_id: int) -> tuple[float, float]:
        """(wall seconds, GPU seconds) over all sessions."""
        ...

    def save_fingerprint(self, study_id: int, fingerprint: Fingerprint, now: float) -> None: ...

    def fingerprint(self, study_id: int) -> Fingerprint | None:
        """The newest."""
        ...

    def fingerprints(self, study_id: int) -> tuple[tuple[Fingerprint, float], ...]:
        """All, each with the UTC seconds it was first seen at; oldest first."""
        ...

    def save_recommendation(self, study_id: int, recommendation: Recommendation) -> None: ...

    def recommendation(self, study_id: int) -> Recommendation | None:
        """The newest."""
        ...

    def lock(self, study_id: int) -> StudyLock:
        """Entering raises ``StudyBusyError`` if another tuner holds it."""
        ...

    def is_locked(self, study_id: int) -> bool:
        """Whether a tuner holds the study's lock. Asking refuses no tuner that starts meanwhile."""
        ...

    def close(self) -> None: ...
