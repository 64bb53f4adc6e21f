"""Input of the supervisor: one child to run, with its grace periods."""

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
    """Seconds between SIGTERM and SIGKILL."""
    orphans_s: float = 1.0
    """Seconds between SIGTERM and SIGKILL for processes that an exited child left behind."""
    kill_s: float = 10.0
    """Seconds after SIGKILL until a process counts as unkillable."""
    linger_s: float = 5.0
    """Most seconds between the child's report and its exit."""
    restore_s: float = 60.0
    """Most seconds between a warm worker's report of a trial and its readiness for another."""
    stack_s: float = 1.0
    """Seconds for a hung child to write its stack to the log."""

    def within(self, seconds: float) -> Graces:
        """Returns grace periods that let two process trees, the trial's and its preloaded process's, end within
        ``seconds``."""
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
    """Server that must be ready first; the trial and the server end together."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to those of every trial."""
    gpus: tuple[str, ...] = ()
    """NVML's names of the trial's GPUs."""
    worker: Worker | None = None
    """Warm worker that runs the trial, if any; ``argv`` and ``tag`` are then the worker's."""

    @property
    def reuses(self) -> bool:
        """True if the job runs in the processes of an earlier trial."""
        return self.worker is not None and self.worker.alive
