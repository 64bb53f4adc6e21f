"""Shared memory that a killed process tree would leave: POSIX segments stay until somebody unlinks them.

Engines pass tensors between their processes through them. A process that is killed cannot unlink its
own, and the helper that would do it for it (``multiprocessing``'s resource tracker) is killed with it.
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
"""How far the clocks of files and processes may be apart."""


def mapped(pid: int) -> set[str]:
    """Names of the segments a process maps; empty for a process that is gone or not ours."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError:
        return set()
    start = f"{FOLDER}/"
    names = {line[line.index(start) + len(start) :] for line in text.splitlines() if start in line}
    return {name for name in names if not name.endswith(" (deleted)") and "/" not in name}


class Segments:
    """Those the members of a tree were seen to map."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._began = float("inf")

    def note(self, members: Iterable[Stat]) -> None:
        """Before they are killed."""
        for member in members:
            self._seen |= mapped(member.pid)
            self._began = min(self._began, time.time() - member.age_s)

    def remove(self) -> tuple[str, ...]:
        """Unlink those that were made while the tree lived and that no living process maps; returns their names.

        What is older is somebody's data that the tree read.
        """
        left = {name for name in self._seen if self._is_of_tree(FOLDER / name)}
        self._seen.clear()
        if left:
            left -= _in_use()
        for name in left:
            with contextlib.suppress(OSError):
                (FOLDER / name).unlink()
        return tuple(sorted(left))

    def _is_of_tree(self, path: Path) -> bool:
        try:
            stat = path.stat(follow_symlinks=False)
        except OSError:
            return False
        return stat.st_uid == os.geteuid() and stat.st_ctime >= self._began - CLOCKS_S


def _in_use() -> set[str]:
    used: set[str] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            used |= mapped(int(name))
    return used
