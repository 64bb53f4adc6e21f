"""Runs an exported command as the user would, and reads its output from outside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from autotune.domain import Study, Trial
from autotune.errors import MachineError, UsageError
from autotune.machine import hardware
from autotune.machine.gpu_choice import usable_resources
from autotune.ports import Clock, ServerLaunch, StopToken
from autotune.recommendation import export
from autotune.recommendation.export import Exported
from autotune.running.command import BoundedCommand, OutputLine, run_command
from autotune.running.companion import is_free, listeners, server_beside
from autotune.running.ending import Stop
from autotune.running.gpu_guard import GpuGuard
from autotune.running.local import TOOL, home_tag, study_tag, tool_owner
from autotune.settings import Settings
from autotune.statistics import evidence
from autotune.verify import compare_run
from autotune.verify.compare_run import CycleShape, LoggedUpdate, ObservedRun, RunVerdict
from trainer.frameworks.common.exported import RUN, SERVER
from trainer.frameworks.common.serving import IN_TRIAL, READY_S

START_S = 180.0
"""Seconds that a start and a cycle may take if no trial has measured one."""
PATIENCE = 5.0
"""Multiple of the predicted duration after which a run is stopped."""

CLOSING_S = 90.0
"""Seconds to wait for a server's port: the kernel keeps it for a minute after the last connection (TIME_WAIT)."""

OUTPUT = "output"
RANKS = "ranks"
"""Folder of the files that ``torchrun`` keeps of its processes."""

Heard = Callable[[int, int, LoggedUpdate], None]
"""Function that receives (round, update, step) for every update."""


class InterruptedVerification(Exception):  # noqa: N818  (not an error: the user asked for it)
    """Raised when the user stopped the verification; no process is left running."""


@dataclass(frozen=True)
class Rehearsal:
    """An exported configuration that is ready to be run and timed."""

    study: Study
    supporting: Sequence[Trial]
    """Trials of the same configuration, from which the duration of a run is predicted."""
    trials: Sequence[Trial]
    """Trials of the whole study, from which the difference between processes is estimated."""
    exported: Exported
    settings: Settings
    updates: int
    """Updates of a run that are timed."""
    stop: StopToken
    heard: Heard
    clock: Clock
    place: str = "verify"
    """Name of the folder below the study's own."""

    @property
    def shape(self) -> CycleShape:
        return compare_run.shape_of(self.study, self.exported.row.configuration)

    @property
    def folder(self) -> Path:
        """Folder of the exported files; each verification of the study overwrites it."""
        return self.settings.home.study(self.study.id, self.study.spec.name) / self.place

    def write(self) -> None:
        """Writes the files that the command needs.

        Raises:
            MachineError: the command cannot be run here.
            UsageError: the framework prints other lines, or the files cannot be written.
        """
        framework = self.exported.framework
        if not framework.listening(OUTPUT):
            raise UsageError(
                f"verify cannot read the lines that {framework.title} prints; export it and run it yourself"
            )
        _check_machine(self.study, self.clock)
        export.write(self.exported, self.study, self.folder, force=True)

    def run(self, number: int, *, warming: int = 1, seed: int | None = None) -> ObservedRun:
        """Runs the command once until it has logged enough updates after ``warming`` cycles.

        ``seed`` replaces the export's seed.

        Raises:
            MachineError: the command does not train.
            InterruptedVerification: the user stopped it.
        """
        shape = self.shape
        wanted = shape.updates * (warming + -(-self.updates // shape.updates))
        steps: list[LoggedUpdate] = []

        def hear(line: OutputLine) -> bool:
            step = compare_run.read_step(line.text, line.at, line.others_s)
            if step is not None:
                steps.append(step)
                self.heard(number, len(steps), step)
            return len(steps) >= wanted

        command = self._command(number, PATIENCE * _predicted_s(self.supporting, wanted), seed)
        with self._server(command) as trouble:
            ended = run_command(command, hear, self.stop, clock=self.clock, trouble=trouble)
        for left in (OUTPUT, RANKS):
            shutil.rmtree(self.folder / left, ignore_errors=True)
        if ended.stop is Stop.CANCELLED:
            raise InterruptedVerification
        observed = compare_run.observe(steps, shape, warming)
        if ended.stop is not None or ended.exit_code not in (None, 0) or observed is None:
            raise MachineError(_why(ended.why, ended.exit_code, ended.log_tail, len(steps), command.logs))
        return observed

    @contextmanager
    def _server(self, command: BoundedCommand) -> Iterator[Callable[[], tuple[Stop, str] | None]]:
        """Starts the exported rollout server, if there is one. Yields a function that explains why the server failed.

        Raises:
            MachineError: the server's port is taken, or the server does not start.
        """
        health = self.exported.export.health
        if not health:
            yield lambda: None
            return
        port = urlsplit(health).port or 0
        if listeners(port):
            raise MachineError(
                f"port {port}, which the exported rollout server takes, is in use; free it and try again"
            )
        ends = self.clock.monotonic() + CLOSING_S
        while self.exported.framework.takes_next_port and not is_free(port) and self.clock.monotonic() < ends:
            self.clock.sleep(0.5)
        launch = ServerLaunch(
            argv=("sh", str(self.folder / SERVER)),
            health=health,
            answer="",
            ready_s=READY_S,
            environment=IN_TRIAL,
        )
        with server_beside(launch, command.logs / "server", command.tag, self.stop, clock=self.clock) as server:
            yield server.trouble

    def _command(self, number: int, deadline_s: float, seed: int | None) -> BoundedCommand:
        words, place, environment = export.command_of(self.exported.export, self.folder)
        if self.exported.export.server:  # the scripts share the GPUs out between them
            words, environment = ("sh", str(self.folder / RUN)), {}
        further = () if seed is None else ("--seed", str(seed))
        theirs = {name: os.environ[name] for name in environment if name in os.environ and name != "PYTHONPATH"}
        return BoundedCommand(
            argv=(*words, *self.exported.framework.listening(str(self.folder / OUTPUT)), *further),
            cwd=Path(place or Path.cwd()),
            tag=f"{study_tag(home_tag(self.settings.home.root), TOOL)}{tool_owner()}:verify",
            logs=self.folder / "logs" / str(number),
            deadline_s=deadline_s,
            environment={**environment, **theirs},
            memory_limit=self.study.spec.memory_limit,
        )


def verify(rehearsal: Rehearsal, rounds: int = 1) -> RunVerdict:
    """Runs the exported command ``rounds`` times in new processes, and compares it with the stated figure.

    Raises:
        MachineError: the command cannot be run here, or does not train.
        UsageError: the study has no figure to compare with, or the framework prints other lines.
        InterruptedVerification: the user stopped it.
    """
    stated = compare_run.stated_by(rehearsal.supporting, rehearsal.exported.row.tokens_per_hour, rehearsal.shape)
    if stated is None:
        raise UsageError("the trials of this configuration have no speed cycles to compare with")
    rehearsal.write()
    runs = [rehearsal.run(number) for number in range(1, rounds + 1)]
    half_width = evidence.apart(rehearsal.trials, rehearsal.supporting, [run.counted.logs for run in runs])
    return compare_run.judge(compare_run.together(runs), stated, rehearsal.shape, half_width)


def _check_machine(study: Study, clock: Clock) -> None:
    python, nodes = study.spec.python, study.spec.resources.nodes
    if nodes > 1:
        raise UsageError(f"a trial of study {study.spec.name!r} has {nodes} nodes, and verify runs on this one alone")
    if not os.access(python, os.X_OK):
        raise MachineError(f"{python} is not an interpreter that can be run; the study was measured with it")
    usable_resources(lambda _: None, study.spec.resources.gpus, asked=f"study {study.spec.name!r}")  # as its trials
    if study.spec.resources.gpus:
        ours = hardware.driver_process_ids_are_ours()
        guard = GpuGuard(hardware.visible_gpus, pids_are_ours=ours, computes=hardware.has_gpu_open)
        refusal = guard.before(clock)
        if refusal is not None:
            raise MachineError(refusal)


def _predicted_s(supporting: Sequence[Trial], updates: int) -> float:
    starts = [sum(t.startup.values()) for t in supporting]
    cycles = [c.seconds / max(1, c.updates) for t in supporting for c in t.cycles]
    return max(starts, default=0.0) + START_S / PATIENCE + updates * max(cycles, default=START_S)


def _why(why: str, code: int | None, tail: str, updates: int, logs: Path) -> str:
    """Explains in a sentence why a command did not train as expected."""
    said = [line.strip() for line in tail.splitlines() if line.strip()]
    last = next((line for line in reversed(said) if "Error" in line and "CalledProcessError" not in line), "")
    cause = why or (
        f"it ended with exit code {code}" if code else f"it ended after {updates} updates, too few to count"
    )
    return f"the exported command did not train: {cause}{f' ({last[:200]})' if last else ''}; its output is in {logs}"
