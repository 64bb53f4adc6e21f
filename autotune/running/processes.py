"""The processes of one attempt: its child, the rollout server beside it, and the worker that may be the child."""

from __future__ import annotations

from autotune.ports import Clock
from autotune.running.child import Child
from autotune.running.companion import RunningServer
from autotune.running.ending import Stop
from autotune.running.job import Graces, Job
from autotune.running.log import CappedLog, LogPump
from autotune.running.preloaded import Forked
from autotune.running.process_tree import ProcessTree, Send
from autotune.running.spawn import Spawn
from autotune.running.warm_worker import Process, Worker
from trainer.child.contract import SERVER_VARIABLE


class Processes:
    """Started as the job says; they are left to nobody but a worker that waits for its next trial."""

    def __init__(self, job: Job, clock: Clock, graces: Graces, send: Send, spawn: Spawn) -> None:
        """Starts the first of them: the server where there is one, else the child.

        Raises:
            OSError: it could not be started.
        """
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
        """The trial's own process. Raises ``OSError`` if it cannot be started."""
        job = self._job
        environment = {**job.environment, **(job.companion.trial_environment if job.companion else {})}
        if self.server is not None:
            environment[SERVER_VARIABLE] = str(self.server.child.pid)
        place = job.paths.scratch if job.worker is None else job.worker.mailbox.scratch
        self._child, self._pump = self._spawn(job.argv, place, job.tag, CappedLog(job.paths.log), environment)
        self.tree.add(self._child)

    def _call(self, worker: Worker) -> None:
        """The trial to the worker, which is started if it is not there. Raises ``OSError`` if that cannot be done."""
        worker.call(self._job.paths.root)
        if worker.process is None:
            self._start()
            assert self._child is not None and self._pump is not None  # noqa: S101, PT018  (narrowing)
            worker.process = Process(self._child, self._pump, self.tree)
            return
        self._child, self._pump, self.tree = worker.process.child, worker.process.pump, worker.process.tree
        self._pump.redirect(CappedLog(self._job.paths.log))

    def follow(self) -> tuple[Stop, str] | None:
        """Start the child once its server is ready; why the trial cannot go on if that fails."""
        if self.server is None:
            return None
        try:
            if self.server.greet():
                self._start()
        except OSError as error:
            return Stop.NOT_STARTED, f"the training process could not be started: {error}"
        return None

    @property
    def exit_code(self) -> int | None:
        """The child's; ``None`` while it runs, and if it was never started."""
        return self._child.poll() if self._child is not None else None

    @property
    def ended(self) -> bool:
        """The child has, or has put everything back and waits for another trial."""
        gone = self._child is not None and self._child.poll() is not None
        return gone or (self._job.worker is not None and self._job.worker.answered)

    @property
    def served(self) -> bool:
        """The server was ready at some time."""
        return self.server is not None and self.server.greeted

    def beside(self) -> int:
        """Bytes of the tree's pages that the kernel counts as those of what the child was forked from."""
        return self._child.beside() if isinstance(self._child, Forked) else 0

    def kill(self, grace_s: float) -> tuple[int, ...]:
        """Leave none of them; returns those that cannot be ended. ``grace_s`` is from SIGTERM to SIGKILL."""
        return self.tree.kill(self._clock, grace_s, self._graces.kill_s)

    def release(self) -> None:
        """After ``kill``: the log is closed, and the worker has no process."""
        if self._pump is not None:
            self._pump.finish()
        if self._job.worker is not None:
            self._job.worker.process = None
