"""Messages between the tuner and a warm worker: files in one folder, each written once and atomically."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .codec import dumps, read_json, write_atomic


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
