"""Unlinks the POSIX shared memory of a killed process tree, which would otherwise stay until reboot.

Engines pass tensors between their processes through shared memory. A killed process cannot unlink its own, and its
helper (``multiprocessing``'s resource tracker) is killed with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from autotune.running.proc import Stat

FOLDER = Path("/dev/shm")  # noqa: S108  (where the kernel keeps them; nothing is created here)
CLOCKS_S = 0.05
"""Largest difference in seconds between the clocks of files and processes."""


def mapped(pid: int) -> set[int]:
    """Returns the inodes of the segments a process maps; empty for a process that is gone or not readable.

    Inodes, not names: a semaphore is mapped under a temporary name before it is linked under its own.
    """
    try:
        text = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError:
        return set()
    return {int(line.split(maxsplit=5)[4]) for line in text.splitlines() if f" {FOLDER}/" in line}


class Segments:
    """Shared memory segments that members of a tree have mapped."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._began = float("inf")

    def note(self, members: Iterable[Stat]) -> None:
        """Records the segments that members map; called before they are killed."""
        for member in members:
            self._seen |= mapped(member.pid)
            self._began = min(self._began, time.time() - member.age_s)

    def remove(self) -> tuple[str, ...]:
        """Removes the tree's segments that no living process maps; returns their names.

        A segment older than the tree belongs to another program and stays.
        """
        left = {entry.name: entry.inode() for entry in self._entries() if self._is_of_tree(entry)}
        self._seen.clear()
        used = _in_use() if left else set()
        gone = sorted(name for name, inode in left.items() if inode not in used)
        for name in gone:
            with contextlib.suppress(OSError):
                (FOLDER / name).unlink()
        return tuple(gone)

    def _entries(self) -> list[os.DirEntry[str]]:
        if not self._seen:
            return []
        with os.scandir(FOLDER) as entries:
            return [entry for entry in entries if entry.inode() in self._seen]

    def _is_of_tree(self, entry: os.DirEntry[str]) -> bool:
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        return stat.st_uid == os.geteuid() and stat.st_ctime >= self._began - CLOCKS_S


def _in_use() -> set[int]:
    used: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            used |= mapped(int(name))
    return used
