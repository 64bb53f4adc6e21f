"""Runs trials on this machine by the supervisor. Implements ``ports.TrialRunner``."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.domain import FailureReason, Outcome, Study
from autotune.domain.places import GPUS
from autotune.errors import MachineError
from autotune.machine import gpu_choice, hardware
from autotune.machine.lanes import CPUS_VARIABLE, Lane
from autotune.machine.nvml import Gpu
from autotune.ports import Assignment, Clock, Companion, Framework, Place, RunReport, StopToken, Watcher
from autotune.running import launch, proc
from autotune.running.companion import free_ports
from autotune.running.ending import Ending, Stop, outcome_of
from autotune.running.gpu_guard import GpuGuard, GpuPool, GpuUseGuard, PatientCall
from autotune.running.job import Graces, Job
from autotune.running.launch import Spawn, spawn
from autotune.running.log import MetricsTail
from autotune.running.preloaded import Preloads
from autotune.running.process_tree import ProcessTree, Send
from autotune.running.supervisor import Supervisor
from autotune.running.warm_pool import WarmWorkerPool, doubt_used_process, worker_key
from autotune.running.watchdog import HangLimits
from search_spaces.batch import held_gpus
from trainer.child import contract
from trainer.child.contract import ContractError, NoteRecord, Record, Result, RunPaths, TrialSpec

CHILD_START = Path(contract.__file__).parent.parent / "start.py"
TOOL = "tool"
PART = "node-"
"""Prefix of folders in an attempt's folder that belong to its other nodes."""
PORT_TRIES = 3
"""Most attempts, each with other ports: another process may take a free port before the rollout server does."""

PATIENCE_S = 60.0
"""Most seconds to wait for a missing input file; a remounted disk is back within seconds."""
PAUSE_S = 0.5
ANSWER_S = 5.0
"""Seconds without an answer after which a disk counts as unavailable."""


class Inputs:
    """Input files of a study's trials. A file counts as missing only if it existed before; the child reports others."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def missing(self, spec: TrialSpec) -> str | None:
        """Returns a sentence that names a file that existed and is gone; ``None`` without one."""
        found: dict[str, bool] = {}

        def look() -> None:
            for _, path in contract.inputs_of(spec):
                found[path] = os.path.exists(path)

        # A disk that hangs holds the thread that asks it, and this one has processes to watch.
        thread = threading.Thread(target=look, daemon=True, name="autotune-inputs")
        thread.start()
        thread.join(ANSWER_S)
        self._seen.update(path for path, there in tuple(found.items()) if there)
        for what, path in contract.inputs_of(spec):
            if path in self._seen and not found.get(path, False):
                return f"the {what} {path} {'is not there' if path in found else 'does not answer'}"
        return None

    def wait(self, spec: TrialSpec, clock: Clock, watcher: Watcher, stop: StopToken, most_s: float) -> str | None:
        """Waits until no file is missing, the user stops, or ``PATIENCE_S`` or ``most_s`` have passed; returns
        ``missing``."""
        until = clock.monotonic() + min(PATIENCE_S, most_s)
        while True:
            missing = self.missing(spec)
            if missing is None or stop.level > 0 or clock.monotonic() >= until:
                return missing
            watcher.tick()
            clock.sleep(PAUSE_S)


def home_tag(home: Path) -> str:
    """Returns a short name of a home folder for tags, so that tuners of other home folders spare its processes."""
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def study_tag(home: str, study_id: int | str) -> str:
    """Returns the common prefix of the tags of a study's processes."""
    return f"autotune:{home}:{study_id}:"


def end_study(home: str, study_id: int, clock: Clock) -> None:
    """Kills all processes of a study of this home folder at once."""
    prefix = study_tag(home, study_id)
    left = ProcessTree(lambda tag: tag.startswith(prefix), None)
    left.refresh(full=True)
    left.kill(clock, 0.0, 1.0)


def tool_owner() -> str:
    """Returns a unique name of this tuner process, by which a later tuner can tell whether it still runs."""
    own = proc.read_stat(os.getpid())
    return f"{os.getpid()}-{own.started if own else 0}"


@dataclass(frozen=True)
class _Ticking:
    """Stop token for long imports: each query ticks the watcher, and is answered with 2 after the trial's deadline."""

    stop: StopToken
    watcher: Watcher
    late: Callable[[], bool]

    @property
    def level(self) -> int:
        self.watcher.tick()
        return 2 if self.late() else self.stop.level


@dataclass(frozen=True)
class LocalRunner:
    """Runs trials under the interpreter ``python`` by the child's start file, one at a time.

    ``memory_limit`` bounds the process tree in bytes; ``None``: the study's own limit applies.
    """

    python: str
    framework: Framework
    home: str
    """Name of the home folder, from ``home_tag``."""
    clock: Clock
    start: Path = CHILD_START
    memory_limit: int | None = None
    allow_busy: bool = False
    graces: Graces = field(default_factory=Graces)
    hang_limits: HangLimits = field(default_factory=HangLimits)
    send: Send = proc.send
    spawn: Spawn = spawn
    """Starts the trial's own process."""
    keeper: WarmWorkerPool | None = None
    """Pool whose worker process runs several trials; ``None``: each trial has its own process."""
    preloads: Preloads | None = None
    """Forks processes from preloaded ones if the result is the same; ``None``: each process is started anew."""
    lane: Lane | None = None
    """Part of the machine for this runner, if trials run at the same time; ``None``: the whole machine."""
    agent: str = ""
    """Name of the runner's agent in its tags, so that ending one agent's processes late spares its successor's."""
    caches: Path | None = None
    """Folder of compiler caches shared by trials; ``None``: each compiler's default."""
    driver: PatientCall[tuple[Gpu, ...]] = field(default_factory=lambda: PatientCall(hardware.visible_gpus))
    """Returns the visible GPUs."""
    pool: GpuPool = field(default_factory=GpuPool)
    inputs: Inputs = field(default_factory=Inputs)

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        paths = RunPaths(assignment.directory.resolve())
        if paths.root.exists() and any(not each.name.startswith(PART) for each in paths.root.iterdir()):
            raise ValueError(f"{paths.root} is not empty: an attempt needs a directory of its own")
        if self.lane is not None:  # of this thread, and of every process that it starts
            os.sched_setaffinity(0, self.lane.cpus)
        began = self.clock.monotonic()
        try:
            spec = self.framework.render(assignment)
        except ValueError as error:  # legality lacks a rule
            return RunReport(Outcome(reason=FailureReason.ILLEGAL, message=str(error)), seconds=0.0)
        away = self.inputs.wait(spec, self.clock, watcher, stop, assignment.deadline_s)
        if away is not None:
            return RunReport(Outcome(FailureReason.INFRA, message=away), self.clock.monotonic() - began, absent=True)
        left = assignment.deadline_s - (self.clock.monotonic() - began)
        ending = self._attempt(replace(assignment, deadline_s=left), spec, paths, watcher, stop)
        self.pool.quarantine(ending.gpu_faults)
        log = paths.server_log if ending.log_is_servers else paths.log
        outcome = doubt_used_process(outcome_of(ending, self.framework, str(log)), ending.before)
        away = None if outcome.ok else self.inputs.missing(spec)
        if away is not None and outcome.reason is not FailureReason.CANCELLED:
            text = f"{away} ({outcome.sentence()})" if outcome.reason is not FailureReason.INFRA else away
            outcome = replace(outcome, reason=FailureReason.INFRA, pool=None, message=text, suggestion="")
        return RunReport(
            outcome=outcome, absent=away is not None, seconds=self.clock.monotonic() - began,
            host_peak=ending.host_peak, bad_lines=ending.bad_lines, quarantined=ending.quarantined,
            gpu_faults=tuple(dict.fromkeys(map(str, ending.gpu_faults))), compiled=ending.compiled,
        )  # fmt: skip

    def _attempt(
        self, assignment: Assignment, spec: TrialSpec, paths: RunPaths, watcher: Watcher, stop: StopToken
    ) -> Ending:
        """Runs one attempt; repeats it with other ports if another process took the rollout server's port."""
        began = self.clock.monotonic()
        for _ in range(PORT_TRIES):
            spent = self.clock.monotonic() - began
            try:
                count = held_gpus(assignment.trial.configuration, assignment.study.spec.resources)
                gpus = self._trial_gpus(assignment.study)[:count]
                companion = self._companion(assignment, spec, gpus)
            except (ValueError, OSError) as error:
                return Ending(None, spent, Stop.NOT_STARTED, f"the rollout server cannot be started: {error}")
            except MachineError as error:
                return Ending(None, spent, Stop.NOT_STARTED, str(error))
            if gpus:
                watcher.record(NoteRecord(GPUS, {"held": [{"index": gpu.index, "uuid": gpu.uuid} for gpu in gpus]}))
            spec = spec if companion is None else companion.spec
            try:
                contract.write_atomic(paths.config, contract.dumps(spec))
            except OSError as error:
                return Ending(None, spent, Stop.NOT_STARTED, f"{paths.config} could not be written: {error}")
            job = self._job(assignment, spec, paths, spent, companion, gpus)
            ending = self._supervise(job, assignment, spec, watcher, stop)
            if not ending.port_taken:
                break
        return ending

    def _trial_gpus(self, study: Study) -> tuple[Gpu, ...]:
        """Returns the state of a trial's GPUs. Raises ``MachineError`` if they cannot be read, or some are missing."""
        count = study.spec.resources.gpus
        return self.pool.gpus_for_next(self._own(self.driver()), count) if count else ()

    def _trial_gpus_soon(self, study: Study) -> tuple[Gpu, ...] | None:
        """Returns the GPUs as ``_trial_gpus`` does, without a long wait; ``None``: the driver has not answered yet."""
        visible = self.driver.soon()
        return None if visible is None else self.pool.gpus_for_next(self._own(visible), study.spec.resources.gpus)

    def _own(self, visible: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """Selects this runner's GPUs."""
        return visible if self.lane is None else visible[self.lane.gpus[0] : self.lane.gpus[-1] + 1]

    def _companion(self, assignment: Assignment, spec: TrialSpec, gpus: tuple[Gpu, ...]) -> Companion | None:
        place = Place(self.python, tuple(gpu.cuda_name for gpu in gpus), *free_ports(2))
        return self.framework.companion(assignment, spec, place)

    def _job(
        self,
        assignment: Assignment,
        spec: TrialSpec,
        paths: RunPaths,
        spent: float,
        companion: Companion | None,
        gpus: tuple[Gpu, ...],
    ) -> Job:
        study = assignment.study
        cores = study.spec.resources.cpu_cores if self.lane is None else len(self.lane.cpus)
        cpus = sorted(os.sched_getaffinity(0)) if self.lane is None else self.lane.cpus
        caches = launch.caches(self.caches, os.environ)
        if companion is not None:
            companion = replace(companion, environment={**caches, **companion.environment})
        return Job(
            argv=launch.command(self.python, self.start, paths, spec, assignment.meeting),
            environment={
                **caches,
                **launch.environment(spec, cores, os.environ, assignment.meeting),
                CPUS_VARIABLE: ",".join(map(str, cpus)),  # other programs may have the rest of a shared machine
                **(gpu_choice.environment(gpus) if gpus else {}),
            },
            paths=paths, tag=self._tag(assignment), deadline_s=max(0.0, assignment.deadline_s - spent),
            memory_limit=study.spec.memory_limit if self.memory_limit is None else self.memory_limit,
            guard=self._guard(study), companion=companion, gpus=tuple(gpu.uuid for gpu in gpus),
        )  # fmt: skip

    def _supervise(
        self, job: Job, assignment: Assignment, spec: TrialSpec, watcher: Watcher, stop: StopToken
    ) -> Ending:
        until = self.clock.monotonic() + job.deadline_s
        patient = _Ticking(stop, watcher, lambda: self.clock.monotonic() >= until)
        starter = self.spawn if self.preloads is None else self.preloads.starter(patient)
        supervisor = Supervisor(self.clock, self.graces, self.hang_limits, self.send, starter)
        study, trial = assignment.study, assignment.trial
        required = None if self.keeper is None else worker_key(study, trial, spec, job, self.python)
        guard = job.guard
        if self.keeper is not None and required is not None:
            argv = launch.worker_command(self.python, self.start)
            tag = f"{study_tag(self.home, study.id)}{self._worker_name}"
            ending, guard = self.keeper.run(supervisor, replace(job, argv=argv, tag=tag), required, watcher, stop)
        else:
            self._end_worker()
            ending = supervisor.run(job, watcher, stop)
        for why in self.preloads.take_notes() if self.preloads is not None else ():
            watcher.record(NoteRecord("not_forked", {"why": why}))
        if isinstance(guard, GpuGuard) and guard.busy is not None and self.allow_busy:
            watcher.record(NoteRecord("gpu_busy", {"why": guard.busy}))
        if isinstance(guard, GpuGuard) and guard.peaks:
            watcher.record(NoteRecord("gpu_peaks", {"bytes": guard.peaks}))
        return ending

    def tags(self, assignment: Assignment) -> tuple[str, ...]:
        """Returns the tags of an attempt's possible processes; a tag with a dash at the end is a prefix."""
        return self._tag(assignment), f"{study_tag(self.home, assignment.study.id)}{self._worker_name}"

    def _tag(self, assignment: Assignment) -> str:
        """Returns the tag of the attempt's processes, with the node's number: two nodes may be on one machine."""
        trial, meeting = assignment.trial, assignment.meeting
        tag = f"{study_tag(self.home, assignment.study.id)}{trial.number}:{trial.attempt}"
        tag = tag if meeting is None else f"{tag}:{meeting.node}"
        return f"{tag}@{self.agent}" if self.agent else tag

    @property
    def _worker_name(self) -> str:
        """Prefix of the names of workers in this part of the machine; a number follows."""
        place = "" if self.lane is None else f"{self.lane.index}-"
        return f"worker:{place}{self.agent}-" if self.agent else f"worker:{place}"

    def _guard(self, study: Study) -> GpuUseGuard:
        if study.spec.resources.gpus == 0:
            return GpuUseGuard()
        return GpuGuard(
            lambda: self._trial_gpus(study), latest=lambda: self._trial_gpus_soon(study), allow_busy=self.allow_busy,
            pids_are_ours=hardware.driver_process_ids_are_ours(), computes=hardware.has_gpu_open,
        )  # fmt: skip

    def close(self) -> tuple[int, ...]:
        left = self._end_worker()
        if self.preloads is not None:
            self.preloads.close()
        return left

    def _end_worker(self) -> tuple[int, ...]:
        return () if self.keeper is None else self.keeper.end()

    def sweep(self, study_id: int) -> tuple[int, ...]:
        prefix = study_tag(self.home, study_id)
        left = ProcessTree(lambda tag: tag.startswith(prefix) or self._is_orphaned_tool(tag), None, self.send)
        found = {m.pid for m in left.refresh(full=True)}
        left.kill(self.clock, self.graces.terminate_s, self.graces.kill_s)
        return tuple(sorted(found))

    def _is_orphaned_tool(self, tag: str) -> bool:
        prefix = study_tag(self.home, TOOL)
        if not tag.startswith(prefix):
            return False
        pid, _, started = tag.removeprefix(prefix).partition(":")[0].partition("-")
        owner = proc.read_stat(int(pid)) if pid.isdigit() else None
        return owner is None or str(owner.started) != started

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        paths = RunPaths(directory)
        shutil.rmtree(RunPaths(directory.resolve()).sockets, ignore_errors=True)
        records = tuple(MetricsTail(paths.metrics).finish())
        try:
            return records, contract.read_result(paths.result)
        except (ContractError, OSError):
            return records, None
