"""One attempt at a trial: what a runner is given, what it tells meanwhile, and what it knows afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Port

from autotune.domain import Outcome, Study, Trial
from autotune.ports.people import StopToken
from trainer.child.contract import CurrentPhase, Record, Result


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
    compiled: bool = False
    """A compiler ran in the attempt: one that begins after it may find what was made, and need less memory."""


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
