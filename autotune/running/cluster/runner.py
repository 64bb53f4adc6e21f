"""Runs trials on other machines by agents, each trial on one or on several machines. Implements ``ports.TrialRunner``.

If an agent does not answer in time, because it, its machine or the network is gone, the outcome is INFRA, and the
attempt is repeated in another slot. An agent that hears no more from the tuner ends its trial.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from autotune.domain import FailureReason, Outcome
from autotune.domain.places import GPUS
from autotune.ports import Assignment, Clock, Diagnosis, Rendezvous, RunReport, StopToken, Watcher
from autotune.running.cluster.agent import Answer, End, Message
from autotune.running.local import PART
from trainer.child.contract import CurrentPhase, Nearness, NoteRecord, Record, Result

PULSE_S = 2.0
T = TypeVar("T")


class LostError(Exception):
    """Raised if an agent does not answer any more.

    Args:
        place: true if its trial slot is lost too: no other agent can start there.
    """

    def __init__(self, why: str, *, place: bool = False) -> None:
        super().__init__(why)
        self.place = place


class Remote(Protocol):
    """Interface of a remote ``Agent``. Each call may raise ``LostError``."""

    def free_port(self) -> int: ...

    def begin(self, assignment: Assignment) -> None: ...

    def hear(self, answer: Answer) -> list[Message]: ...

    def alive(self) -> None:
        """Tells the agent that the tuner is alive. Does not wait, and raises nothing."""

    def close(self) -> tuple[int, ...]: ...

    def sweep(self, study_id: int) -> tuple[int, ...]: ...


class PlaceRunner:
    """Runs attempts in one trial slot of a cluster.

    Args:
        hire: starts an agent in the slot; may raise ``LostError``.
        release: releases the slot.
        recover: reads an attempt's files in a folder that all machines share.
        agent: the first agent, if it runs already.
    """

    def __init__(
        self,
        hire: Callable[[], Remote],
        release: Callable[[], None],
        recover: Callable[[Path], tuple[tuple[Record, ...], Result | None]],
        clock: Clock,
        agent: Remote | None = None,
    ) -> None:
        self._hire, self._release, self._recover, self._clock = hire, release, recover, clock
        self._agent = agent
        self._over = threading.Event()
        threading.Thread(target=self._pulse, daemon=True, name="pulse").start()

    def _pulse(self) -> None:
        """Tells the agent regularly that the tuner is alive, also while the tuner is busy or has no trial for it."""
        while not self._over.wait(PULSE_S):
            if (agent := self._agent) is not None:
                agent.alive()

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        began, started = self._clock.monotonic(), False
        try:
            agent = self._at_rest(lambda agent: agent.begin(assignment))[0]
            started = True
            return _Attempt(agent, watcher, stop).follow()
        except LostError as lost:
            self._agent = None
            return lost_report(lost, self._clock.monotonic() - began, started)

    def free_port(self) -> int:
        """Returns a free port of the node. May raise ``LostError``."""
        return self._at_rest(lambda agent: agent.free_port())[1]

    def _at_rest(self, ask: Callable[[Remote], T]) -> tuple[Remote, T]:
        """Returns the agent with its answer; hires another agent if the first was lost while it was idle."""
        if self._agent is not None:
            with contextlib.suppress(LostError):
                return self._agent, ask(self._agent)
            self._agent = None
        agent = self._agent_of_place()
        return agent, ask(agent)

    def _agent_of_place(self) -> Remote:
        if self._agent is None:
            self._agent = self._hire()
        return self._agent

    def close(self) -> tuple[int, ...]:
        self._over.set()
        left: tuple[int, ...] = ()
        if self._agent is not None:
            with contextlib.suppress(LostError):
                left = self._agent.close()
            self._agent = None
        self._release()
        return left

    def sweep(self, study_id: int) -> tuple[int, ...]:
        try:
            return self._agent_of_place().sweep(study_id)
        except LostError:  # the first attempt there will say so
            self._agent = None
            return ()

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        return self._recover(directory)


def lost_report(lost: LostError, seconds: float, started: bool) -> RunReport:
    """Returns the report of an attempt whose agent is lost: INFRA."""
    outcome = Outcome(reason=FailureReason.INFRA, message=str(lost))
    return RunReport(outcome, seconds, absent=lost.place and not started, place_lost=str(lost) if lost.place else "")


class _Attempt:
    """Follows one attempt until its end."""

    def __init__(self, agent: Remote, watcher: Watcher, stop: StopToken) -> None:
        self._agent, self._watcher, self._stop = agent, watcher, stop
        self._stored = 0
        self._enough: bool | None = None
        self._failure: BaseException | None = None

    def follow(self) -> RunReport:
        """Follows the attempt and returns its report. Raises the watcher's error once the attempt has ended."""
        try:
            while True:
                for message in self._agent.hear(self._answer()):
                    if not isinstance(message, End):
                        self._tell(message)
                    elif self._failure is not None:
                        raise self._failure
                    elif message.error is not None:
                        raise message.error
                    elif message.report is not None:
                        return message.report
        except LostError:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _answer(self) -> Answer:
        if self._failure is None:
            try:
                self._watcher.tick()
                self._enough = self._watcher.enough
            except BaseException as error:
                self._failure = error
        return Answer(self._stop.level, self._stored, self._enough, self._failure is not None)

    def _tell(self, message: Record | CurrentPhase) -> None:
        if self._failure is not None:
            return
        try:
            if isinstance(message, CurrentPhase):
                self._watcher.phase(message)
            else:
                self._watcher.record(message)
                self._stored += 1
        except BaseException as error:
            self._failure = error


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
        reports: in order of arrival; among two equally close to the cause the first counts.
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
    """Ranks an outcome by its distance from the cause, 0 the nearest: some only result from another node's failure."""
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
