"""Measures time and memory of a cycle by phase, without changing the framework.

Each instant of a cycle belongs to the innermost open phase. On a CPU a boundary is a clock reading; on CUDA it is an
event on the stream, read when the cycle is over, so that nothing is synchronised inside a cycle. The time between two
events is the time the device needed between the boundaries, including waits on the host side.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import resource
import threading
import time
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from .contract import Peaks, Phase, ProcessUse
from .failures import chain
from .journal import Journal
from .memory import MemoryWatch

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
    """Seconds spent in Python's garbage collector since ``watch`` was called."""

    seconds = 0.0
    _started = 0.0

    @classmethod
    def watch(cls) -> None:
        """Starts watching the garbage collector; further calls change nothing."""
        if cls._collected not in gc.callbacks:
            gc.callbacks.append(cls._collected)

    @classmethod
    def _collected(cls, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":
            cls._started = time.perf_counter()
        else:
            cls.seconds += time.perf_counter() - cls._started


class ShapesMet:
    """Counts distinct (rows, tokens) shapes of forward passes; libraries build a plan in a shape's first pass.

    The set belongs to the process, so it includes shapes of earlier trials.

    Args:
        kind: kind of the passes, such as their precision; another kind needs new plans.
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
        """Returns the resource use of the cycle, which ended with the last ``mark``."""
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
    """Times the gradient all-reduce over ranks, by the clock of torch's DistributedDataParallel.

    ``model`` is the model as the trainer wrapped it; without DistributedDataParallel nothing is timed.
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


class HostTimer:
    """Timestamps phase boundaries with the monotonic clock."""

    def mark(self) -> float:
        return time.perf_counter()

    def settle(self) -> None:
        """Waits for the device's work; a CPU has none pending."""

    def between(self, first: float, second: float) -> float:
        return second - first


class DeviceTimer:
    """Timestamps phase boundaries with CUDA events. Call ``settle`` before ``between``, which returns seconds."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda

    def mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self) -> None:
        """Waits for the device. Called once, at a cycle's end, when the trainer has already waited to read the loss."""
        self._cuda.synchronize()

    def between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1000.0


def attribute(
    boundaries: Sequence[Tuple[Any, Phase]], end: Any, between: Callable[[Any, Any], float]
) -> Dict[Phase, float]:
    """Returns exclusive seconds by phase; each boundary opens its phase until the next boundary."""
    seconds: Dict[Phase, float] = {}
    for index, (stamp, phase) in enumerate(boundaries):
        until = boundaries[index + 1][0] if index + 1 < len(boundaries) else end
        seconds[phase] = seconds.get(phase, 0.0) + between(stamp, until)
    return seconds


class Meter:
    """The phase stack of one rank.

    ``begin`` and ``end`` enclose a cycle. Outside a cycle, phases are only marked in the journal, so that a failure
    there still has a phase.
    """

    def __init__(self, journal: Journal, memory: MemoryWatch, device: str = "cpu", enabled: bool = True) -> None:
        self.enabled = enabled
        self.overhead = 0.0
        """CPU seconds of the meter's own hooks since the cycle began; other programs' load does not stretch it."""
        self._journal = journal
        self._memory = memory
        self._usage = UsageWatch()
        self._timer: Any = DeviceTimer() if device == "cuda" else HostTimer()
        self._stack: List[Phase] = []
        self._boundaries: List[Tuple[Any, Phase]] = []
        self._running = False
        self._cycle: Tuple[int, str] = (-1, "")
        self._started = 0.0
        self._peak_phase = Phase.IDLE
        self._fault: Tuple[Optional[BaseException], Optional[Phase]] = (None, None)

    def begin(self, index: int, cycle_kind: str, meet: Callable[[], object] = lambda: None) -> None:
        """Begins a cycle; its clock starts when this function returns.

        Args:
            meet: barrier called just before the clock starts, so that all ranks start together.
        """
        self._cycle = (index, cycle_kind)
        self._stack.clear()
        self._boundaries.clear()
        self._journal.mark(Phase.IDLE.value, index, cycle_kind)
        self._timer.settle()
        if self.enabled:
            self._memory.begin()
            self._usage.begin(self._memory.stats)
            self._peak_phase = Phase.IDLE
        meet()
        if self.enabled:
            self._boundaries.append((self._timer.mark(), Phase.IDLE))
            self._usage.mark(Phase.IDLE)
        self.overhead = 0.0
        self._running = True
        self._started = time.perf_counter()

    def end(self) -> Tuple[float, Dict[str, float]]:
        """Ends the cycle and returns (seconds, seconds by phase); the phases sum to the seconds."""
        last = self._timer.mark() if self.enabled else None
        self._timer.settle()
        seconds = time.perf_counter() - self._started
        self._running = False
        if not self.enabled:
            return seconds, {Phase.IDLE.value: seconds}
        self._usage.mark(Phase.IDLE)
        self._memory.close(self._peak_phase)
        by_phase = attribute(self._boundaries, last, self._timer.between)
        phases = {phase.value: spent for phase, spent in by_phase.items() if phase is not Phase.IDLE}
        phases[Phase.IDLE.value] = max(0.0, seconds - sum(phases.values()))
        return seconds, phases

    def peaks(self) -> Mapping[str, Peaks]:
        """Returns memory peaks of the last cycle by phase. Takes milliseconds: call it after ``ClockGuard.after``."""
        return self._memory.peaks() if self.enabled else {}

    def retries(self) -> Optional[Mapping[str, int]]:
        """Returns allocator retries of the last cycle by phase; ``None`` on a CPU."""
        return self._memory.retries() if self.enabled else None

    def usage(self, new_shapes: Optional[int] = None) -> Optional[ProcessUse]:
        """Returns the resource use of the last cycle, with ``new_shapes``; ``None`` if the meter is off."""
        return self._usage.end(self._memory.stats, new_shapes) if self.enabled else None

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Attributes the time in the block to ``phase``, except the time of inner phases."""
        self.push(phase)
        try:
            yield
        except BaseException as error:
            if self._fault[0] is not error:
                self._fault = (error, phase)
            raise
        finally:
            self.pop()

    def push(self, phase: Phase) -> None:
        self._stack.append(phase)
        self._boundary(phase)

    def pop(self) -> None:
        self._stack.pop()
        self._boundary(self._stack[-1] if self._stack else Phase.IDLE)

    def look(self) -> None:
        """Samples the memory in use for the current phase's peak, before memory is freed."""
        entered = time.thread_time()
        if self.enabled and self._running:
            self._memory.close(self._peak_phase)
        self.overhead += time.thread_time() - entered

    def wrap(self, function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
        """Returns ``function`` with its time attributed to ``phase``."""

        @functools.wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase):
                return function(*args, **kwargs)

        return metered

    @property
    def current(self) -> Optional[Phase]:
        """The innermost open phase."""
        return self._stack[-1] if self._stack else None

    def fault_phase(self, error: BaseException) -> Optional[Phase]:
        """Returns the phase in which ``error``, or its cause, was raised."""
        if any(link is self._fault[0] for link in chain(error)):
            return self._fault[1]
        return self.current

    def _boundary(self, phase: Phase) -> None:
        entered = time.thread_time()
        if self.enabled and self._running:
            self._boundaries.append((self._timer.mark(), phase))
            self._usage.mark(phase)
            # Idle gaps keep the phase before them, so that UPDATE, idle, UPDATE is one reading, not three.
            if phase is not Phase.IDLE and phase is not self._peak_phase:
                self._memory.close(self._peak_phase)
                self._peak_phase = phase
        self._journal.mark(phase.value, *self._cycle)
        self.overhead += time.thread_time() - entered
