"""Protocols of a trial runner: its input, its progress callbacks and its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Port

from autotune.domain import Outcome, Study, Trial
from autotune.ports.people import StopToken
from trainer.child.contract import CurrentPhase, Record, Result


@dataclass(frozen=True)
class Rendezvous:
    """Address where the ranks of an attempt on several nodes meet, with the number of this node."""

    address: str
    """Host address of the first node."""
    port: int
    """Free port on the first node."""
    node: int
    """Number of this node, from 0."""
    nodes: int


@dataclass(frozen=True)
class Assignment:
    """Input of a runner: one attempt at a trial."""

    study: Study
    trial: Trial
    directory: Path
    """Folder of all files of the attempt; empty or absent before it."""
    deadline_s: float
    """Wall seconds after which the attempt is stopped as TIMEOUT."""
    meeting: Rendezvous | None = None
    """Rendezvous of an attempt on several nodes, for the part of this node; ``None`` if all ranks are on one node."""


@dataclass(frozen=True)
class RunReport:
    """Report of a runner after an attempt whose process tree has ended."""

    outcome: Outcome
    seconds: float
    host_peak: int | None = None
    """Highest summed PSS of the process tree, in bytes."""
    bad_lines: int = 0
    """Number of unreadable lines in ``metrics.jsonl``."""
    quarantined: tuple[int, ...] = ()
    """Ids of the processes that could not be killed."""
    gpu_faults: tuple[str, ...] = ()
    """One sentence for each fault of a GPU. The runner avoids that GPU for later trials while it has others."""
    compiled: bool = False
    """True if a compiler ran in the attempt. A later attempt may reuse its cache and need less memory."""
    absent: bool = False
    """True if nothing ran because something that every trial needs was missing: the model, prompts, reward or slot."""
    place_lost: str = ""
    """Reason why no trial can run in this slot any more; empty if trials can."""


class Watcher(Port):
    """Receives the progress of a running trial, in order, on the thread that called ``run``."""

    @property
    def enough(self) -> bool | None:
        """True if the recorded cycles suffice and the trial may end as OK; ``None`` if no early stopping applies.

        A runner reads it after each RECORDED cycle.
        """

    def record(self, record: Record) -> None: ...

    def phase(self, phase: CurrentPhase) -> None: ...

    def tick(self) -> None:
        """Receives a sign of life at least once a second while the trial runs."""


class TrialRunner(Port):
    """Runs one attempt at a time. Between attempts, only an idle warm worker may remain."""

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        """Runs an attempt. Returns when only an idle worker or quarantined processes of it remain.

        Expected failures are outcomes, never exceptions.
        """

    def close(self) -> tuple[int, ...]:
        """Ends the processes kept for a next trial. Returns the ids of those that do not end. Can be called twice."""

    def sweep(self, study_id: int) -> tuple[int, ...]:
        """Kills processes that an earlier tuner of this study left running. Returns their ids."""

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        """Reads the whole records and the result, if any, that an interrupted attempt left in ``directory``."""


class Crew(Port):
    """Runs several attempts at a time, each in its own place (trial slot), for the scheduler of trials.

    Watchers are called on the thread that waits.
    """

    @property
    def places(self) -> tuple[str, ...]:
        """Name of each slot (``GPU 3``); empty if there is only one slot."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Machine of each slot; empty if there is one machine."""

    def start(self, place: int, assignment: Assignment, watcher: Watcher) -> None:
        """Starts an attempt in the free slot with index ``place``."""

    def wait(self, timeout_s: float) -> tuple[tuple[int, RunReport], ...]:
        """Waits up to ``timeout_s`` seconds for attempts to end. Returns slot indices and reports; may be empty.

        If the crew has one slot, the call may last until its attempt ends.
        """

    def close(self) -> tuple[int, ...]:
        """Ends running attempts without their reports, then closes as ``TrialRunner.close`` does."""

    def sweep(self, study_id: int) -> tuple[int, ...]:
        """Kills leftover processes as ``TrialRunner.sweep`` does."""

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        """Reads an interrupted attempt as ``TrialRunner.recover`` does."""
