"""Reads the end of a trial's log, cleaned for a page. The path follows from the database alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from api.logs import open_below
from autotune.errors import NotFoundError
from autotune.wording.text import clean_line
from trainer.child.contract import RunPaths

TAIL = 32 * 1024
"""Bytes read at the end of the file."""
LINES = 200
LONGEST_LINE = 500
"""Most characters of a line; the rest is cut."""


@dataclass(frozen=True)
class LogTail:
    """The last lines of one file."""

    name: str
    lines: tuple[str, ...]
    more: bool
    """True if the log has earlier lines."""


def log_tail(file: Path, root: Path) -> LogTail | None:
    """Reads the log's last lines; ``None`` if it is no readable plain file below ``root``, or a link leads to it."""
    try:
        descriptor = open_below(root, file)
    except NotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, TAIL, max(0, size - TAIL))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    whole = data.decode("utf-8", "replace").split("\n")
    if size > TAIL:
        whole = whole[1:]  # the first is the end of a line
    lines = [cut(clean_line(line)) for line in whole]
    kept = [line for line in lines if line]
    return LogTail(file.name, tuple(kept[-LINES:]), size > TAIL or len(kept) > LINES)


def cut(line: str) -> str:
    """Cuts a line to ``LONGEST_LINE`` characters."""
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def logs_of(folder: Path, root: Path) -> tuple[LogTail, ...]:
    """Reads the log files of an attempt below ``root``: the trial's, and that of its rollout server if it has one."""
    paths = RunPaths(folder)
    return tuple(found for file in (paths.log, paths.server_log) if (found := log_tail(file, root)) is not None)
