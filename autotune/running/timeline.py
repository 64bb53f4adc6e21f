"""Keeps the memory of a running attempt over its time, and writes it down."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from autotune.documents.memory_timeline import MOST_POINTS, MemoryTimeline, Point, text_of, thinned
from autotune.ports import Clock
from trainer.child.contract import CurrentPhase, write_atomic

SAVE_S = 10.0
"""Between two writings; what a killed tuner leaves is at most so much older than itself."""


class Timeline:
    """``host`` is called by the watchdog's thread, everything else by the supervisor's; memory is bounded.

    A file that cannot be written is no reason to end a trial.
    """

    def __init__(self, path: Path, clock: Clock, phase: Callable[[], CurrentPhase | None]) -> None:
        """The attempt begins now; ``phase`` says where it is."""
        self._path = path
        self._clock = clock
        self._phase = phase
        self._began, self._began_at = clock.monotonic(), clock.now()
        self._saved = self._began
        self._lock = threading.Lock()
        self._host: list[Point] = []
        self._device: list[Point] = []

    def host(self, used: int) -> None:
        """Bytes of the process tree now."""
        self._note(self._host, used)

    def device(self, used: int | None) -> None:
        """Bytes in use on the fullest GPU now; ``None``: nobody knows."""
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
        """So far."""
        with self._lock:
            return MemoryTimeline(self._began_at, thinned(self._host), thinned(self._device))

    def save(self) -> None:
        """Write it down if that was long ago. The disk is not waited for: a measurement may be going on."""
        now = self._clock.monotonic()
        if now - self._saved >= SAVE_S:
            self._saved = now
            self._write(durable=False)

    def finish(self) -> None:
        """Write all of it down."""
        self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        timeline = self.taken()
        if timeline.host:
            with contextlib.suppress(OSError):
                write_atomic(self._path, text_of(timeline), durable=durable)
