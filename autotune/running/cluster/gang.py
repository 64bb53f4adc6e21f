"""Runs a trial on several nodes: a runner on each, with one report. Implements ``ports.TrialRunner``.

Each node has its own folder within the attempt's, so that no two nodes write one file. ``torchrun`` starts the ranks
with the first node's address and a free port of it. If one node fails or is lost, the others are stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.domain import FailureReason, Outcome
from autotune.domain.places import GPUS
from autotune.ports import Assignment, Clock, Diagnosis, Rendezvous, RunReport, StopToken, Watcher
from autotune.running.cluster.runner import LostError, PlaceRunner, lost_report
from autotune.running.local import PART
from trainer.child.contract import CurrentPhase, Nearness, NoteRecord, Record, Result

Diagnose = Callable[[str], Diagnosis | None]


class GangRunner:
    """Runs attempts on several nodes at once, each in its own thread; watcher calls are serialised.

    Args:
        parts: a runner on each node.
        address: address of the first node.
        diagnose: finds the cause in the text of a failure.
    """

    def __init__(self, parts: Sequence[PlaceRunner], address: str, diagnose: Diagnose, clock: Clock) -> None:
        self._parts, self._address, self._diagnose, self._clock = tuple(parts), address, diagnose, clock

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        began = self._clock.monotonic()
        try:
            port = self._parts[0].free_port()
        except LostError as lost:
            return lost_report(lost, self._clock.monotonic() - began, started=False)
        together = _Together(watcher, stop)
        ended: list[RunReport] = []

        def attend(number: int) -> None:
            meeting = Rendezvous(self._address, port, number, len(self._parts))
            own = replace(assignment, directory=part_of(assignment.directory, number), meeting=meeting)
            try:
                report = self._parts[number].run(own, _NodeWatcher(together, first=number == 0), together)
            except BaseException:
                together.over = True
                raise
            together.over = together.over or not report.outcome.ok
            ended.append(report)

        with ThreadPoolExecutor(len(self._parts), thread_name_prefix="node") as threads:
            parts = [threads.submit(attend, number) for number in range(len(self._parts))]
        for part in parts:
            part.result()
        return replace(report_of_all(ended, self._diagnose), seconds=self._clock.monotonic() - began)

    def close(self) -> tuple[int, ...]:
        return tuple(pid for part in self._parts for pid in part.close())

    def sweep(self, study_id: int) -> tuple[int, ...]:
        return tuple(pid for part in self._parts for pid in part.sweep(study_id))

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        found = [part.recover(part_of(directory, number)) for number, part in enumerate(self._parts)]
        return tuple(record for records, _ in found for record in records), found[0][1]


def part_of(directory: Path, number: int) -> Path:
    """Returns the folder of a node, counted from 0, for an attempt; the first node has the attempt's own folder."""
    return directory / f"{PART}{number + 1}" if number else directory


def report_of_all(reports: Sequence[RunReport], diagnose: Diagnose) -> RunReport:
    """Joins the reports of all nodes into one. Pure.

    Args:
        reports: in order of arrival; of two equally close to the cause the first counts.
    """
    cause = min(reports, key=lambda report: _distance(report.outcome, diagnose))
    return replace(
        cause,
        host_peak=max((r.host_peak for r in reports if r.host_peak is not None), default=None),
        bad_lines=sum(r.bad_lines for r in reports),
        quarantined=tuple(pid for r in reports for pid in r.quarantined),
        gpu_faults=tuple(fault for r in reports for fault in r.gpu_faults),
        compiled=any(r.compiled for r in reports),
        absent=any(r.absent for r in reports),
        place_lost="; ".join(r.place_lost for r in reports if r.place_lost),
    )


def _distance(outcome: Outcome, diagnose: Diagnose) -> int:
    """Ranks an outcome by its distance from the cause, 0 the nearest: some only follow another node's failure."""
    reason = outcome.reason
    if reason is None:
        return 6
    if reason is FailureReason.CANCELLED:
        return 5
    if reason is FailureReason.CRASH:
        said = diagnose(outcome.message)
        return 4 if said is not None and said.nearness is Nearness.ECHO else 2
    if reason in (FailureReason.HANG, FailureReason.TIMEOUT):
        return 3
    return 1 if reason is FailureReason.INFRA else 0


class _Together:
    """Watcher and stop token that the runners of all nodes share; calls are serialised."""

    def __init__(self, watcher: Watcher, stop: StopToken) -> None:
        self._watcher, self._stop, self._lock = watcher, stop, threading.Lock()
        self._held: list[Any] = []
        self.over = False
        """True once a node has failed; the others are then stopped."""

    @property
    def level(self) -> int:
        return 2 if self.over else self._stop.level

    @property
    def enough(self) -> bool | None:
        with self._lock:
            return self._watcher.enough

    def record(self, record: Record) -> None:
        with self._lock:
            if isinstance(record, NoteRecord) and record.name == GPUS:
                self._held += record.data["held"]
                record = NoteRecord(GPUS, {"held": list(self._held)})
            self._watcher.record(record)

    def phase(self, phase: CurrentPhase) -> None:
        with self._lock:
            self._watcher.phase(phase)

    def tick(self) -> None:
        with self._lock:
            self._watcher.tick()


class _NodeWatcher:
    """Watcher of one node, as ``ports.Watcher``; only the first node's phase is shown."""

    def __init__(self, together: _Together, first: bool) -> None:
        self._together, self._first = together, first

    @property
    def enough(self) -> bool | None:
        return self._together.enough

    def record(self, record: Record) -> None:
        self._together.record(record)

    def phase(self, phase: CurrentPhase) -> None:
        if self._first:
            self._together.phase(phase)

    def tick(self) -> None:
        self._together.tick()
