"""Files through which a trial and its code inside verl's processes communicate.

The trial writes the board, which has the completion lengths of each step. The code inside verl waits for its step, and
reports each completion and each score. Lines are appended whole, by several processes at once.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ...contract import CycleKind, RunPaths, decode, dumps, iter_complete_lines, write_atomic
from ...failures import MeterError

TRIAL_VARIABLE = "AUTOTUNE_VERL_TRIAL"
"""Variable with the trial's folder, for the code within verl."""


@dataclass(frozen=True)
class StepTargets:
    """Kind and completion lengths of one step of verl."""

    kind: CycleKind
    lengths: Optional[Tuple[int, ...]] = None
    """Completion length of each row, in tokens; ``None`` leaves the lengths to the model."""
    stretched: bool = False
    """Whether every prompt is stretched to the maximum prompt length."""


@dataclass(frozen=True)
class Board:
    """Contents of the board: sizes of the trial, and the steps decided so far."""

    prompts: int
    """Prompts in a step."""
    generations: int
    """Completions of a prompt."""
    total: int
    """Steps of the trial."""
    longest_prompt: int
    """Maximum prompt length, in tokens."""
    steps: Tuple[StepTargets, ...] = ()
    """Decided steps, in order; the first is verl's step 1."""

    @property
    def rows(self) -> int:
        """Completions in a step."""
        return self.prompts * self.generations


@dataclass(frozen=True)
class ReportedFailure:
    """A failure inside verl that verl itself ignores."""

    reason: str
    """``REWARD_ERROR`` or ``NAN``."""
    message: str


@dataclass(frozen=True)
class Places:
    """Paths of the files, all in one folder."""

    root: Path
    """Folder of the trial."""

    @property
    def folder(self) -> Path:
        return RunPaths(self.root).scratch / "told"

    @property
    def board(self) -> Path:
        return self.folder / "board.json"

    @property
    def rows(self) -> Path:
        """File with a line for each completion: step, row, prompt tokens, completion tokens."""
        return self.folder / "rows.jsonl"

    @property
    def scores(self) -> Path:
        """File with a line for each score: the prompt's number in the trial, the score."""
        return self.folder / "scores.jsonl"

    @property
    def failed(self) -> Path:
        return self.folder / "failed.json"

    @property
    def log(self) -> Path:
        """File that verl's own file logger writes."""
        return self.folder / "metrics.jsonl"


def publish(places: Places, board: Board) -> None:
    """Writes the board; processes that wait for one of its steps continue."""
    write_atomic(places.board, dumps(board), durable=False)


def read_board(places: Places) -> Optional[Board]:
    """Reads the board; returns ``None`` before the trial has written one."""
    return _read(Board, places.board)  # type: ignore[no-any-return]


def tell_failure(places: Places, failure: ReportedFailure) -> None:
    """Records a failure; keeps only the first."""
    if not places.failed.exists():
        write_atomic(places.failed, dumps(failure), durable=False)


def read_failure(places: Places) -> Optional[ReportedFailure]:
    """Reads the recorded failure; returns ``None`` if there is none."""
    return _read(ReportedFailure, places.failed)  # type: ignore[no-any-return]


def _read(shape: Any, path: Path) -> Any:
    try:
        return decode(shape, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def append(path: Path, values: List[Any]) -> None:
    """Appends one line in one write, so that lines of several processes do not mix."""
    handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, (json.dumps(values) + "\n").encode("utf-8"))
    finally:
        os.close(handle)


@dataclass
class NewLines:
    """Reads complete lines of a growing file, each once; leaves an unfinished last line for the next call."""

    path: Path
    _read: int = 0

    def take(self) -> List[bytes]:
        """Returns the lines since the last call; empty without a file."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._read)
                data = stream.read()
        except FileNotFoundError:
            return []
        self._read += data.rfind(b"\n") + 1
        return list(iter_complete_lines(data))


@dataclass
class FileTally:
    """Reads completions and scores from the trial's files, and holds those read so far."""

    places: Places
    rows: Dict[int, Dict[int, Tuple[int, int]]] = field(default_factory=dict)
    """Step -> row -> (prompt tokens, completion tokens)."""
    scores: Dict[int, List[float]] = field(default_factory=dict)
    """Number of the prompt in the trial -> scores of its completions."""

    def __post_init__(self) -> None:
        self._rows, self._scores = NewLines(self.places.rows), NewLines(self.places.scores)

    def look(self) -> bool:
        """Reads new lines; returns whether there were any. Raises MeterError for a malformed line."""
        rows, scores = self._rows.take(), self._scores.take()
        try:
            for line in rows:
                step, row, prompt, completion = json.loads(line)
                self.rows.setdefault(step, {})[row] = (prompt, completion)
            for line in scores:
                number, score = json.loads(line)
                self.scores.setdefault(number, []).append(float(score))
        except (ValueError, TypeError) as error:
            raise MeterError("what was told from within verl cannot be read: %s" % error) from error
        return bool(rows or scores)
