"""Files between a trial and its parent: ``metrics.jsonl``, the current phase, and decisions on early stopping."""

from __future__ import annotations

import os
import time
from typing import Optional, Tuple

from .contract import CycleRecord, PhaseMark, Record, RunPaths, dumps


class Journal:
    """Appends complete lines, each with one ``write`` on a file opened for appending.

    So ranks can share the file, a killed process leaves no partial line, and a written cycle is on the disk before the
    next begins.
    """

    def __init__(self, paths: RunPaths, marks: bool = True) -> None:
        """Opens the journal; with ``marks`` false, another rank writes the phase."""
        self._fd = os.open(str(paths.metrics), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._mark = PhaseMark(paths.phase) if marks else None
        self._torn = False

    def write(self, record: Record) -> None:
        """Appends a record. Raises ``OSError`` if it was not written completely (disk full); the next starts a line."""
        data = (dumps(record) + "\n").encode("utf-8")
        if self._torn:
            data = b"\n" + data
        written = os.write(self._fd, data)
        self._torn = written != len(data)
        if self._torn:
            raise OSError("metrics.jsonl: wrote %d of %d bytes; is the disk full?" % (written, len(data)))
        if isinstance(record, CycleRecord):
            os.fsync(self._fd)

    def mark(self, phase: str, cycle: int = -1, cycle_kind: str = "") -> None:
        """Writes the current phase, if this rank writes phases."""
        if self._mark is not None:
            self._mark.set(phase, cycle, cycle_kind)

    def close(self) -> None:
        os.close(self._fd)
        if self._mark is not None:
            self._mark.close()


GO, END = "go", "end"

ANSWER_S = 2.0
"""Seconds after which the next cycle starts without the parent's answer, which then counts after that cycle."""
POLL_S = 0.01


def is_enough(paths: RunPaths, cycle: int, wait_s: float = ANSWER_S) -> bool:
    """Tells whether the parent ends the trial after ``cycle``; waits at most ``wait_s``. A decision to end is final."""
    until = time.monotonic() + wait_s
    while True:
        answered, word = read_answer(paths) or (-1, GO)
        if word == END:
            return True
        if answered >= cycle or time.monotonic() >= until:
            return False
        time.sleep(POLL_S)


def read_answer(paths: RunPaths) -> Optional[Tuple[int, str]]:
    """Reads the decision (cycle, word); ``None`` before the first."""
    try:
        cycle, word = paths.enough.read_text(encoding="utf-8").split()
        return int(cycle), word
    except (OSError, ValueError):
        return None
