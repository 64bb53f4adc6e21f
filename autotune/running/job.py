"""The supervisor's input: one child to run, with its grace periods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotune.ports import Companion
from autotune.running.gpu_guard import GpuUseGuard
from autotune.running.warm_worker import Worker
from trainer.child.contract import RunPaths


@dataclass(frozen=True)
class Graces:
    """Grace periods for ending a process tree, in seconds."""

    terminate_s: float = 5.0
    """Between SIGTERM and SIGKILL."""
    orphans_s: float = 1.0
    """The same for what a child that has exited left behind."""
    kill_s: float = 10.0
    """After SIGKILL, before a process counts as unkillable."""
    linger_s: float = 5.0
    """Between the child's report and its exit."""
    restore_s: float = 60.0
    """Between a warm worker's report of a trial and its being ready for another."""
    stack_s: float = 1.0
    """For a hung child to write its stack to the log."""

    def within(self, seconds: float) -> Graces:
        """So short that two process trees, the trial's and what it was forked from, end within ``seconds``."""
        return replace(self, terminate_s=min(self.terminate_s, seconds / 8), kill_s=min(self.kill_s, seconds / 4))


@dataclass(frozen=True)
class Job:
    """One child process to run."""

    argv: tuple[str, ...]
    paths: RunPaths
    tag: str
    deadline_s: float
    memory_limit: int | None = None
    guard: GpuUseGuard = field(default_factory=GpuUseGuard)
    companion: Companion | None = None
    """A server that must be ready first; the trial ends with it, and it with the trial."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of what every trial sees."""
    gpus: tuple[str, ...] = ()
    """NVML's names of the GPUs it holds."""
    worker: Worker | None = None
    """Who runs the trial, if it is not a process of its own; ``argv`` and ``tag`` are then the worker's."""

    @property
    def reuses(self) -> bool:
        """Whether the job runs in the processes of the previous trial."""
        return self.worker is not None and self.worker.alive
