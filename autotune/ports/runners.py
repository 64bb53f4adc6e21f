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
    """The address where the ranks of an attempt on several nodes meet, and the number of this node."""

    address: str
    """Of the first node."""
    port: int
    """Free there."""
    node: int
    """From 0."""
    nodes: int


@dataclass(frozen=True)
class Assignment:
    """An attempt at a trial: the input of a runner."""

    study: Study
    trial: Trial
    directory: Path
    """Empty or absent before the attempt; everything the attempt leaves is in it."""
    deadline_s: float
    """Wall seconds after which the attempt is stopped as TIMEOUT."""
    meeting: Rendezvous | None = None
    """Of one node's part in an attempt on several; ``None``: all of its ranks are on one."""


@dataclass(frozen=True)
class RunReport:
    """A runner's report after an attempt whose process tree is gone."""

    outcome: Outcome
    seconds: float
    host_peak: int | None = None
    """Highest summed PSS of the tree, in bytes."""
    bad_lines: int = 0
    """Lines of ``metrics.jsonl`` that were no records."""
    quarantined: tuple[int, ...] = ()
    """Processes that could not be killed."""
    gpu_faults: tuple[str, ...] = ()
    """A sentence for each fault seen on a GPU; the runner keeps later trials off that GPU, as far as it has others."""
    compiled: bool = False
    """A compiler ran in the attempt: one that begins after it may find what was made, and need less memory."""
    absent: bool = False
    """Something every trial needs (the model, the prompts, the reward, its place) was not there, so nothing ran."""
    place_lost: str = ""
    """Why nothing can run in this place any more; empty: it can."""


class Watcher(Port):
    """Receives the progress of a running trial, in order, on the thread that called ``run``."""

    @property
    def enough(self) -> bool | None:
        """Whether the trial may end because its recorded cycles suffice; ``None`` if no early stopping applies.

        A runner looks after each RECORDED cycle it has passed on; a trial that ends for it has ended OK.
        """

    def record(self, record: Record) -> None: ...

    def phase(self, phase: CurrentPhase) -> None: ...

    def tick(self) -> None:
        """Called at least once a second while the trial runs."""


class TrialRunner(Port):
    """Runs one attempt at a time; no process is left but a warm worker that waits for the next trial."""

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        """Returns only when no process of the attempt is left (or it is quarantined), but for an idle worker.

        Expected failures are outcomes, never exceptions.
        """

    def close(self) -> tuple[int, ...]:
        """Ends the processes kept for a next trial; returns those that cannot be ended. May be called twice."""

    def sweep(self, study_id: int) -> tuple[int, ...]:
        """Kills the processes that an earlier tuner of this study left; returns their ids."""

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        """Whole records and the result (if any) that an interrupted attempt left in ``directory``."""


class Crew(Port):
    """Runs several attempts at a time, each in a place of its own: all a scheduler of trials talks to.

    Whatever the attempts tell their watchers is told on the thread that waits.
    """

    @property
    def places(self) -> tuple[str, ...]:
        """For each place where it is, in words (``GPU 3``); empty where there is nothing to tell apart."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """For each place the name of its machine; empty where there is one machine."""

    def start(self, place: int, assignment: Assignment, watcher: Watcher) -> None:
        """Begins an attempt in a place that has none."""

    def wait(self, timeout_s: float) -> tuple[tuple[int, RunReport], ...]:
        """Places whose attempts have ended, with their reports: at the latest after ``timeout_s``, then none perhaps.

        A crew of one place may take as long as its attempt.
        """

    def close(self) -> tuple[int, ...]:
        """As ``TrialRunner.close``; attempts that still run are ended first, and their reports are lost."""

    def sweep(self, study_id: int) -> tuple[int, ...]:
        """As ``TrialRunner.sweep``."""

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        """As ``TrialRunner.recover``."""
