"""Follows a child's growing files: complete records, and the phase mark."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.child.contract import ContractError, CurrentPhase, Record, parse_record, read_phase

CHUNK = 1 << 18
MAX_LINE = 4 << 20
"""Most bytes of a record; one of 100,000 rows is well below it."""
MAX_READ = 1 << 19
"""Bytes read per poll, so that a flood of records does not keep the supervisor from its other duties."""


class MetricsTail:
    """Reads each complete record of ``metrics.jsonl`` once; counts and skips malformed lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._rest = bytearray()
        self._skipping = False
        self.bytes_read = 0
        self.bad_lines = 0

    def poll(self) -> list[Record]:
        """Returns the records completed since the last call."""
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                return []
        records: list[Record] = []
        taken = 0
        while taken < MAX_READ and (chunk := os.read(self._fd, CHUNK)):
            taken += len(chunk)
            self._feed(chunk, records)
        self.bytes_read += taken
        return records

    def finish(self) -> list[Record]:
        """Returns the remaining records and closes the file; an incomplete last line counts as malformed."""
        records: list[Record] = []
        before = -1
        while self.bytes_read > before:
            before = self.bytes_read
            records += self.poll()
        if self._rest.strip() or self._skipping:
            self.bad_lines += 1
        self.close()
        return records

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._rest.clear()
        self._skipping = False

    def _feed(self, chunk: bytes, records: list[Record]) -> None:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._rest += chunk[start:end]
            self._line(records)
            start = end + 1
        if not self._skipping:
            self._rest += chunk[start:]
        if len(self._rest) > MAX_LINE:
            self._rest.clear()
            self._skipping = True

    def _line(self, records: list[Record]) -> None:
        line, skipping = bytes(self._rest), self._skipping
        self._rest.clear()
        self._skipping = False
        if skipping or len(line) > MAX_LINE:
            self.bad_lines += 1
        elif line.strip():
            try:
                records.append(parse_record(line))
            except (ContractError, OverflowError):
                self.bad_lines += 1


class PhaseTail:
    """Reads the child's phase mark; its modification time is the heartbeat."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.modified = 0
        """Modification time in nanoseconds; 0 before the first mark."""
        self.current: CurrentPhase | None = None

    def poll(self) -> CurrentPhase | None:
        """Returns the phase if it changed since the last call, else ``None``."""
        try:
            modified = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if modified == self.modified:
            return None
        self.modified = modified
        phase = read_phase(self._path)
        if phase is None or phase == self.current:
            return None
        self.current = phase
        return phase
