"""What a tuner and a warm worker write to each other: files in one folder, each written once and atomically."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .codec import decode, dumps, write_atomic
from .words import ContractError


@dataclass(frozen=True)
class Letter:
    """A trial for a worker."""

    directory: str
    """``RunPaths.root`` of the attempt; its ``config.json`` is there."""
    worker: str = ""
    """The worker's name, for the trial's record."""


@dataclass(frozen=True)
class WorkerReply:
    """The trial is over, everything was put back, and the worker could take another."""

    floor: int
    """PSS of the worker and all below it, in bytes."""
    kernel: Optional[float] = None
    """Seconds of one product of the reference kernel; ``None`` where there is none."""
    left: str = ""
    """What of the trial could not be got rid of; empty if nothing."""


@dataclass(frozen=True)
class Mailbox:
    """The folder; letters and answers are numbered from 1."""

    root: Path

    @property
    def scratch(self) -> Path:
        """The worker's working directory between trials."""
        return self.root / "scratch"

    @property
    def log(self) -> Path:
        """What the worker prints between trials."""
        return self.root / "log.txt"

    def letter(self, number: int) -> Path:
        return self.root / ("%d.letter.json" % number)

    def answer(self, number: int) -> Path:
        return self.root / ("%d.answer.json" % number)

    def send(self, number: int, letter: Letter) -> None:
        """Raises ``OSError`` if it cannot be written."""
        write_atomic(self.letter(number), dumps(letter))

    def reply(self, number: int, answer: WorkerReply) -> None:
        """Raises ``OSError`` if it cannot be written."""
        write_atomic(self.answer(number), dumps(answer))

    def read_letter(self, number: int) -> Optional[Letter]:
        """``None`` if it has not come. Raises ``ContractError`` if it is none."""
        return _read(Letter, self.letter(number))  # type: ignore[no-any-return]

    def read_answer(self, number: int) -> Optional[WorkerReply]:
        """``None`` if it has not come. Raises ``ContractError`` if it is none."""
        return _read(WorkerReply, self.answer(number))  # type: ignore[no-any-return]


def _read(shape: Any, path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return decode(shape, json.loads(text), path.name)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError("%s: not JSON: %s" % (path, error)) from None
