"""Records a running attempt's memory over time, and writes it to a file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from autotune.documents.memory_timeline import MOST_POINTS, MemoryTimeline, Point, text_of, thinned
from autotune.ports import Clock
from trainer.child.contract import CurrentPhase, write_atomic

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

    def taken(self) -> MemoryTimeline:
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
        timeline = self.taken()
        if timeline.host:
            with contextlib.suppress(OSError):
                write_atomic(self._path, text_of(timeline), durable=durable)
