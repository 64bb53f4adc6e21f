"""Agent on a machine of a cluster: runs trials with the local runner and reports to the tuner on another machine.

The tuner calls ``hear`` repeatedly while a trial runs. Each call acknowledges the stored records, and says whether to
stop and whether the trial has enough cycles. A record waits until it is acknowledged, as it does if runner and tuner
share a process. While the tuner is busy with a proposal, it calls ``alive`` instead. After ``silence_s`` seconds
without a call the agent considers the tuner dead and ends its trial.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.domain import FailureReason
from autotune.machine import hardware
from autotune.machine.lanes import Lane, lanes
from autotune.ports import Assignment, RunReport
from autotune.running.cluster.guardian import Guardian
from autotune.running.companion import free_ports
from autotune.running.local import LocalRunner
from trainer.child.contract import CurrentPhase, Record

SILENCE_S = 30.0
IDLE = 4
"""An agent without a trial waits ``IDLE`` times ``silence_s`` for the tuner, because a sweep may take long."""
LOOK_S = 0.5
"""Most seconds for which ``hear`` waits for a message."""


@dataclass(frozen=True)
class Share:
    """An agent's share of its machine."""

    place: int
    """Index of the trial slot in the study; the parts of one trial on several machines have the same index."""
    index: int
    """Index of the slot on its machine."""
    count: int
    """Number of slots on the same machine."""
    gpus: int


@dataclass(frozen=True)
class Facts:
    """Properties of the machine and the GPUs of an agent."""

    name: str
    """Name of the agent's GPUs or CPUs, for people."""
    gpus: tuple[tuple[str, int], ...]
    """Kind and memory in bytes of each GPU of the agent."""
    memory: int | None
    """Bytes of host memory that a trial may use; ``None``: no limit."""
    shares_folder: bool
    """True if the agent reads the tuner's test file in the tuner's folder."""


@dataclass(frozen=True)
class Answer:
    """The tuner's reply to an agent's report."""

    level: int = 0
    """Level of the user's stop, as of ``StopToken``."""
    stored: int = 0
    """Number of the attempt's records that the tuner has stored."""
    enough: bool | None = None
    failed: bool = False
    """True if the tuner cannot store a record; the agent then ends the attempt."""


@dataclass(frozen=True)
class End:
    """Last message of an attempt: its report, or an error for the tuner to raise."""

    report: RunReport | None = None
    error: BaseException | None = None


Message = Record | CurrentPhase | End


class TunerFailedError(Exception):
    """Raised if the tuner could not store a record."""


class Agent:
    """Runs one attempt at a time for a tuner on another machine; one thread calls its methods.

    Args:
        runner: a runner for the whole machine, as on the tuner's machine.
        share: the agent's share of this machine.
        environment: the tuner's variables for trials; those of this machine take precedence.
    """

    def __init__(
        self,
        runner: LocalRunner,
        share: Share,
        environment: Mapping[str, str] | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._guardian = Guardian()
        _surroundings(environment, share)
        self._lane = _lane(share)
        self._runner = replace(runner, lane=self._lane, agent=secrets.token_hex(4))
        self._silence_s = silence_s
        self._wire: _Wire | None = None
        self._thread: threading.Thread | None = None
        self._heard_at: float | None = None
        self._closed = False
        threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True, name="parent").start()

    def meet(self, file: Path, text: str) -> Facts:
        """Returns the agent's machine and GPUs, and whether ``file`` contains the ``text`` that the tuner wrote."""
        gpus = hardware.visible_gpus()[: len(self._lane.gpus)]
        name = replace(self._lane, gpus=tuple(gpu.index for gpu in gpus)).name
        try:
            there = file.read_text(encoding="utf-8") == text
        except OSError:
            there = False
        return Facts(name, tuple((gpu.name, gpu.memory) for gpu in gpus), self._lane.memory, there)

    def free_port(self) -> int:
        """Returns a port of this machine that no process listens at."""
        return free_ports(1, "")[0]

    def begin(self, assignment: Assignment) -> None:
        """Starts an attempt; ``hear`` returns its messages."""
        if self._thread is not None:
            self._thread.join()
        self._guardian.keep(self._runner.tags(assignment))
        self._wire = _Wire(self._silence_s)
        self._thread = threading.Thread(target=self._run, args=(assignment, self._wire), daemon=True, name="attempt")
        self._thread.start()

    def _run(self, assignment: Assignment, wire: _Wire) -> None:
        limits = [n for n in (assignment.study.spec.memory_limit, self._lane.memory) if n is not None]
        runner = replace(self._runner, memory_limit=min(limits, default=None))
        try:
            report = runner.run(assignment, wire, wire)
        except BaseException as error:  # it is the tuner's to raise
            wire.out.put(End(error=error))
        else:
            wire.out.put(End(report=_lost(report) if wire.silent else report))
        if wire.silent:
            self._runner.close()

    def hear(self, answer: Answer) -> list[Message]:
        """Returns the attempt's messages since the last call; empty after ``LOOK_S`` seconds without one."""
        assert self._wire is not None  # noqa: S101  (narrowing)
        return self._wire.exchange(answer)

    def alive(self) -> None:
        """Records that the tuner is alive although it does not call ``hear``."""
        self._heard_at = time.monotonic()
        if self._wire is not None:
            self._wire.beat()

    def attended(self) -> None:
        """Marks the tuner as alive; after the first call this process ends when such calls stop."""
        first = self._heard_at is None
        self.alive()
        if first:
            threading.Thread(target=self._leave_alone, daemon=True, name="tuner").start()

    def _leave_alone(self) -> None:
        """Ends this process once the tuner is gone and nothing runs: Ray keeps actors on a disconnected node alive."""
        while not self._closed:
            idle = self._thread is None or not self._thread.is_alive()
            if idle and time.monotonic() - (self._heard_at or 0.0) > IDLE * self._silence_s:
                os._exit(1)
            time.sleep(LOOK_S)

    def close(self) -> tuple[int, ...]:
        """Closes the runner, as ``TrialRunner.close`` does."""
        self._closed = True
        left = self._runner.close()
        self._guardian.keep(())
        return left

    def sweep(self, study_id: int) -> tuple[int, ...]:
        """Ends leftover processes on this machine, as ``TrialRunner.sweep`` does."""
        return self._runner.sweep(study_id)


class _Wire:
    """Implements ``ports.Watcher`` and ``ports.StopToken`` for an attempt whose tuner is on another machine."""

    def __init__(self, silence_s: float) -> None:
        self.out: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._silence_s = silence_s
        self._heard_at = time.monotonic()
        self._gone = False
        self._answered = threading.Condition()
        self._answer = Answer()
        self._sent = 0

    @property
    def silent(self) -> bool:
        """True once the tuner was silent for ``silence_s``; the trial is then being ended."""
        self._gone = self._gone or time.monotonic() - self._heard_at > self._silence_s
        return self._gone

    @property
    def level(self) -> int:
        return 2 if self.silent else self._answer.level

    @property
    def enough(self) -> bool | None:
        return self._answer.enough

    def record(self, record: Record) -> None:
        self._sent += 1
        self.out.put(record)
        with self._answered:
            while self._answer.stored < self._sent and not self._answer.failed and not self.silent:
                self._answered.wait(LOOK_S)
        if self._answer.failed:
            raise TunerFailedError

    def phase(self, phase: CurrentPhase) -> None:
        self.out.put(phase)

    def tick(self) -> None:
        """Raises ``TunerFailedError`` if the tuner failed; the tuner itself does the periodic work of a tick."""
        if self._answer.failed:
            raise TunerFailedError

    def beat(self) -> None:
        self._heard_at = time.monotonic()

    def exchange(self, answer: Answer) -> list[Message]:
        self.beat()
        with self._answered:
            self._answer = answer
            self._answered.notify_all()
        found: list[Message] = []
        try:
            found.append(self.out.get(timeout=LOOK_S))
            while True:
                found.append(self.out.get_nowait())
        except queue.Empty:
            return found


def _leave_with(parent: int) -> None:
    """Waits until the Ray daemon, our parent, is gone, then ends this process; its guardian then ends the trial."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


def _lost(report: RunReport) -> RunReport:
    gone = replace(report.outcome, reason=FailureReason.INFRA, pool=None, message="the tuner was not heard of any more")
    return replace(report, outcome=gone)


def _lane(share: Share) -> Lane:
    """Returns the lane of a share: all visible GPUs, since the cluster chose them; memory is split between slots."""
    cpus = hardware.by_core(os.sched_getaffinity(0))[: max(1, hardware.usable_cores())]
    count = min(share.count, len(cpus))  # where there are fewer cores than places, some share one
    memory = None if share.count == 1 else (hardware.usable_memory() or 0) // share.count or None
    found = lanes(count, share.gpus, cpus, None, None, threads=hardware.threads_of_core())[share.index % count]
    return replace(found, index=share.place, gpus=tuple(range(share.gpus)), memory=memory)


def _surroundings(environment: Mapping[str, str] | None, share: Share) -> None:
    """Sets the environment of trials started here, without ``OMP_NUM_THREADS``: Ray derives it from an actor's CPUs."""
    os.environ.pop("OMP_NUM_THREADS", None)
    if share.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name, value in (environment or {}).items():
        os.environ.setdefault(name, value)
