"""The parent's side of a warm worker: its process, its mailbox, and whether it may run another trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.ports import Clock
from autotune.running.gpu_guard import FREE_BYTES, GpuUseGuard
from autotune.running.log import CappedLog, LogPump
from autotune.running.proc import Stat
from autotune.running.process_tree import Child, ProcessTree
from trainer.child.contract import ContractError, Letter, Mailbox, WorkerReply

FLOOR_SHARE = 0.05
FLOOR_BYTES = 64 << 20
"""Largest growth of a worker's host memory between trials, relative to its first value, and in bytes; the larger
counts. On a GPU, where libraries load in the second trial too, the first value is the higher of the first two."""


@dataclass(frozen=True)
class Process:
    """A child process that continues after its trials."""

    child: Child
    pump: LogPump
    tree: ProcessTree


@dataclass
class Worker:
    """One warm worker; runs at most one trial at a time."""

    name: str
    tag: str
    mailbox: Mailbox
    guard: GpuUseGuard = field(default_factory=GpuUseGuard)
    """Guard of the worker's first trial, which knows the GPU's users from before the worker."""
    process: Process | None = None
    """The worker's process; ``None`` before its start and after its end."""
    served: int = 0
    """Number of trials sent to the worker."""
    resting: bool = False
    """True after a trial, while the worker can take another."""
    unfit: str = ""
    """Reason why the worker must not take another trial; empty without one."""
    _first: WorkerReply | None = None
    """Worker's first answer; on a GPU with the higher memory floor of its first two."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.child.poll() is None

    @property
    def answered(self) -> bool:
        """True if the current trial has ended and the worker has cleaned up."""
        return self.served > 0 and self.mailbox.answer(self.served).exists()

    def call(self, directory: Path) -> None:
        """Sends the worker the trial in ``directory``. Raises ``OSError`` if the message cannot be written."""
        self.resting = False
        self.mailbox.scratch.mkdir(parents=True, exist_ok=True)
        self.mailbox.send(self.served + 1, Letter(str(directory), self.name))
        self.served += 1

    def may_stay(self) -> bool:
        """Tells whether the worker may run another trial; called once after each trial that ended OK. ``unfit`` gives
        the reason against."""
        if not self.alive or self.process is None:
            self.unfit = "it has ended"
            return False
        try:
            answer = self.mailbox.read_answer(self.served)
        except ContractError as error:
            self.unfit = str(error)
            return False
        if answer is None:
            self.unfit = "it did not say that it is ready"
            return False
        self._first = self._first or answer
        if answer.device is not None and self.served <= 2:
            self._first = replace(self._first, floor=max(answer.floor, self._first.floor))
        others = [m for m in self.process.tree.refresh(full=True) if m.pid != self.process.child.pid]
        self.unfit = unfit(self._first, answer, others) or ""
        return not self.unfit

    def rest(self) -> None:
        """Ends the trial's log; later output goes into the worker's own log."""
        if self.process is not None:
            self.process.pump.redirect(CappedLog(self.mailbox.log))
            self.resting = True

    def end(self, clock: Clock, grace_s: float, patience_s: float) -> tuple[int, ...]:
        """Ends all processes of the worker by ``ProcessTree.kill``; returns the ids that cannot be ended."""
        process, self.process = self.process, None
        if process is None:
            return ()
        left = process.tree.kill(clock, grace_s, patience_s)
        process.pump.finish()
        return left


def unfit(first: WorkerReply, now: WorkerReply, others: Sequence[Stat]) -> str | None:
    """Returns the reason why a worker must not take another trial; ``None`` if it may. Pure.

    Args:
        first: the worker's answer after its first trial; on a GPU with the higher floor of the first two.
        others: other processes of the worker's tree, which a process of the trial's own would have ended.
    """
    if now.left:
        return f"of the last trial there is still its {now.left}"
    if others:
        return f"the last trial left {len(others)} process{'' if len(others) == 1 else 'es'} running"
    if now.floor > first.floor + max(FLOOR_BYTES, FLOOR_SHARE * first.floor):
        return f"it holds {now.floor / 2**30:.2f} GiB between trials, {first.floor / 2**30:.2f} GiB at first"
    if now.device is not None and first.device is not None and now.device > first.device + FREE_BYTES:
        return f"{now.device / 2**30:.2f} GiB of its GPU are used between trials, {first.device / 2**30:.2f} at first"
    return None
