"""Writes a child's output to a file of bounded size, and follows the files that the child writes."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from pathlib import Path

from trainer.child.contract import ContractError, CurrentPhase, Record, parse_record, read_phase

HEAD = 1 << 20
TAIL = 1 << 20
"""Bytes of the beginning and of the end that are kept."""


class CappedLog:
    """Log file with the first ``head`` and the last ``tail`` bytes, in order, and a line on the omitted ones between.

    The file can be read at any time. It grows to ``head`` + 2 x ``tail`` bytes before it is cut again. A full disk
    loses the log, not the trial.
    """

    def __init__(self, path: Path, head: int = HEAD, tail: int = TAIL) -> None:
        self._head, self._tail = head, tail
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._size = 0
        self._marker = b""
        self._dropped = 0
        self.failed = False

    def write(self, data: bytes) -> None:
        """Appends to the log."""
        for start in range(0, len(data), self._tail):
            piece = data[start : start + self._tail]
            if self._size + len(piece) > self._head + len(self._marker) + 2 * self._tail:
                self._cut()
            self._put(piece, self._size)
            self._size += len(piece)

    def close(self) -> None:
        """Cuts the file to its final size and closes it; a second call does nothing."""
        if self._fd < 0:
            return
        if self._size > self._head + len(self._marker) + self._tail:
            self._cut()
        os.close(self._fd)
        self._fd = -1

    def _cut(self) -> None:
        start = self._head + len(self._marker)
        kept = os.pread(self._fd, self._tail, max(start, self._size - self._tail))
        self._dropped += self._size - start - len(kept)
        self._marker = b"\n[... %d bytes left out ...]\n" % self._dropped
        self._put(self._marker + kept, self._head)
        self._size = self._head + len(self._marker) + len(kept)
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._size)

    def _put(self, data: bytes, offset: int) -> None:
        try:
            while data:
                written = os.pwrite(self._fd, data, offset)
                data, offset = data[written:], offset + written
        except OSError:
            self.failed = True


class LogPump(threading.Thread):
    """Copies a pipe into a ``CappedLog``, so that the child never blocks on a full pipe."""

    def __init__(self, source: int, log: CappedLog) -> None:
        super().__init__(name="log-pump", daemon=True)
        self._source = source
        self._log = log
        self._writing = threading.Lock()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(source, False)

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        stopping = False
        while not stopping:
            stopping = any(fd == self._wake_out for fd, _ in poll.poll())
            if not self._move(drain=stopping):
                return

    def _move(self, drain: bool) -> bool:
        """Reads pending output (with ``drain`` until none is left, at most 64 MiB); returns ``False`` at the pipe's
        end."""
        with self._writing:
            for _ in range(1024 if drain else 1):
                try:
                    data = os.read(self._source, 1 << 16)
                except BlockingIOError:
                    return True
                if not data:
                    return False
                self._log.write(data)
            return True

    def redirect(self, log: CappedLog) -> None:
        """Writes pending output to the current log, closes that, and sends later output to ``log``."""
        if self.is_alive():
            self._move(drain=True)
        with self._writing:
            self._log.close()
            self._log = log

    def finish(self, patience_s: float = 5.0) -> None:
        """Reads the rest of the pipe and closes it, even if another process holds its other end."""
        os.write(self._wake_in, b"x")
        self.join(patience_s)
        if not self.is_alive():
            for fd in (self._source, self._wake_out, self._wake_in):
                os.close(fd)
            self._log.close()


def read_tail(path: Path, size: int = 1 << 16) -> str:
    """Returns the last ``size`` bytes of a log as text; empty if there is no log."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - size))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


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
    """Reads the child's current phase from its file, whose modification time is the heartbeat."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.modified = 0
        """Modification time in nanoseconds; 0 before the file exists."""
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
