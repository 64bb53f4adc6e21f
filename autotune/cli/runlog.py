"""Reads and follows the log of an attempt, safely for a terminal and in bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path

from autotune.wording.text import clean_line

BLOCK = 1 << 16
LONGEST_LINE = 1 << 20
"""Characters after which an unfinished line is shown in parts."""


class _Lines:
    """Splits chunks of bytes into complete, cleaned lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[str]:
        self._rest += self._decoder.decode(data, last)
        *whole, self._rest = self._rest.split("\n")
        if self._rest and (last or len(self._rest) > LONGEST_LINE):
            whole.append(self._rest)
            self._rest = ""
        for line in whole:
            yield clean_line(line)


def read_lines(path: Path) -> Iterator[str]:
    """Reads all lines of a log, cleaned. Raises ``OSError``."""
    lines = _Lines()
    with path.open("rb") as stream:
        while data := stream.read(BLOCK):
            yield from lines.feed(data)
    yield from lines.feed(b"", last=True)


def follow(path: Path, ended: Callable[[], bool], wait: Callable[[], None]) -> Iterator[str]:
    """Yields lines as they are written, until ``ended`` is true and all are shown. Waits for a log that does not exist
    yet; continues at the end of a truncated one."""
    lines, offset = _Lines(), 0
    while True:
        over = ended()
        data, offset, shortened = _from(path, offset)
        if shortened:
            yield "[the log was shortened here]"
        yield from lines.feed(data)
        if data:
            continue
        if over:
            yield from lines.feed(b"", last=True)
            return
        wait()


def _from(path: Path, offset: int) -> tuple[bytes, int, bool]:
    """Reads from ``offset``; returns the bytes, the next offset, and whether the file is shorter than ``offset``."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < offset:
                return b"", size, True
            stream.seek(offset)
            data = stream.read(BLOCK)
            return data, offset + len(data), False
    except FileNotFoundError:
        return b"", offset, False
