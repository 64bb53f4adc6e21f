"""Resource use of a rank's process in a cycle, from counters of the kernel, Python and CUDA's allocator."""

from __future__ import annotations

import gc
import resource
import threading
import time
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .contract import Phase, ProcessUse

Stats = Optional[Mapping[str, Any]]
"""Counters of ``torch.cuda.memory_stats()``; ``None`` on a CPU."""


class CpuClock:
    """CPU seconds of the creating thread and of the whole process; a reading takes one or two microseconds."""

    def __init__(self) -> None:
        self._thread = time.pthread_getcpuclockid(threading.get_ident())

    def read(self) -> Tuple[float, float]:
        """Returns CPU seconds of (the creating thread, the process), from any thread."""
        return time.clock_gettime(self._thread), time.process_time()


class GcClock:
    """Seconds spent in Python's garbage collector since the process began to be watched."""

    seconds = 0.0
    _started = 0.0

    @classmethod
    def watch(cls) -> None:
        """Begins to watch the garbage collector; further calls change nothing."""
        if cls._collected not in gc.callbacks:
            gc.callbacks.append(cls._collected)

    @classmethod
    def _collected(cls, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":
            cls._started = time.perf_counter()
        else:
            cls.seconds += time.perf_counter() - cls._started


class ShapesMet:
    """Distinct (rows, tokens) shapes of forward passes; libraries plan on a shape's first pass.

    That is once in a process, be it in an earlier trial.

    Args:
        kind: of the passes, such as their precision; those of another kind are planned anew.
    """

    _met: ClassVar[Dict[str, Set[Tuple[int, int]]]] = {}

    def __init__(self, kind: str = "") -> None:
        self._known = self._met.setdefault(kind, set())
        self._new = 0

    def meet(self, rows: int, tokens: int, last: Optional[int] = None) -> None:
        """Records a pass, or with ``last`` one for each number of tokens from ``tokens`` to ``last``."""
        shapes = {(rows, count) for count in range(tokens, (tokens if last is None else last) + 1)} - self._known
        self._known.update(shapes)
        self._new += len(shapes)

    def take(self) -> int:
        """Returns the number of new shapes since the last call."""
        new, self._new = self._new, 0
        return new


class UsageWatch:
    """Counters of one rank's process: ``begin`` and ``end`` enclose a cycle, ``mark`` opens a phase."""

    def __init__(self) -> None:
        GcClock.watch()
        self._clock = CpuClock()
        self._marks: List[Tuple[Tuple[float, float], Phase]] = []
        self._stats: Stats = None
        self._kernel = self._read_kernel()
        self._gc = 0.0

    def begin(self, stats: Stats) -> None:
        """Prepares a cycle, which starts with the first ``mark``."""
        self._marks.clear()
        self._stats = stats
        self._kernel = self._read_kernel()
        self._gc = GcClock.seconds

    def mark(self, phase: Phase) -> None:
        """Opens ``phase``."""
        self._marks.append((self._clock.read(), phase))

    def end(self, stats: Stats, new_shapes: Optional[int] = None) -> ProcessUse:
        """Returns the use in the cycle, which ended with the last ``mark``."""
        main: Dict[str, float] = {}
        every: Dict[str, float] = {}
        for (before, phase), (after, _) in zip(self._marks, self._marks[1:]):  # noqa: B905  (each with the next)
            main[phase.value] = main.get(phase.value, 0.0) + after[0] - before[0]
            every[phase.value] = every.get(phase.value, 0.0) + after[1] - before[1]
        system, faults, preempted = (now - then for now, then in zip(self._read_kernel(), self._kernel, strict=True))
        return ProcessUse(
            main_thread=main,
            all_threads=every,
            system_seconds=system,
            minor_faults=int(faults),
            preempted=int(preempted),
            gc_seconds=GcClock.seconds - self._gc,
            new_shapes=new_shapes,
            **allocator_use(self._stats, stats),
        )

    @staticmethod
    def _read_kernel() -> Sequence[float]:
        seen = resource.getrusage(resource.RUSAGE_SELF)
        return seen.ru_stime, seen.ru_minflt, seen.ru_nivcsw


class GradientSync:
    """Times the summing of gradients over ranks, by the clock of torch's DistributedDataParallel.

    ``model`` is as the trainer wrapped it; without DistributedDataParallel nothing is timed.
    """

    def __init__(self, model: Any) -> None:
        every = getattr(model, "_set_ddp_runtime_logging_sample_rate", None)
        self._model = None if every is None else model
        if every is not None:
            every(1)  # by itself it times the first ten updates and then one in a hundred

    def take(self) -> Dict[str, Any]:
        """Returns fields of ``ProcessUse`` for the last update; waits until the device has finished it."""
        if self._model is None:
            return {}
        self._model.logger.set_runtime_stats_and_log()  # as its next forward pass would
        logged = self._model._get_ddp_logging_data()
        whole, hidden = logged.get("backward_comm_time"), logged.get("backward_compute_comm_overlap_time")
        if not whole or hidden is None:
            return {}
        return {"gradient_sync_seconds": whole / 1e9, "gradient_sync_hidden": min(1.0, hidden / whole)}


def allocator_use(before: Stats, after: Stats) -> Dict[str, Optional[int]]:
    """Returns the allocator's fields of ``ProcessUse`` from its counters at a cycle's start and end."""

    def grown(name: str) -> Optional[int]:
        if before is None or after is None or name not in before or name not in after:
            return None
        return int(after[name]) - int(before[name])

    split = None if after is None else after.get("inactive_split_bytes.all.current")
    return {
        "device_allocations": grown("num_device_alloc"),
        "device_frees": grown("num_device_free"),
        "device_ooms": grown("num_ooms"),
        "new_segments": grown("segment.all.current"),
        "reserved_growth": grown("reserved_bytes.all.current"),
        "split_bytes": None if split is None else int(split),
    }
