"""Inputs of a framework's ``run_trial``."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Dict, Iterator, Mapping, Optional

from .checks import check_lengths
from .contract import NoteRecord, RunPaths, StartupPart, StartupRecord, TrialSpec
from .journal import Journal
from .memory import MemoryWatch, limit_data
from .meter import Meter


@dataclass
class TrialContext:
    """Inputs of a framework that runs a trial: the spec, the files to write, and the rank."""

    spec: TrialSpec
    paths: RunPaths
    journal: Journal
    rank: int = 0
    world_size: int = 1
    meter: Optional[Meter] = None
    part: Optional[StartupPart] = None
    """Current part of the start-up; ``None`` once cycles run."""
    facts: Dict[str, Any] = field(default_factory=dict)
    """Facts of the trial for ``Result.data``."""
    kept: Optional[Dict[str, Any]] = None
    """State that a warm worker keeps between trials, by name; ``None`` in a process of one trial."""

    @contextlib.contextmanager
    def startup(self, part: StartupPart) -> Iterator[None]:
        """Attributes the time in the ``with`` block to a part of the start-up."""
        self.part = part
        self.journal.mark(part.value)
        started = time.perf_counter()
        yield
        self.part = None
        if self.rank == 0:
            self.journal.write(StartupRecord(part, time.perf_counter() - started))

    def note(self, name: str, data: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Writes a ``NoteRecord`` once, for any number of ranks."""
        if self.rank == 0:
            self.journal.write(NoteRecord(name, data))

    def open_meter(self) -> Meter:
        """Creates the meter of this rank, and guards its memory; call it after the framework is imported.

        Raises IllegalSettingError if recorded cycles have no lengths.
        """
        spec = self.spec
        check_lengths(spec)
        self.meter = Meter(self.journal, MemoryWatch(spec.device), spec.device, enabled=spec.meter)
        self.guard_memory(early=True)
        return self.meter

    def guard_memory(self, early: bool = False) -> None:
        """Limits this process's data size, as a backstop of the memory limit (``memory.limit_data``).

        Called ``early``, after the imports, and by a framework after the trainer is built. On CUDA the early call sets
        nothing, because the driver maps far more memory than it uses.
        """
        if self.spec.memory_limit is not None and (not early or self.spec.device != "cuda"):
            self.facts["rlimit_data"] = limit_data(self.spec.memory_limit)
