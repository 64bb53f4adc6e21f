"""Checks a trial's process tree ten times a second: its memory against the limit, and its CPU time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

from autotune.running.memory import TreeMemory
from autotune.running.proc import TICKS_PER_SECOND, Stat
from autotune.running.process_tree import ProcessTree
from trainer.child.contract import CurrentPhase, read_phase

_GCC = ("gcc", "g++", "cc", "c++", "cc1", "cc1plus", "collect2", "lto1", "lto-wrapper", "as", "ld")
_CUDA = ("nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")
_NAMES = frozenset((*_GCC, *_CUDA))
_BEGINNINGS = ("clang", "ld.")
"""Of names with a version or a kind behind: ``clang-19``, ``ld.lld``."""


def compiles(process: Stat) -> bool:
    """Whether a process name is a compiler's."""
    return process.name in _NAMES or process.name.startswith(_BEGINNINGS)


PERIOD_S = 0.1


class Watchdog(threading.Thread):
    """Kills the tree as soon as its summed PSS passes the limit.

    Compilers do not count (docs/decisions/0039-compilers-and-the-limit.md): killed with the trial they would have to
    begin again in the next one, and be killed again.

    A thread of its own, because the limit must hold while the watcher waits for a disk.
    """

    def __init__(
        self,
        tree: ProcessTree,
        memory: TreeMemory,
        limit: int | None,
        phase_file: Path,
        seen: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``seen`` is called with the summed PSS in bytes at each look; what it raises ends the watchdog."""
        super().__init__(name="memory-watchdog", daemon=True)
        self._tree = tree
        self._memory = memory
        self._limit = limit
        self._phase_file = phase_file
        self._seen = seen
        self._done = threading.Event()
        self.cpu_s = 0.0
        """CPU seconds of the tree so far."""
        self.over: int | None = None
        """Bytes it had when it was killed for them."""
        self.compiled = False
        """A compiler was among the processes at some look."""
        self.phase: CurrentPhase | None = None
        """Where it was killed."""
        self.error: Exception | None = None
        """Why the watchdog itself ended early; the supervisor must not go on without it."""

    @property
    def peak(self) -> int:
        """Highest summed PSS seen, in bytes."""
        return self._memory.peak

    def run(self) -> None:
        try:
            self.look()
            while not self._done.wait(PERIOD_S):
                self.look()
        except Exception as error:  # handed to the supervisor's thread, which raises it
            self.error = error

    def look(self) -> None:
        """One check; kills the tree if its memory is above the limit."""
        members = self._tree.refresh()
        self.cpu_s = max(self.cpu_s, sum(m.cpu_ticks for m in members) / TICKS_PER_SECOND)
        counted = [m for m in members if not compiles(m)]
        self.compiled = self.compiled or len(counted) < len(members)
        used = self._memory.measure(counted, self._limit)
        if self._limit is not None and used > self._limit:
            if self.over is None:
                self.phase = read_phase(self._phase_file)
                self.over = used
            self._tree.signal(signal.SIGKILL)
        self._seen(used)

    def finish(self) -> None:
        """Ends the checks."""
        self._done.set()
        self.join()
