"""Watches a trial's processes: memory against the limit and over time, and signs of progress."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.documents.memory_timeline import MOST_POINTS, MemoryTimeline, Point, text_of, thinned
from autotune.ports import Clock
from autotune.running import proc
from autotune.running.proc import TICKS_PER_SECOND, Stat
from autotune.running.process_tree import ProcessTree
from trainer.child.contract import CurrentPhase, read_phase, write_atomic


@dataclass(frozen=True, slots=True)
class PssReading:
    """One process's PSS at its last exact reading, in bytes."""

    started: int
    proportional: int
    resident: int
    shared: int


@dataclass(frozen=True, slots=True)
class Probes:
    """Functions that read memory figures from ``/proc``; replaced in tests."""

    resident: Callable[[int], tuple[int, int]] = proc.read_resident
    proportional: Callable[[int], int | None] = proc.read_proportional
    monotonic: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.thread_time


class TreeMemory:
    """Current and highest summed PSS of a process tree, in bytes."""

    def __init__(
        self,
        duty: float = 0.01,
        burst_s: float = 0.2,
        max_age_s: float = 2.0,
        probes: Probes | None = None,
        shared_bytes: Callable[[], int] = lambda: 0,
    ):
        """Makes a measure.

        Args:
            duty: share of one core that exact readings may cost.
            burst_s: CPU seconds that may be saved up for exact readings at a peak.
            max_age_s: seconds after which an exact reading is renewed, if the duty allows.
            shared_bytes: returns the bytes of the tree's pages that count as others' (``Preloads.shared_bytes``).
        """
        self._duty, self._burst, self._max_age = duty, burst_s, max_age_s
        self._probes = probes or Probes()
        self._credit = burst_s
        self._cost = 0.0
        self._at = self._exact_at = self._probes.monotonic()
        self._readings: dict[int, PssReading] = {}
        self._shared_bytes = shared_bytes
        self._share = 0
        self.current = 0
        self.peak = 0

    def measure(self, members: Sequence[Stat], limit: int | None = None) -> int:
        """Returns the summed PSS in bytes; reads it exactly if the sum may be above ``limit``."""
        now = self._probes.monotonic()
        self._credit = min(self._burst, self._credit + self._duty * (now - self._at))
        self._at = now
        resident = {m.pid: self._probes.resident(m.pid) for m in members}
        low, high = self._estimate(members, resident)
        must = limit is not None and high > limit
        wanted = high > 1.01 * self.peak or now - self._exact_at >= self._max_age
        if must or (wanted and self._credit >= self._cost):
            low = self._read(members, resident)
            self._exact_at = now
        self.current = low
        self.peak = max(self.peak, low)
        return low

    def _estimate(self, members: Sequence[Stat], resident: dict[int, tuple[int, int]]) -> tuple[int, int]:
        """Returns a lower and an upper estimate of the summed PSS; new anonymous memory counts in both."""
        low = high = self._share
        for member in members:
            total, shared = resident[member.pid]
            known = self._readings.get(member.pid)
            if known is None or known.started != member.started:
                high += total  # a fresh fork shares its parent's pages: nothing is sure yet
                continue
            low += max(0, known.proportional + (total - shared) - (known.resident - known.shared))
            high += max(0, known.proportional + total - known.resident)
        return low, high

    def _read(self, members: Sequence[Stat], resident: dict[int, tuple[int, int]]) -> int:
        before = self._probes.cpu()
        readings = {}
        for member in members:
            total, shared = resident[member.pid]
            exact = self._probes.proportional(member.pid)
            if exact is None:  # it has ended meanwhile and holds nothing, or may not be read and counts whole
                exact = self._probes.resident(member.pid)[0]
            readings[member.pid] = PssReading(member.started, exact, total, shared)
        self._readings = readings
        self._share = self._shared_bytes()
        self._cost = self._probes.cpu() - before
        self._credit -= self._cost
        return self._share + sum(r.proportional for r in readings.values())


WINDOW_S = 5.0
"""Seconds of a window over which CPU use is judged."""


@dataclass(frozen=True, slots=True)
class HangLimits:
    """Seconds without progress after which a child counts as hung."""

    quiet_s: float = 180.0
    """Limit without output and with (almost) no CPU time used."""
    phase_s: float = 1800.0
    """Limit without output, however busy the child is: a spinning wait looks like work."""
    by_phase: Mapping[str, float] = field(default_factory=dict)
    """Overrides of ``phase_s``, by phase or start-up part."""
    busy_cores: float = 0.05
    """Mean number of cores below which a tree counts as idle; frameworks' monitoring threads never sleep entirely."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Signs of progress of a child at one moment."""

    at: float
    """Time in monotonic seconds."""
    mark: int
    """Modification time of the phase file, in nanoseconds."""
    written: int
    """Bytes read of ``metrics.jsonl``."""
    cpu_s: float
    """CPU seconds of the tree so far."""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Vigil:
    """State of the hang detection between two checks."""

    progress: Pulse
    """Signs at the last output."""
    window: Pulse
    """Start of the current CPU window."""
    busy_at: float
    """End of the last window with CPU use, in monotonic seconds."""

    @staticmethod
    def begin(pulse: Pulse) -> Vigil:
        """Returns the state at the child's start."""
        return Vigil(pulse, pulse, pulse.at)


def advance(vigil: Vigil, pulse: Pulse, limits: HangLimits) -> Vigil:
    """Returns the state after one more check."""
    if pulse.mark != vigil.progress.mark or pulse.written != vigil.progress.written:
        return Vigil.begin(pulse)
    span = pulse.at - vigil.window.at
    if span < min(WINDOW_S, limits.quiet_s / 2):
        return vigil
    busy = pulse.cpu_s - vigil.window.cpu_s >= limits.busy_cores * span
    return replace(vigil, window=pulse, busy_at=pulse.at if busy else vigil.busy_at)


def verdict(vigil: Vigil, pulse: Pulse, limits: HangLimits) -> str | None:
    """Returns a sentence on why the child counts as hung; ``None`` if it does not."""
    silent = pulse.at - vigil.progress.at
    allowed = limits.by_phase.get(pulse.phase, limits.phase_s)
    if silent >= allowed:
        return f"no sign of progress for {silent:.0f} s (limit of this phase: {allowed:.0f} s)"
    idle = pulse.at - vigil.busy_at
    if idle >= limits.quiet_s:
        return f"no sign of progress and no CPU time used for {idle:.0f} s"
    return None


_GCC = ("gcc", "g++", "cc", "c++", "cc1", "cc1plus", "collect2", "lto1", "lto-wrapper", "as", "ld")
_CUDA = ("nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")
_NAMES = frozenset((*_GCC, *_CUDA))
_BEGINNINGS = ("clang", "ld.")
"""Prefixes of names with a version or kind: ``clang-19``, ``ld.lld``."""


def compiles(process: Stat) -> bool:
    """Tells whether a process is a compiler, by its name."""
    return process.name in _NAMES or process.name.startswith(_BEGINNINGS)


class Watchdog(threading.Thread):
    """Kills the tree as soon as its summed PSS exceeds the limit.

    Compilers do not count (docs/decisions/0039-compilers-and-the-limit.md): each later trial would start and kill them
    again. The watchdog has its own thread, because the limit must hold while the watcher waits for a disk.
    """

    def __init__(
        self,
        tree: ProcessTree,
        memory: TreeMemory,
        limit: int | None,
        phase_file: Path,
        on_check: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Receives ``on_check``, called with the summed PSS in bytes at each check; its error ends the watchdog."""
        super().__init__(name="memory-watchdog", daemon=True)
        self._tree = tree
        self._memory = memory
        self._limit = limit
        self._phase_file = phase_file
        self._seen = on_check
        self._done = threading.Event()
        self.cpu_s = 0.0
        """CPU seconds of the tree so far."""
        self.over: int | None = None
        """Bytes of the tree when it was killed for its memory."""
        self.compiled = False
        """True if a compiler was among the processes at some check."""
        self.phase: CurrentPhase | None = None
        """Phase in which the tree was killed."""
        self.error: Exception | None = None
        """Error that ended the watchdog early; the supervisor must not continue without it."""

    @property
    def peak(self) -> int:
        """Highest summed PSS seen, in bytes."""
        return self._memory.peak

    def run(self) -> None:
        try:
            self.look()
            while not self._done.wait(0.1):
                self.look()
        except Exception as error:  # handed to the supervisor's thread, which raises it
            self.error = error

    def look(self) -> None:
        """Makes one check; kills the tree if its memory is above the limit."""
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
        """Stops the checks."""
        self._done.set()
        self.join()


SAVE_S = 10.0
"""Seconds between two writes, and so the most that a killed tuner loses."""


class Timeline:
    """Memory of one attempt over time, in a bounded number of points. An error of writing the file is ignored.

    The watchdog's thread calls ``host``, the supervisor's everything else.
    """

    def __init__(self, path: Path, clock: Clock, phase: Callable[[], CurrentPhase | None]) -> None:
        """Starts the timeline; ``phase`` returns the current phase."""
        self._path = path
        self._clock = clock
        self._phase = phase
        self._began, self._began_at = clock.monotonic(), clock.now()
        self._saved = self._began
        self._lock = threading.Lock()
        self._host: list[Point] = []
        self._device: list[Point] = []

    def host(self, used: int) -> None:
        """Adds a point: bytes used by the process tree now."""
        self._note(self._host, used)

    def device(self, used: int | None) -> None:
        """Adds a point: bytes used on the fullest GPU now; ``None``: unknown."""
        if used is not None:
            self._note(self._device, used)

    def _note(self, series: list[Point], used: int) -> None:
        mark = self._phase()
        seconds = round(self._clock.monotonic() - self._began, 2)
        point = Point(seconds, used) if mark is None else Point(seconds, used, mark.phase, mark.cycle)
        with self._lock:
            series.append(point)
            if len(series) >= 2 * MOST_POINTS:
                series[:] = thinned(series)

    def timeline(self) -> MemoryTimeline:
        """Returns the timeline so far."""
        with self._lock:
            return MemoryTimeline(self._began_at, thinned(self._host), thinned(self._device))

    def save(self) -> None:
        """Writes the timeline if ``SAVE_S`` have passed; without fsync, because a measurement may be running."""
        now = self._clock.monotonic()
        if now - self._saved >= SAVE_S:
            self._saved = now
            self._write(durable=False)

    def finish(self) -> None:
        """Writes the whole timeline."""
        self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        timeline = self.timeline()
        if timeline.host:
            with contextlib.suppress(OSError):
                write_atomic(self._path, text_of(timeline), durable=durable)
