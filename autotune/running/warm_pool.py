"""Keeps at most one idle warm worker, and decides which trials it may run. See docs/decisions/0023-warm-workers.md.

A failure in a used process may be the process's fault: the trial is repeated in its own process
(``doubt_used_process``).
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.domain import Configuration, FailureReason, Outcome, Study, Trial, TrialKind
from autotune.ports import Clock, StopToken, Watcher
from autotune.running.ending import Ending
from autotune.running.gpu_guard import GpuUseGuard
from autotune.running.job import Graces, Job
from autotune.running.launch import launched
from autotune.running.supervisor import Supervisor
from autotune.running.warm_worker import Worker
from search_spaces.frameworks import facts_of
from search_spaces.knobs import restart_between
from search_spaces.knobs.model import Restart
from trainer.child.contract import Mailbox, NoteRecord, RunPaths, TrialSpec

LARGEST_RESTART = Restart.NONE
"""Largest restart that a warm worker can do without; anything above starts a new process."""


def restores_memory(device: str) -> bool:
    """Tells whether a used process on ``device`` (``Resources.device``) returns to its first trial's memory. Pure.

    On a CPU it does not: a second trial in the same heap peaked up to a quarter higher
    (docs/decisions/0023-warm-workers.md). Device memory is returned completely, which is not yet measured on a GPU.
    """
    return device == "cuda"


@dataclass(frozen=True)
class WorkerKey:
    """Properties of a trial that decide which worker may run it."""

    key: str
    """Text that must be equal for two trials of one process: interpreter, study, environment, GPUs, memory limit."""
    configuration: Configuration
    fresh: bool
    """True if the trial must be the first of its process."""


def shares_process(trial: Trial) -> bool:
    """Tells whether another trial may run in the process of ``trial``, before or after it. Pure."""
    return trial.attempt <= 1 and trial.kind.is_searched


def worker_key(study: Study, trial: Trial, spec: TrialSpec, job: Job, python: str) -> WorkerKey | None:
    """Returns the requirements of a trial on its worker; ``None`` if the trial needs its own processes. Pure.

    Confirmation, verification and repeated attempts, several ranks, trials with a rollout server and trials of a
    framework that cannot be reset always have their own processes. The baseline is the first trial of its process,
    which others may then use.
    """
    alone = job.companion is not None or launched(spec) or facts_of(spec.framework).serves_once
    if alone or not shares_process(trial):
        return None
    key = (python, study.id, study.spec.digest, spec.framework, sorted(job.environment.items()), job.memory_limit)
    return WorkerKey(repr(key), trial.configuration, fresh=trial.kind is TrialKind.BASELINE)


def doubt_used_process(outcome: Outcome, before: int) -> Outcome:
    """Turns a failure in a used process into INFRA, because earlier trials may have caused it. Pure.

    ``before`` is the number of earlier trials of the process. An INFRA trial is repeated once, in its own process. A
    TIMEOUT stays: repeating it would cost as much again.
    """
    if before == 0 or outcome.ok or outcome.inconclusive or outcome.reason is FailureReason.TIMEOUT:
        return outcome
    trials = "another trial" if before == 1 else f"{before} other trials"
    why = f"in a process that had run {trials} before: {outcome.sentence()}"
    return replace(outcome, reason=FailureReason.INFRA, pool=None, message=why, suggestion="")


@dataclass
class WarmWorkerPool:
    """Holds at most one worker; the owner calls ``end`` when it needs no more."""

    root: Path
    """Folder of the mailboxes, one subfolder for each worker."""
    clock: Clock
    graces: Graces = field(default_factory=Graces)
    _worker: Worker | None = None
    _last: WorkerKey | None = None
    _count: int = 0

    def run(
        self, supervisor: Supervisor, job: Job, required: WorkerKey, watcher: Watcher, stop: StopToken
    ) -> tuple[Ending, GpuUseGuard]:
        """Runs one attempt in the idle worker if it fits, else in a new one; returns its end and the worker's guard.

        A worker that has ended before it began the trial is replaced.

        Args:
            job: the attempt; ``argv`` starts a worker but for its folder, ``tag`` is a worker's but for its name.
            required: requirements on the worker.
            watcher: receives the attempt's records, and the reason if its worker was replaced.
        """
        began = self.clock.monotonic()
        worker = self._fitting(required)
        if worker is not None:
            ending = self._run(supervisor, job, worker, required, watcher, stop)
            if not lost(ending, job.paths):
                return ending, worker.guard
            watcher.record(NoteRecord("worker_lost", {"worker": worker.name, "trials": worker.served - 1}))
            clear(job.paths)
            job = replace(job, deadline_s=max(0.0, job.deadline_s - (self.clock.monotonic() - began)))
        worker = self._new(job)
        return self._run(supervisor, job, worker, required, watcher, stop), worker.guard

    def end(self) -> tuple[int, ...]:
        """Ends the worker; returns the processes that cannot be ended."""
        worker, self._worker = self._worker, None
        if worker is None:
            return ()
        left = worker.end(self.clock, self.graces.terminate_s, self.graces.kill_s)
        shutil.rmtree(worker.mailbox.root, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.root.rmdir()
        return left

    def _fitting(self, required: WorkerKey) -> Worker | None:
        """Returns the idle worker if it fits; otherwise ends it, so that its memory is free before another starts."""
        worker, last = self._worker, self._last
        if worker is not None and last is not None and worker.alive and worker.resting and suits(last, required):
            return worker
        self.end()
        return None

    def _new(self, job: Job) -> Worker:
        self.end()
        self._count += 1
        name = str(self._count)
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)  # of a tuner that was killed
        self._worker = Worker(name, f"{job.tag}{name}", Mailbox(folder), job.guard)
        return self._worker

    def _run(
        self, supervisor: Supervisor, job: Job, worker: Worker, required: WorkerKey, watcher: Watcher, stop: StopToken
    ) -> Ending:
        argv = (*job.argv, str(worker.mailbox.root))
        before = worker.served
        theirs = replace(job, argv=argv, tag=worker.tag, guard=worker.guard, worker=worker)
        try:
            ending = supervisor.run(theirs, watcher, stop)
        finally:
            self._last = required
            if not (worker.alive and worker.resting):
                self.end()
        if worker.unfit:
            watcher.record(NoteRecord("worker_replaced", {"worker": worker.name, "why": worker.unfit}))
        return replace(ending, before=before)


def suits(last: WorkerKey, required: WorkerKey) -> bool:
    """Tells whether a worker that ran a trial with key ``last`` may run one with ``required``. Pure."""
    if required.fresh or last.key != required.key:
        return False
    return restart_between(last.configuration, required.configuration) <= LARGEST_RESTART


def lost(ending: Ending, paths: RunPaths) -> bool:
    """Tells whether a used worker ended by itself before it began the trial: nothing was recorded."""
    if ending.before == 0 or ending.stop is not None or ending.result is not None or ending.quarantined:
        return False
    return not paths.metrics.exists() or paths.metrics.stat().st_size == 0


def clear(paths: RunPaths) -> None:
    """Deletes the files of a trial that was not begun, except its configuration."""
    for path in (paths.metrics, paths.phase, paths.log, paths.memory):
        path.unlink(missing_ok=True)
    shutil.rmtree(paths.scratch, ignore_errors=True)
