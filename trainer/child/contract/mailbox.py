"""Messages through small files: the current phase of a trial, and letters between the tuner and a warm worker."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .codec import dumps, read_json, write_atomic


class PhaseMark:
    """The child's current phase in a small file, rewritten in place; its modification time is the heartbeat.

    One ``pwrite`` of a fixed 64 bytes: a phase change costs microseconds, and a reader never sees a partial phase.
    """

    WIDTH = 64

    def __init__(self, path: Path) -> None:
        self._fd = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o644)

    def set(self, phase: str, cycle: int = -1, cycle_kind: str = "") -> None:
        """Writes the current phase. Ignores a failed write: the next record reports a full disk, and the phase's code
        must not fail.
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
    """Reads the child's current phase; returns ``None`` before the child has written one."""
    try:
        words = path.read_bytes()[: PhaseMark.WIDTH].decode("ascii", "replace").split()
    except FileNotFoundError:
        return None
    if len(words) < 2 or not words[1].lstrip("-").isdigit():
        return None
    return CurrentPhase(words[0], int(words[1]), words[2] if len(words) > 2 else "")


@dataclass(frozen=True)
class Letter:
    """A message to the worker: the trial to run."""

    directory: str
    """``RunPaths.root`` of the attempt, with its ``config.json``."""
    worker: str = ""
    """The worker's name, for the trial's record."""


@dataclass(frozen=True)
class WorkerReply:
    """A message from the worker: the trial has ended and was cleaned up, so another may follow."""

    floor: int
    """PSS of the worker and all its descendants, in bytes."""
    left: str = ""
    """Parts of the trial that could not be cleaned up; empty if none remained."""
    device: Optional[int] = None
    """Bytes in use on the worker's GPU, by the driver; ``None`` on a CPU."""


@dataclass(frozen=True)
class Mailbox:
    """The folder of messages; letters and replies are numbered from 1."""

    root: Path

    @property
    def scratch(self) -> Path:
        """The worker's working directory between trials."""
        return self.root / "scratch"

    @property
    def log(self) -> Path:
        """Log of the worker's output between trials."""
        return self.root / "log.txt"

    def letter(self, number: int) -> Path:
        return self.root / ("%d.letter.json" % number)

    def answer(self, number: int) -> Path:
        return self.root / ("%d.answer.json" % number)

    def send(self, number: int, letter: Letter) -> None:
        """Writes a letter. Raises ``OSError`` if that fails."""
        write_atomic(self.letter(number), dumps(letter))

    def reply(self, number: int, answer: WorkerReply) -> None:
        """Writes a reply. Raises ``OSError`` if that fails."""
        write_atomic(self.answer(number), dumps(answer))

    def read_letter(self, number: int) -> Optional[Letter]:
        """Reads the letter; returns ``None`` before it arrives. Raises ``ContractError`` if it is malformed."""
        return _read(Letter, self.letter(number))  # type: ignore[no-any-return]

    def read_answer(self, number: int) -> Optional[WorkerReply]:
        """Reads the reply; returns ``None`` before it arrives. Raises ``ContractError`` if it is malformed."""
        return _read(WorkerReply, self.answer(number))  # type: ignore[no-any-return]


def _read(shape: Any, path: Path) -> Any:
    try:
        return read_json(shape, path)
    except FileNotFoundError:
        return None
