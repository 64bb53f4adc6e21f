"""What the tuner needs from the outside, as protocols. Each has a behavioural suite in tests/contracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, runtime_checkable
from typing import Protocol as Port

from autotune.domain import (
    Beforehand,
    Configuration,
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
from trainer.child.contract import CurrentPhase, NoteRecord, Record, Result, TrialSpec, WorstCaseRecord

__all__ = [
    "Assignment",
    "Clock",
    "Companion",
    "Diagnosis",
    "Framework",
    "Observer",
    "Place",
    "PreparingProposer",
    "Proposer",
    "Requests",
    "RunReport",
    "StopToken",
    "Store",
    "StudyLock",
    "TrialRunner",
    "Watcher",
]


class Clock(Port):
    """Time. ``monotonic`` never jumps; ``now`` is UTC seconds since the epoch, for people."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Proposer(Port):
    """Decides what to try next. Keeps nothing: the same arguments always give the same answer."""

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """The next configuration and who proposed it (``Trial.source``).

        Args:
            history: every trial of the study so far, any kind and state, by number. CANCELLED and
                INFRA failures teach nothing; RUNNING ones count as taken.
            number: of the trial to be proposed; with the study's seed it seeds the sampler.

        Returns:
            A legal configuration no trial of ``history`` has had and no OOM of it rules out, or
            ``None`` when none is left.
        """
        ...

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        """The sentence saying which OOM rules ``configuration`` out, or ``None``."""
        ...

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        """How many of the legal configurations the OOMs of ``history`` rule out, those that met one included."""
        ...


@runtime_checkable
class PreparingProposer(Port):
    """A proposer that can use the time a trial takes."""

    def prepare(self, history: Sequence[Trial], number: int) -> None:
        """Get ready to propose ``number`` once the newest trial of ``history``, which is running, has ended.

        Proposals are the same whether they were prepared or not.
        """
        ...


@dataclass(frozen=True)
class Assignment:
    """One attempt at one trial, as a runner needs it."""

    study: Study
    trial: Trial
    directory: Path
    """Empty or absent before the attempt; everything the attempt leaves is in it."""
    deadline_s: float
    """Wall seconds after which the attempt is stopped as TIMEOUT."""


@dataclass(frozen=True)
class Place:
    """Where a trial runs: what a rollout server's launch and the way to it depend on."""

    python: str
    gpus: tuple[str, ...]
    """Those held, as ``CUDA_VISIBLE_DEVICES`` names them; empty on a CPU."""
    port: int
    """Free on the loopback a moment ago; the server's."""
    group_port: int
    """The same, for passing weights on."""


@dataclass(frozen=True)
class Companion:
    """The rollout server of a trial: up before the trial's own process is started, gone with it."""

    argv: tuple[str, ...]
    spec: TrialSpec
    """The trial's, with the way to the server."""
    health: str
    """URL that answers 200 when the server is ready."""
    answer: str
    """What that answer holds if it is this server that gives it, and no stranger at the same port."""
    ready_s: float
    """How long it may take to be ready."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The server's, on top of what a trial sees."""
    trial_environment: Mapping[str, str] = field(default_factory=dict)
    """The trial's own, the same way."""


@dataclass(frozen=True)
class RunReport:
    """What a runner knows when an attempt has ended and its process tree is gone."""

    outcome: Outcome
    seconds: float
    host_peak: int | None = None
    """Highest summed PSS of the tree, in bytes."""
    bad_lines: int = 0
    """Lines of ``metrics.jsonl`` that were no records."""
    quarantined: tuple[int, ...] = ()
    """Processes that could not be killed."""


class Watcher(Port):
    """Told what a running trial does, in order, from the thread that called ``run``."""

    @property
    def enough(self) -> bool | None:
        """Whether the trial is to end, its recorded cycles so far being enough; ``None`` if nobody weighs them.

        A runner looks after each RECORDED cycle it has passed on; a trial that ends for it has ended OK.
        """
        ...

    def record(self, record: Record) -> None: ...

    def phase(self, phase: CurrentPhase) -> None: ...

    def tick(self) -> None:
        """Called at least once a second while the trial runs."""
        ...


class StopToken(Port):
    """What the user asked for: 0 go on, 1 finish the running trial, 2 stop now."""

    @property
    def level(self) -> int: ...


class Requests(Port):
    """What others ask of a running tuner, beside a stop."""

    def hold(self) -> float:
        """Waits while the study is paused; the seconds it waited."""
        ...

    def retries(self) -> tuple[int, ...]:
        """Numbers of trials whose configurations shall be run again, each request once."""
        ...


class TrialRunner(Port):
    """Runs one attempt at a time and leaves none of its processes behind, but for one that waits for the next."""

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        """Returns only when no process of the attempt is left (or it is quarantined), but for an idle worker.

        Expected failures are outcomes, never exceptions.
        """
        ...

    def close(self) -> tuple[int, ...]:
        """End whatever is kept for the next trial; returns the processes that cannot be ended. May be called twice."""
        ...

    def sweep(self, study_id: int) -> tuple[int, ...]:
        """Kill whatever processes of this study an earlier tuner left; returns their ids."""
        ...

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        """Whole records and the result (if any) that an interrupted attempt left in ``directory``."""
        ...


@dataclass(frozen=True)
class Diagnosis:
    """A failure recognised by its text."""

    reason: Any
    """``FailureReason``."""
    pool: Any = None
    phase: str | None = None
    message: str = ""
    suggestion: str = ""


class Framework(Port):
    """The parent's side of one training framework; pure."""

    @property
    def name(self) -> str: ...

    def render(self, assignment: Assignment) -> TrialSpec:
        """The assignment in the framework's own words."""
        ...

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        """The rollout server the trial needs beside it, ``None`` if it needs none.

        Raises:
            ValueError: the server cannot be had on the GPUs of ``place``.
        """
        ...

    def diagnose(self, text: str) -> Diagnosis | None:
        """What a log text says went wrong, by the framework's known strings; last cause first."""
        ...

    def suggest(self, outcome: Outcome) -> str:
        """One suggestion for an outcome that has none yet; empty if there is nothing to say."""
        ...


class StudyLock(Port):
    """Held while a tuner runs a study; released by leaving the ``with`` or by the process's death."""

    def __enter__(self) -> StudyLock: ...

    def __exit__(self, *details: object) -> None: ...


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

    def trials(self, study_id: int, since: int = 0) -> tuple[Trial, ...]:
        """All numbered ``since`` or later, by number, with their cycles of the last attempt."""
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

    def close(self) -> None: ...


class Observer(Port):
    """Shown what a study does; must not fail."""

    def event(self, event: Event) -> None: ...

    def trial(self, trial: Trial) -> None:
        """A trial was added, started, gained a cycle, or ended."""
        ...

    def phase(self, trial: Trial, phase: CurrentPhase) -> None: ...

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None: ...


Now = Callable[[], float]
PlainData = Mapping[str, Any]
