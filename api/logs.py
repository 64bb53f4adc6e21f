"""Reads the log of an attempt, by byte range or its last lines, cleaned for a terminal or a page.

Only the database determines the path.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autotune.errors import NotFoundError
from autotune.recommendation.current import log_tail
from trainer.child.contract import RunPaths

LARGEST_BYTES = 4 << 20
"""Most bytes of one answer; a stored log has fewer."""

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*")
_CONTROL = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]"  # all but tab and newline
    rb"|\xc2[\x80-\x9f]"  # C1
    rb"|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"  # these turn text around
)
"""Control characters that could affect a terminal, as UTF-8."""
_LONGEST = 3
"""Bytes of the longest control character."""


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``first`` to ``last`` (included) of ``size``; empty if ``last`` is less than ``first``."""

    first: int
    last: int
    size: int
    whole: bool
    """True without a requested range."""

    @property
    def content_range(self) -> str:
        """Value of the ``Content-Range`` header (RFC 9110 section 14.4)."""
        return f"bytes {self.first}-{self.last}/{self.size}"


class UnsatisfiableError(Exception):
    """Raised if a requested range cannot be sent; the log has ``size`` bytes."""

    def __init__(self, size: int, more: str = "") -> None:
        super().__init__(f"the log has {size} bytes{more}")
        self.size = size


def open_below(root: Path, path: Path) -> int:
    """Opens ``path``, a plain file below ``root`` without links on the way; returns its file descriptor.

    Raises:
        NotFoundError: there is no such file, or it cannot be read.
    """
    missing = NotFoundError("there is no such log, or it cannot be read")
    try:
        if path.resolve(strict=True) != root.resolve(strict=True) / path.relative_to(root):
            raise missing
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError, RuntimeError):
        raise missing from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise missing
    return file


def part_of(size: int, header: str | None) -> ByteRange:
    """Returns the part of a log of ``size`` bytes that a ``Range`` header asks for; other units than bytes are ignored.

    At most ``LARGEST_BYTES`` from the first byte on: a server may send less than requested.

    Raises:
        UnsatisfiableError: no byte of the range exists, or the log is too long for one answer without a range.
    """
    found = _RANGE.fullmatch((header or "").strip().lower())
    first, last = (found.group(1), found.group(2)) if found is not None else ("", "")
    if not first and not last:
        if size > LARGEST_BYTES:
            raise UnsatisfiableError(size, f"; ask for at most {LARGEST_BYTES} at a time, as `Range: bytes=0-`")
        return ByteRange(0, size - 1, size, True)
    if not first:
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < start:  # no range at all, so it is ignored (RFC 9110 section 14.1.1)
            return part_of(size, None)
    if start >= size or end < start:
        raise UnsatisfiableError(size)
    return ByteRange(start, min(end, start + LARGEST_BYTES - 1), size, False)


def read_part(file: int, part: ByteRange) -> bytes:
    """Reads a part of the file; replaces each control byte by ``?``, so the length stays."""
    if part.last < part.first:
        return b""
    before = min(part.first, _LONGEST - 1)
    wanted = part.last + _LONGEST - part.first + before
    data = harmless(_pread(file, wanted, part.first - before))
    return data[before : before + part.last + 1 - part.first]


def harmless(data: bytes) -> bytes:
    """Replaces each control byte by ``?``; the length stays."""
    return _CONTROL.sub(lambda found: b"?" * len(found.group()), data)


def _pread(file: int, count: int, offset: int) -> bytes:
    parts = []
    while count > 0 and (data := os.pread(file, count, offset)):
        parts.append(data)
        count, offset = count - len(data), offset + len(data)
    return b"".join(parts)


LINES = 200
"""Last lines of a log on a page."""
LONGEST_LINE = 500
"""Most characters of a line on a page; the rest is cut."""


@dataclass(frozen=True)
class LogTail:
    """The last lines of one file."""

    name: str
    lines: tuple[str, ...]
    more: bool
    """True if the log has earlier lines."""


def logs_of(folder: Path, root: Path) -> tuple[LogTail, ...]:
    """Reads the log files of an attempt below ``root``: the trial's, and that of its rollout server if it has one."""
    files = RunPaths(folder).log, RunPaths(folder).server_log
    tails = [(file.name, log_tail(file, LINES + 1, partial(open_below, root))) for file in files]
    return tuple(LogTail(name, tuple(map(_cut, tail[-LINES:])), len(tail) > LINES) for name, tail in tails if tail)


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
