"""Appends records to ``metrics.jsonl``, and rewrites the phase mark."""

from __future__ import annotations

import os

from .contract import CycleRecord, PhaseMark, Record, RunPaths, dumps


class Journal:
    """Appends whole lines, each with one ``write`` on a file opened for appending.

    So ranks can share the file, a killed process leaves whole lines, and a written cycle is on the disk before the next
    begins.
    """

    def __init__(self, paths: RunPaths, marks: bool = True) -> None:
        """Opens the journal; with ``marks`` false, another rank writes the phase mark."""
        self._fd = os.open(str(paths.metrics), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._mark = PhaseMark(paths.phase) if marks else None
        self._torn = False

    def write(self, record: Record) -> None:
        """Appends a record. Raises ``OSError`` if it was not written whole (disk full); the next begins a new line."""
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
        """Rewrites the phase mark."""
        if self._mark is not None:
            self._mark.set(phase, cycle, cycle_kind)

    def close(self) -> None:
        os.close(self._fd)
        if self._mark is not None:
            self._mark.close()
