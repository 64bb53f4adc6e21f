"""Protocol of the database of studies and trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol as Port

from autotune.domain import (
    CycleRecord,
    Event,
    Fingerprint,
    Outcome,
    PriorKnowledge,
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
    """A lock held while a tuner runs a study; released by leaving the ``with`` or by the process's death."""

    def __enter__(self) -> StudyLock: ...

    def __exit__(self, *details: object) -> None: ...

    def is_held(self) -> bool:
        """Whether a tuner holds this study's lock, by this object or another."""


class Store(Port):
    """The database of studies. Values in and out are copies. Each method is one transaction.

    Safe for one writing tuner and any number of readers in other processes.

    Raises (any method):
        StoreError: the database cannot be read or written, and has not come back within the store's patience.
        NotFoundError: no such study or trial.
        StudyBusyError: a change, after another tuner has taken over a study this store had locked.
    """

    def create_study(self, spec: StudySpec, now: float) -> Study:
        """Raises ``AlreadyExistsError`` if the name is taken."""

    def study(self, name_or_id: str | int) -> Study: ...

    def studies(self) -> tuple[Study, ...]:
        """All studies, newest first."""

    def revisions(self) -> Mapping[int, int]:
        """The revision of every study by its id, newest first: cheap to poll."""

    def set_lengths(self, study_id: int, lengths: Sequence[int]) -> None:
        """Sets the recorded lengths, once: raises ``FinishedTrialError`` if others are already set."""

    def set_beforehand(self, study_id: int, beforehand: PriorKnowledge) -> Study:
        """Stores prior knowledge unless some is stored. Returns the study as it is stored."""

    def set_status(self, study_id: int, status: StudyStatus) -> None: ...

    def add_trial(self, study_id: int, draft: TrialDraft, now: float) -> Trial:
        """Adds a WAITING trial with the next number (0, 1, 2 ... without gaps)."""

    def start_attempt(self, study_id: int, number: int, now: float, event: Event | None = None) -> Trial:
        """WAITING -> RUNNING, ``attempt`` + 1. Raises ``FinishedTrialError`` from any other state.

        ``event``, here and below: an event that is stored with the change, or neither is.
        """

    def requeue(self, study_id: int, number: int, seconds: float, event: Event | None = None) -> Trial:
        """RUNNING -> WAITING, for another attempt; ``seconds`` of the lost attempt are added."""

    def begin_anew(self, study_id: int, spec: StudySpec, draft: TrialDraft, event: Event) -> Study:
        """Gives a study whose only trial is its RUNNING baseline another specification, without prior knowledge, and
        the baseline another draft, WAITING. Raises ``FinishedTrialError`` from any other state."""

    def add_cycle(self, study_id: int, number: int, attempt: int, cycle: CycleRecord, /) -> None:
        """Stores a cycle, durably on return. The same cycle twice is stored once. Raises ``FinishedTrialError``."""

    def add_startup(self, study_id: int, number: int, attempt: int, part: StartupRecord, /) -> None: ...

    def add_worst_case(self, study_id: int, number: int, attempt: int, record: WorstCaseRecord, /) -> None: ...

    def add_note(self, study_id: int, number: int, attempt: int, note: NoteRecord, /) -> None: ...

    def finish_trial(
        self,
        study_id: int,
        number: int,
        state: TrialState,
        outcome: Outcome,
        now: float,
        seconds: float,
        host_peak: int | None,
        event: Event | None = None,
    ) -> Trial:
        """RUNNING -> a finished state. Raises ``FinishedTrialError`` if it is finished already."""

    def trial(self, study_id: int, number: int) -> Trial:
        """A trial with the cycles of its last attempt."""

    def trials(self, study_id: int, since: int = 0, until: int | None = None) -> tuple[Trial, ...]:
        """Trials numbered from ``since`` to below ``until``, by number, with the cycles of their last attempt."""

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        """Notes of the last attempt, in order; equal notes are stored once."""

    def worst_case(self, study_id: int, number: int) -> WorstCaseRecord | None:
        """Worst-case record of the last attempt; ``None`` exactly when ``worst_case_passed`` is false."""

    def add_event(self, study_id: int, event: Event) -> Event:
        """Stores an event with the next id."""

    def events(self, study_id: int, after: int = 0, limit: int = 1000, kind: str | None = None) -> tuple[Event, ...]:
        """Events with ids above ``after``, oldest first; ``kind``: only of this kind."""

    def last_event_id(self, study_id: int) -> int:
        """The greatest id of the study's events; 0 before the first."""

    def open_session(self, study_id: int, now: float) -> int:
        """Opens a session, one run of the tuner on the study; returns its id."""

    def spend(self, session_id: int, wall_s: float, gpu_s: float, now: float) -> None:
        """Stores a session's totals so far (not increments)."""

    def spent(self, study_id: int) -> tuple[float, float]:
        """(wall seconds, GPU seconds) over all sessions."""

    def save_fingerprint(self, study_id: int, fingerprint: Fingerprint, now: float) -> None: ...

    def fingerprint(self, study_id: int) -> Fingerprint | None:
        """The newest fingerprint."""

    def fingerprints(self, study_id: int) -> tuple[tuple[Fingerprint, float], ...]:
        """All fingerprints, each with the UTC seconds it was first seen at; oldest first."""

    def save_recommendation(self, study_id: int, recommendation: Recommendation) -> None: ...

    def recommendation(self, study_id: int) -> Recommendation | None:
        """The newest recommendation."""

    def lock(self, study_id: int) -> StudyLock:
        """Lock of a study. Entering raises ``StudyBusyError`` if another tuner holds it."""

    def is_locked(self, study_id: int) -> bool:
        """Whether a tuner holds the study's lock. The test refuses no tuner that starts meanwhile."""

    def close(self) -> None: ...
