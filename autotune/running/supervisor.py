"""Starts a child, watches it until it ends or must be ended, and leaves none of its processes."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autotune.domain import FailureReason
from autotune.machine import gpu_faults, nvml
from autotune.ports import Clock, StopToken, Watcher
from autotune.running import proc
from autotune.running.companion import RunningServer
from autotune.running.ending import Ending, Stop
from autotune.running.gpu_sampler import GpuSampler
from autotune.running.job import Graces, Job
from autotune.running.launch import Spawn, spawn
from autotune.running.log import CappedLog, LogPump, MetricsTail, PhaseTail, read_tail
from autotune.running.preloaded import Forked
from autotune.running.process_tree import Child, ProcessTree, Send, become_subreaper
from autotune.running.warm_worker import Process, Worker
from autotune.running.watchdog import HangLimits, Pulse, Timeline, TreeMemory, Vigil, Watchdog, advance, verdict
from trainer.child import contract
from trainer.child.contract import ContractError, CycleKind, CycleRecord, Record, Result, RunPaths


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
            environment[contract.SERVER_VARIABLE] = str(self.server.child.pid)
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


STEP_S = 0.05
GUARD_S = 5.0


@dataclass(frozen=True)
class Supervisor:
    """Runs attempts with common settings."""

    clock: Clock
    graces: Graces = field(default_factory=Graces)
    hang_limits: HangLimits = field(default_factory=HangLimits)
    send: Send = proc.send
    spawn: Spawn = spawn
    """Starts the trial's own process."""
    open_gpus: Callable[[Sequence[str]], nvml.GpuReader | None] = nvml.open_gpus
    """Opens the trial's GPUs, by their NVML names, to sample them while it runs."""

    def run(self, job: Job, watcher: Watcher, stop: StopToken) -> Ending:
        """Runs ``job`` to its end; ``config.json`` must exist already.

        Ends the processes before it raises an error of ``watcher``.
        """
        began = self.clock.monotonic()
        refusal = job.guard.again() if job.reuses else job.guard.before(self.clock)
        if refusal is not None:
            return Ending(None, self.clock.monotonic() - began, Stop.NOT_STARTED, refusal)
        try:
            attempt = _Attempt(self, job)
        except OSError as error:
            why = f"the training process could not be started: {error}"
            return Ending(None, self.clock.monotonic() - began, Stop.NOT_STARTED, why)
        return attempt.run(watcher, stop)


class _Attempt:
    """One running attempt."""

    def __init__(self, settings: Supervisor, job: Job) -> None:
        become_subreaper()
        self._clock, self._graces, self._limits = settings.clock, settings.graces, settings.hang_limits
        self._job = job
        self._metrics = MetricsTail(job.paths.metrics)
        self._phase = PhaseTail(job.paths.phase)
        self._began = self._clock.monotonic()
        self._timeline = Timeline(job.paths.memory, self._clock, lambda: self._phase.current)
        self._oom_kills = proc.oom_kills()
        job.paths.scratch.mkdir(parents=True, exist_ok=True)
        job.paths.log.touch()
        self._worker = job.worker
        self._complete = False
        self._processes = Processes(job, self._clock, self._graces, settings.send, settings.spawn)
        self._tree, self._server = self._processes.tree, self._processes.server
        memory = TreeMemory(shared_bytes=self._processes.shared_bytes)
        self._watchdog = Watchdog(self._tree, memory, job.memory_limit, job.paths.phase, self._timeline.host)
        self._gpus = GpuSampler(lambda: settings.open_gpus(job.gpus), job.paths.phase, self._clock)
        self._vigil = Vigil.begin(self._pulse())
        self._ticked = self._guarded = float("-inf")
        self._reported_at: float | None = None
        self._silent_s = 0.0

    def run(self, watcher: Watcher, stop: StopToken) -> Ending:
        """Runs the attempt to its end; called once."""
        try:
            return self._run(watcher, stop)
        finally:
            self._metrics.close()
            self._gpus.finish()
            self._timeline.finish()
            shutil.rmtree(self._job.paths.sockets, ignore_errors=True)

    def _run(self, watcher: Watcher, stop: StopToken) -> Ending:
        self._watchdog.start()
        if self._job.gpus:
            self._gpus.start()
        why: tuple[Stop, str] | None = None
        result: Result | None = None
        quarantined: tuple[int, ...] = ()
        server_exit: int | None = None
        server_log = ""
        try:
            why = self._watch(watcher, stop)
            self._complete = why is None
            result, _ = report_of(self._job.paths)
            if why is not None and why[0] is Stop.HANG:
                ask_for_stacks(self._tree, self._clock, self._graces.stack_s)
            server_exit = self._server.child.poll() if self._server is not None else None
        finally:
            if self._may_stay(result):
                self._watchdog.finish()
            else:
                quarantined = self._end(self._grace(why))
            if self._server is not None:
                server_log = self._server.finish()
        ending = self._ending(watcher, why, result, quarantined)
        return replace(ending, server_log=server_log, server_exit=server_exit, served=self._processes.server_answered)

    def _may_stay(self, result: Result | None) -> bool:
        """Tells whether the worker may run the next trial; if so, its output goes to its own log again."""
        worker = self._worker
        if worker is None or not self._complete or result is None or not result.ok or not worker.may_stay():
            return False
        worker.rest()
        return True

    def _end(self, grace_s: float) -> tuple[int, ...]:
        """Ends all processes; returns the ids of processes that cannot be ended."""
        quarantined = self._processes.kill(grace_s)
        self._watchdog.finish()
        self._processes.release()
        return quarantined

    def _grace(self, why: tuple[Stop, str] | None) -> float:
        """Returns the seconds between SIGTERM and SIGKILL."""
        if why is not None and why[0] is Stop.MEMORY:
            return 0.0
        if self._processes.ended and self._server is None:  # nobody is left who has anything to put in order
            return min(self._graces.orphans_s, self._graces.terminate_s)
        return self._graces.terminate_s

    def _watch(self, watcher: Watcher, stop: StopToken) -> tuple[Stop, str] | None:
        """Watches until the child has ended (returns ``None``) or must be ended (returns the reason)."""
        while True:
            self._pass_on(watcher)
            if self._processes.ended:
                return self._over_limit() or self._felled()
            if (why := self._must_stop(stop)) is not None:
                return why
            if (why := self._processes.follow()) is not None:
                return why
            self._clock.sleep(STEP_S)

    def _felled(self) -> tuple[Stop, str] | None:
        """Returns the end of the rollout server as the reason, if the child failed because of it; else ``None``."""
        result, _ = report_of(self._job.paths)
        if self._server is None or (result is not None and result.reason is not FailureReason.CRASH):
            return None
        return self._server.trouble()

    def _pass_on(self, watcher: Watcher) -> None:
        if (phase := self._phase.poll()) is not None:
            watcher.phase(phase)
        for record in self._metrics.poll():
            watcher.record(self._with_gpus(record))
            self._answer(record, watcher)
        if self._clock.monotonic() - self._ticked >= 0.5:
            self._ticked = self._clock.monotonic()
            self._timeline.save()
            watcher.tick()

    def _with_gpus(self, record: Record) -> Record:
        return self._gpus.add_to(record) if self._job.gpus and isinstance(record, CycleRecord) else record

    def _answer(self, record: Record, watcher: Watcher) -> None:
        """Tells the child by a file whether its recorded cycles suffice; without the file, the child continues."""
        if not isinstance(record, CycleRecord) or record.cycle_kind is not CycleKind.RECORDED or record.rank:
            return
        if (enough := watcher.enough) is not None:
            with contextlib.suppress(OSError):
                contract.write_atomic(self._job.paths.enough, f"{record.index} {'end' if enough else 'go'}")

    def _must_stop(self, stop: StopToken) -> tuple[Stop, str] | None:
        now = self._clock.monotonic()
        self._silent_s = now - self._vigil.progress.at
        if self._watchdog.error is not None:
            raise self._watchdog.error
        if (over := self._over_limit()) is not None:
            return over
        if stop.level >= 2:
            return Stop.CANCELLED, "stopped by the user"
        if self._job.paths.result.exists():
            return self._lingering(now)
        if self._gpus.faults:
            return Stop.GPU_FAULT, gpu_faults.sentence(self._gpus.faults)
        if self._server is not None and (trouble := self._server.trouble()) is not None:
            return trouble
        if now - self._began >= self._job.deadline_s:
            return Stop.DEADLINE, f"not finished after {self._job.deadline_s:.0f} s"
        pulse = self._pulse()
        self._vigil = advance(self._vigil, pulse, self._limits)
        if (hung := verdict(self._vigil, pulse, self._limits)) is not None:
            return Stop.HANG, hung
        return self._stranger(now)

    def _over_limit(self) -> tuple[Stop, str] | None:
        over, limit = self._watchdog.over, self._job.memory_limit
        if over is None or limit is None:
            return None
        return Stop.MEMORY, f"the process tree reached {over / 2**30:.2f} GiB of {limit / 2**30:.2f} GiB"

    def _lingering(self, now: float) -> tuple[Stop, str] | None:
        if self._reported_at is None:
            self._reported_at = now
        report, _ = report_of(self._job.paths)
        if self._worker is not None and report is not None and report.ok:
            patience, still = self._graces.restore_s, "its worker was not ready again"
        else:
            patience, still = self._graces.linger_s, "did not exit"
        if now - self._reported_at < patience:
            return None
        return Stop.LINGERED, f"finished, but {still} within {patience:.0f} s and was ended"

    def _stranger(self, now: float) -> tuple[Stop, str] | None:
        if now - self._guarded < GUARD_S:
            return None
        self._guarded = now
        who = self._job.guard.during({m.pid for m in self._tree.refresh()})
        self._timeline.device(self._job.guard.used)
        return None if who is None else (Stop.STRANGER, who)

    def _pulse(self) -> Pulse:
        phase = self._phase.current.phase if self._phase.current else ""
        now = self._clock.monotonic()
        return Pulse(now, self._phase.modified, self._metrics.bytes_read, self._watchdog.cpu_s, phase)

    def _ending(
        self, watcher: Watcher, why: tuple[Stop, str] | None, result: Result | None, quarantined: tuple[int, ...]
    ) -> Ending:
        """Collects the evidence on the end of the attempt, after the process tree is gone."""
        self._pass_on(watcher)
        for record in self._metrics.finish():
            watcher.record(self._with_gpus(record))
        self._gpus.finish()
        stop, sentence = why or (None, "")
        late, error = report_of(self._job.paths)
        if stop in (None, Stop.MEMORY):  # neither gave it the time to report on being stopped
            result = late
        ending = Ending(
            exit_code=self._processes.exit_code,
            seconds=self._clock.monotonic() - self._began,
            silent_s=self._silent_s,
            stop=stop,
            why=sentence,
            result=result,
            result_error=error,
            phase=self._watchdog.phase or self._phase.current,
            oom_kills=proc.oom_kills() - self._oom_kills,
            host_peak=self._watchdog.peak or None,
            bad_lines=self._metrics.bad_lines,
            quarantined=quarantined,
            gpu_faults=self._gpus.faults,
            log_tail=read_tail(self._job.paths.log),
            compiled=self._watchdog.compiled,
        )
        return self._checked(ending)

    def _checked(self, ending: Ending) -> Ending:
        """Changes the ending to INFRA if the attempt failed on a faulty GPU, or GPU memory is still held after it."""
        if ending.gpu_faults and (ending.result is None or not ending.result.ok):
            why = gpu_faults.sentence(ending.gpu_faults)
            return replace(ending, stop=Stop.GPU_FAULT, why=why, result=None)
        if self._worker is not None and self._worker.process is not None:
            return ending
        if ending.quarantined or (held := self._job.guard.after(self._clock)) is None:
            return ending
        return replace(ending, stop=Stop.STRANGER, why=held, result=None)


def report_of(paths: RunPaths) -> tuple[Result | None, str]:
    """Reads the child's ``result.json``; returns an error text if the file cannot be read."""
    try:
        return contract.read_result(paths.result), ""
    except FileNotFoundError:
        return None, ""
    except (ContractError, OSError) as error:
        return None, f"its result cannot be read: {error}"


def ask_for_stacks(tree: ProcessTree, clock: Clock, wait_s: float) -> None:
    """Sends SIGUSR1 to processes with faulthandler, which then write their stacks to the log, and waits ``wait_s``."""
    asked = [m for m in tree.refresh() if proc.catches(m.pid, signal.SIGUSR1)]
    for member in asked:
        proc.send(member, signal.SIGUSR1)
    if asked:
        clock.sleep(wait_s)
