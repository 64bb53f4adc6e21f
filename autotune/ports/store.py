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
    """Lock that a tuner holds while it runs a study. Leaving the ``with`` or the death of the process releases it."""

    def __enter__(self) -> StudyLock: ...

    def __exit__(self, *details: object) -> None: ...

    def is_held(self) -> bool:
        """Tells whether a tuner holds this study's lock, through this object or another."""


class Store(Port):
    """The database of studies. Each method is one transaction; values in and out are copies.

    Safe for one writing tuner and any number of readers in other processes.

    Raises (any method):
        StoreError: the database cannot be read or written, and has not recovered within the store's time limit.
        NotFoundError: the study or trial does not exist.
        StudyBusyError: another tuner has taken over the study that a change is for.
    """

    def create_study(self, spec: StudySpec, now: float) -> Study:
        """Stores a new study. Raises ``AlreadyExistsError`` if its name is taken."""

    def study(self, name_or_id: str | int) -> Study: ...

    def studies(self) -> tuple[Study, ...]:
        """Returns all studies, newest first."""

    def revisions(self) -> Mapping[int, int]:
        """Returns the revision of each study by its id, newest first; cheap enough to poll."""

    def set_lengths(self, study_id: int, lengths: Sequence[int]) -> None:
        """Sets the recorded lengths, in tokens. Raises ``FinishedTrialError`` if other lengths are already set."""

    def set_beforehand(self, study_id: int, beforehand: PriorKnowledge) -> Study:
        """Stores prior knowledge unless the study has some. Returns the stored study."""

    def set_status(self, study_id: int, status: StudyStatus) -> None: ...

    def add_trial(self, study_id: int, draft: TrialDraft, now: float) -> Trial:
        """Adds a WAITING trial with the next number: 0, 1, 2 ... without gaps."""

    def start_attempt(self, study_id: int, number: int, now: float, event: Event | None = None) -> Trial:
        """Moves a trial from WAITING to RUNNING and counts an attempt. Raises ``FinishedTrialError`` in other states.

        ``event``, here and below, is stored in the same transaction as the change.
        """

    def requeue(self, study_id: int, number: int, seconds: float, event: Event | None = None) -> Trial:
        """Moves a trial from RUNNING to WAITING for another attempt; ``seconds`` is how long the lost attempt took."""

    def begin_anew(self, study_id: int, spec: StudySpec, draft: TrialDraft, event: Event) -> Study:
        """Replaces the specification of a study and the draft of its baseline, which becomes WAITING, and removes its
        prior knowledge. Raises ``FinishedTrialError`` unless the only trial is the RUNNING baseline."""

    def add_cycle(self, study_id: int, number: int, attempt: int, cycle: CycleRecord, /) -> None:
        """Stores a cycle, durably on return; an equal cycle is stored once. Raises ``FinishedTrialError``."""

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
        """Moves a trial from RUNNING to a finished state. Raises ``FinishedTrialError`` from any other state."""

    def trial(self, study_id: int, number: int) -> Trial:
        """Returns a trial with the cycles of its last attempt."""

    def trials(self, study_id: int, since: int = 0, until: int | None = None) -> tuple[Trial, ...]:
        """Returns the trials from number ``since`` to below ``until``, with the cycles of their last attempts."""

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        """Returns the notes of the last attempt, in order; equal notes are stored once."""

    def add_event(self, study_id: int, event: Event) -> Event:
        """Stores an event with the next id."""

    def events(self, study_id: int, after: int = 0, limit: int = 1000, kind: str | None = None) -> tuple[Event, ...]:
        """Returns at most ``limit`` events with ids above ``after``, oldest first, of one ``kind`` if it is given."""

    def last_event_id(self, study_id: int) -> int:
        """Returns the greatest id of the study's events; 0 before the first."""

    def open_session(self, study_id: int, now: float) -> int:
        """Opens a session, one run of the tuner on the study. Returns its id."""

    def spend(self, session_id: int, wall_s: float, gpu_s: float, now: float) -> None:
        """Stores the wall and GPU seconds that a session has used so far: totals, not increments."""

    def spent(self, study_id: int) -> tuple[float, float]:
        """Sums the sessions of a study. Returns (wall seconds, GPU seconds)."""

    def save_fingerprint(self, study_id: int, fingerprint: Fingerprint, now: float) -> None: ...

    def fingerprint(self, study_id: int) -> Fingerprint | None:
        """Returns the newest fingerprint; ``None`` before the first."""

    def fingerprints(self, study_id: int) -> tuple[tuple[Fingerprint, float], ...]:
        """Returns all fingerprints, oldest first, each with the UTC seconds of its first storage."""

    def save_recommendation(self, study_id: int, recommendation: Recommendation) -> None: ...

    def recommendation(self, study_id: int) -> Recommendation | None:
        """Returns the newest recommendation; ``None`` before the first."""

    def lock(self, study_id: int) -> StudyLock:
        """Returns the lock of a study. Entering it raises ``StudyBusyError`` if another tuner holds it."""

    def is_locked(self, study_id: int) -> bool:
        """Tells whether a tuner holds the study's lock. The test never hinders a tuner that starts meanwhile."""

    def close(self) -> None: ...
