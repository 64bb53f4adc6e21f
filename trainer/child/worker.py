"""Runs the trial a folder describes and says how it ended.

One spec and exit, for now; ``run`` keeps no state of its own in the process, so that a warm worker can
later call it for several folders.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from .contract import (
    FailureReason,
    Phase,
    Result,
    RunPaths,
    StartupPart,
    StartupRecord,
    TrialSpec,
    dumps,
    read_spec,
    write_atomic,
)
from .failures import IllegalSettingError, classify
from .journal import Journal
from .memory import MemoryWatch, limit_data
from .meter import Meter

FRAMEWORKS = {"trl": ".frameworks.trl"}


@dataclass
class Trial:
    """What a framework needs to run a trial: the spec, where to write, and which rank this is."""

    spec: TrialSpec
    paths: RunPaths
    journal: Journal
    rank: int = 0
    world_size: int = 1
    meter: Optional[Meter] = None
    part: Optional[StartupPart] = None
    """The start-up part under way; ``None`` once cycles run."""
    facts: Dict[str, Any] = field(default_factory=dict)
    """Goes into ``Result.data``."""

    @contextlib.contextmanager
    def startup(self, part: StartupPart) -> Iterator[None]:
        """Time inside is that part of the start-up."""
        self.part = part
        self.journal.mark(part.value)
        started = time.perf_counter()
        yield
        self.part = None
        if self.rank == 0:
            self.journal.write(StartupRecord(part, time.perf_counter() - started))

    def open_meter(self) -> Meter:
        """The meter of this rank; call it when the framework is imported."""
        spec = self.spec
        self.meter = Meter(self.journal, MemoryWatch(spec.device), spec.device, enabled=spec.meter)
        return self.meter

    def guard_memory(self) -> None:
        """Set the backstop from what the process has mapped by now; see ``memory.limit_data``.

        For the framework to call after its imports, and again when the trainer is built (on CUDA only
        then: the driver maps far more than it uses).
        """
        if self.spec.memory_limit is not None:
            self.facts["rlimit_data"] = limit_data(self.spec.memory_limit)


class Ending:
    """``result.json`` is written once, by whoever comes first: the trial's end, or a signal."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._result: Optional[Result] = None

    def settle(self, result: Result, write: bool = True) -> Result:
        """The result that counts: this one, unless another was settled before."""
        with self._lock:
            if self._result is None:
                self._result = result
                if write:
                    write_atomic(self._paths.result, dumps(result))
            return self._result


def main(directory: Path) -> Result:
    """Run the trial of ``directory``; every expected failure is in the result, which is also on disk."""
    ending = Ending(RunPaths(directory))
    _answer_sigterm(ending)
    return run(RunPaths(directory), ending)


def run(paths: RunPaths, ending: Ending) -> Result:
    """One spec, from ``config.json`` to ``result.json``."""
    rank = int(os.environ.get("RANK", "0"))
    trial: Optional[Trial] = None
    try:
        spec = read_spec(paths.config)
        paths.scratch.mkdir(parents=True, exist_ok=True)
        trial = Trial(spec, paths, Journal(paths), rank, int(os.environ.get("WORLD_SIZE", "1")))
        if spec.framework not in FRAMEWORKS:
            raise IllegalSettingError("no framework %r; there is %s" % (spec.framework, ", ".join(FRAMEWORKS)))
        framework = importlib.import_module(FRAMEWORKS[spec.framework], __package__)
        framework.run_trial(trial)
    except BaseException as error:
        failure = classify(error, _phase_of(trial, error), _facts(trial))
        # Rank 0 may be waiting for this rank in a collective for ever, so a failure is told by whoever has it.
        return ending.settle(failure, write=rank == 0 or not paths.result.exists())
    return ending.settle(Result(ok=True, data=_facts(trial)), write=rank == 0)


def _phase_of(trial: Optional[Trial], error: BaseException) -> Optional[Phase]:
    if trial is None or trial.meter is None:
        return None
    return trial.meter.fault_phase(error)


def _facts(trial: Optional[Trial]) -> Dict[str, Any]:
    if trial is None:
        return {}
    return {**trial.facts, **({"startup_part": trial.part.value} if trial.part is not None else {})}


def _answer_sigterm(ending: Ending) -> None:
    """On SIGTERM write CANCELLED and go at once.

    A Python signal handler would wait for the running kernel, which can take minutes; the wake-up pipe
    is written by the C handler, and kernels let other threads run.
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
        settled = ending.settle(cancelled)
        os._exit(0 if settled.ok else 1)

    threading.Thread(target=watch, name="autotune-sigterm", daemon=True).start()
