"""The processes of one attempt: the child (spawned, forked or a warm worker) and its rollout server."""

from __future__ import annotations

from autotune.ports import Clock
from autotune.running.companion import RunningServer
from autotune.running.ending import Stop
from autotune.running.job import Graces, Job
from autotune.running.log import CappedLog, LogPump
from autotune.running.preloaded import Forked
from autotune.running.process_tree import Child, ProcessTree, Send
from autotune.running.spawn import Spawn
from autotune.running.warm_worker import Process, Worker
from trainer.child.contract import SERVER_VARIABLE


class Processes:
    """Starts and ends the processes of one job; only a warm worker may outlive the attempt."""

    def __init__(self, job: Job, clock: Clock, graces: Graces, send: Send, spawn: Spawn) -> None:
        """Starts the rollout server if the job has one, else the child. Raises ``OSError`` if that fails."""
        self._job, self._clock, self._graces = job, clock, graces
        self._spawn = spawn
        self.tree = ProcessTree(lambda tag: tag == job.tag, send=send)
        self.server: RunningServer | None = None
        self._child: Child | None = None
        self._pump: LogPump | None = None
        if job.worker is not None:
            self._call(job.worker)
        elif job.companion is None:
            self._start()
        else:
            self.server = RunningServer(job.companion, job.paths, job.tag, clock)
            self.tree.add(self.server.child)

    def _start(self) -> None:
        """Starts the trial's own process. Raises ``OSError`` if that fails."""
        job = self._job
        environment = {**job.environment, **(job.companion.trial_environment if job.companion else {})}
        if self.server is not None:
            environment[SERVER_VARIABLE] = str(self.server.child.pid)
        place = job.paths.scratch if job.worker is None else job.worker.mailbox.scratch
        self._child, self._pump = self._spawn(job.argv, place, job.tag, CappedLog(job.paths.log), environment)
        self.tree.add(self._child)

    def _call(self, worker: Worker) -> None:
        """Sends the trial to the worker, and starts the worker if it does not run. Raises ``OSError`` if that fails."""
        worker.call(self._job.paths.root)
        if worker.process is None:
            self._start()
            assert self._child is not None and self._pump is not None  # noqa: S101, PT018  (narrowing)
            worker.process = Process(self._child, self._pump, self.tree)
            return
        self._child, self._pump, self.tree = worker.process.child, worker.process.pump, worker.process.tree
        self._pump.redirect(CappedLog(self._job.paths.log))

    def follow(self) -> tuple[Stop, str] | None:
        """Starts the child once the server is ready; returns the reason to stop if the child cannot start."""
        if self.server is None:
            return None
        try:
            if self.server.greet(self.tree):
                self._start()
        except OSError as error:
            return Stop.NOT_STARTED, f"the training process could not be started: {error}"
        return None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the child; ``None`` while it runs or if it never started."""
        return self._child.poll() if self._child is not None else None

    @property
    def ended(self) -> bool:
        """True if the child has exited, or the worker waits for its next trial."""
        gone = self._child is not None and self._child.poll() is not None
        return gone or (self._job.worker is not None and self._job.worker.answered)

    @property
    def server_answered(self) -> bool:
        """True if the server was ready at some time."""
        return self.server is not None and self.server.greeted

    def shared_bytes(self) -> int:
        """Returns the bytes of the child's pages that the kernel counts as the preloaded processes'."""
        return self._child.shared_bytes() if isinstance(self._child, Forked) else 0

    def kill(self, grace_s: float) -> tuple[int, ...]:
        """Ends all processes, SIGKILL ``grace_s`` seconds after SIGTERM; returns the ids that cannot be ended."""
        return self.tree.kill(self._clock, grace_s, self._graces.kill_s)

    def release(self) -> None:
        """Closes the log and forgets the worker's process; called after ``kill``."""
        if self._pump is not None:
            self._pump.finish()
        if self._job.worker is not None:
            self._job.worker.process = None
