"""Inputs of a framework's ``run_trial``."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Dict, Iterator, Mapping, Optional

from .contract import NoteRecord, RunPaths, StartupPart, StartupRecord, TrialSpec
from .journal import Journal
from .memory import MemoryWatch, limit_data
from .meter import Meter


@dataclass
class TrialContext:
    """Everything a framework needs to run a trial: the spec, where to write, and which rank this is."""

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
    kept: Optional[Dict[str, Any]] = None
    """What a warm worker keeps from one trial for the next, by name; ``None`` in a process of one trial."""

    @contextlib.contextmanager
    def startup(self, part: StartupPart) -> Iterator[None]:
        """Context manager whose time counts as that part of the start-up."""
        self.part = part
        self.journal.mark(part.value)
        started = time.perf_counter()
        yield
        self.part = None
        if self.rank == 0:
            self.journal.write(StartupRecord(part, time.perf_counter() - started))

    def note(self, name: str, data: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Writes a ``NoteRecord`` once, whatever the number of ranks."""
        if self.rank == 0:
            self.journal.write(NoteRecord(name, data))

    def open_meter(self) -> Meter:
        """Creates the meter of this rank; call it after the framework is imported."""
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
