"""Runs the trial that a folder describes and writes its result.

``main`` runs one spec and exits; ``run`` keeps no state in the process, so that a warm worker (``warm``) calls it for
several folders.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from . import began, frameworks
from .contract import (
    FailureReason,
    Phase,
    Result,
    RunPaths,
    StartupPart,
    StartupRecord,
    TrialSpec,
    dumps,
    missing_input,
    read_spec,
    write_atomic,
)
from .failures import IllegalSettingError, classify, tail
from .journal import Journal
from .trial import TrialContext

ECHOES = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "remote process exited",
    "NCCL communicator was aborted",
    "failed to recv, got 0 bytes",
    "Broken pipe",
)
"""Texts of a failure that a rank has because another rank is gone."""


class ResultClaim:
    """A rank's claim to write the trial's result.

    With several ranks, the first rank with its own failure reports it: the others only lose their connection to it, or
    are ended by the launcher. If no rank reports (one was killed), the launcher's log has the reason.
    """

    def __init__(self, paths: RunPaths, rank: int = 0, world_size: int = 1, leads: Optional[bool] = None) -> None:
        """Prepares the claim of one rank.

        ``leads`` tells whether this is the first rank of its machine, which reports success and marks the phase; by
        default rank 0.
        """
        self.leads = rank == 0 if leads is None else leads
        self._paths = paths
        self._rank = rank
        self._several = world_size > 1
        self._lock = threading.Lock()
        self._result: Optional[Result] = None

    def settle(self, result: Result) -> Result:
        """Records ``result`` if it is this rank's first, and returns the first."""
        with self._lock:
            if self._result is None:
                self._result = result
                if self._is_reported(result) and self._is_first():
                    write_atomic(self._paths.result, dumps(result))
                elif not result.ok:
                    sys.stderr.write("rank %d: %s\n%s\n" % (self._rank, result.message, result.detail))
                    sys.stderr.flush()
            return self._result

    def _is_reported(self, result: Result) -> bool:
        if result.ok:
            return self.leads
        if not self._several:
            return True
        if result.reason is FailureReason.CANCELLED:
            return False
        return result.reason is not FailureReason.CRASH or not is_echo(result)

    def _is_first(self) -> bool:
        """Tells whether this rank is the first to report, by exclusive creation of a file."""
        if not self._several:
            return True
        try:
            self._paths.scratch.mkdir(parents=True, exist_ok=True)
            os.close(os.open(str(self._paths.scratch / "told"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return False
        return True


def is_echo(result: Result) -> bool:
    """Tells whether a failure only reports that another rank is gone."""
    return any(text in result.message for text in ECHOES)


FRAMEWORKS = {
    "trl": ".frameworks.trl",
    "open_r1": ".frameworks.open_r1",
    "ms_swift": ".frameworks.ms_swift",
    "verl": ".frameworks.verl",
}


def main(directory: Path) -> Result:
    """Runs the trial of ``directory``; returns the result that is written, which includes every expected failure."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    # Each machine has a folder of its own, which its first rank tells of.
    ending = ResultClaim(RunPaths(directory), rank, world_size, os.environ.get("LOCAL_RANK", "0") == "0")
    answer_sigterm(lambda: ending)
    return run(RunPaths(directory), ending, rank, world_size)


def run(
    paths: RunPaths, ending: ResultClaim, rank: int = 0, world_size: int = 1, state: Optional[Dict[str, Any]] = None
) -> Result:
    """Runs one spec, from ``config.json`` to ``result.json``; ``state`` is the state that a warm worker keeps."""
    trial: Optional[TrialContext] = None
    try:
        spec = read_spec(paths.config)
        paths.scratch.mkdir(parents=True, exist_ok=True)
        trial = TrialContext(spec, paths, Journal(paths, marks=ending.leads), rank, world_size, kept=state)
        if rank == 0 and (spawning := began.take()) is not None:
            trial.journal.write(StartupRecord(StartupPart.SPAWN, spawning))
        if spec.world_size != world_size:
            sizes = (spec.world_size, world_size)
            raise IllegalSettingError("the trial is of %d processes and was started as %d" % sizes)
        framework_of(spec).run_trial(trial)
    except BaseException as error:
        # Rank 0 may be waiting for this rank in a collective for ever, so a failure is told by whoever has it.
        return ending.settle(_absent(trial, error) or classify(error, _phase_of(trial, error), _facts(trial)))
    if state is not None:
        trial.journal.close()
    return ending.settle(Result(ok=True, data=_facts(trial)))


def framework_of(spec: TrialSpec) -> Any:
    """Imports the module that runs trials of the spec's framework."""
    if spec.child:
        frameworks.__path__.append(os.path.dirname(spec.child))
        return importlib.import_module(".frameworks.%s" % os.path.basename(spec.child), __package__)
    if spec.framework not in FRAMEWORKS:
        raise IllegalSettingError("no framework %r; there is %s" % (spec.framework, ", ".join(FRAMEWORKS)))
    return importlib.import_module(FRAMEWORKS[spec.framework], __package__)


def _absent(trial: Optional[TrialContext], error: BaseException) -> Optional[Result]:
    """Returns an INFRA failure if an input file of the trial is missing, whatever ``error`` is; else ``None``."""
    missing = None if trial is None else missing_input(trial.spec)
    if trial is None or missing is None:
        return None
    reason, phase = FailureReason.INFRA, _phase_of(trial, error)
    return Result(ok=False, reason=reason, phase=phase, message=missing, detail=tail(error), data=_facts(trial))


def _phase_of(trial: Optional[TrialContext], error: BaseException) -> Optional[Phase]:
    if trial is None or trial.meter is None:
        return None
    return trial.meter.fault_phase(error)


def _facts(trial: Optional[TrialContext]) -> Dict[str, Any]:
    if trial is None:
        return {}
    rank = {"rank": trial.rank} if trial.world_size > 1 else {}
    return {**trial.facts, **rank, **({"startup_part": trial.part.value} if trial.part is not None else {})}


def answer_sigterm(current: Callable[[], Optional[ResultClaim]]) -> None:
    """Makes SIGTERM write CANCELLED for the running trial, if any, and end the process at once.

    A Python signal handler would wait for the running kernel, which can take minutes. The C handler writes to a wake-up
    pipe, which a thread reads: kernels let other threads run.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def watch() -> None:
        while True:
            select.select([reading], [], [])
            if signal.SIGTERM in os.read(reading, 64):
                break
        cancelled = Result(ok=False, reason=FailureReason.CANCELLED, message="stopped by SIGTERM")
        ending = current()
        os._exit(0 if ending is None or ending.settle(cancelled).ok else 1)

    threading.Thread(target=watch, name="autotune-sigterm", daemon=True).start()
