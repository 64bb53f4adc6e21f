"""Writes a child's stdout and stderr to a file of bounded size."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from pathlib import Path

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
