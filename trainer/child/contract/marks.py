"""The child's current phase, in a small file rewritten in place."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional


class PhaseMark:
    """The child's current phase in a small file, rewritten in place; its mtime is the heartbeat.

    One ``pwrite`` of a fixed 64 bytes: a phase change costs microseconds, and a reader never sees a torn mark.
    """

    WIDTH = 64

    def __init__(self, path: Path) -> None:
        self._fd = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o644)

    def set(self, phase: str, cycle: int = -1, cycle_kind: str = "") -> None:
        """Rewrites the mark; ignores a failed write, because the next record reports a failing disk, and marked code
        such as a reward must not fail for it.
        """
        text = "%s %d %s" % (phase, cycle, cycle_kind)
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, text.ljust(self.WIDTH - 1).encode("ascii")[: self.WIDTH - 1] + b"\n", 0)

    def close(self) -> None:
        os.close(self._fd)


@dataclass(frozen=True)
class CurrentPhase:
    """Contents of the file ``phase``: a ``Phase`` or ``StartupPart`` value, the cycle (-1 in start-up), its kind."""

    phase: str
    cycle: int
    cycle_kind: str


def read_phase(path: Path) -> Optional[CurrentPhase]:
    """Reads the child's last mark; returns ``None`` before the first."""
    try:
        words = path.read_bytes()[: PhaseMark.WIDTH].decode("ascii", "replace").split()
    except FileNotFoundError:
        return None
    if len(words) < 2 or not words[1].lstrip("-").isdigit():
        return None
    return CurrentPhase(words[0], int(words[1]), words[2] if len(words) > 2 else "")
