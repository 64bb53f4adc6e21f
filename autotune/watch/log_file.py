"""Reads a training log as it grows, in bounded memory. Only this module of the package opens files."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from autotune.errors import UsageError
from autotune.watch.series import TELLING, Series

CHUNK, LONGEST_LINE = 1 << 20, 1 << 22
"""Bytes per read, and of the longest line that is kept; a line of metrics has a few thousand."""
_ENDS = re.compile(rb"[\r\n]")
"""Matches ends of lines; a progress bar ends its lines by a carriage return."""
_SQLITE = b"SQLite format 3\x00"
_IN_FOLDER = ("logging.jsonl", "trainer_state.json")


class LogFile:
    """A log on disk: text that grows, is replaced or cut, or Trackio's database."""

    def __init__(self, path: Path, run: str | None = None) -> None:
        """Prepares to read the log; of a database, the run named ``run`` or the newest."""
        self.path, self.run, self.series = path, run, Series()
        self._file: tuple[int, int] | None = None
        self._offset, self._rest, self._too_long = 0, b"", False

    def poll(self) -> str:
        """Reads the lines added since the last call. Returns a sentence if the file was replaced or cut, else nothing.

        Raises:
            UsageError: there is no such file, or it cannot be read.
        """
        path = _within(self.path)
        try:
            with open(path, "rb") as stream:
                stat = os.fstat(stream.fileno())
                if stream.read(len(_SQLITE)) == _SQLITE:
                    self._read_database(path)
                    return ""
                note = self._replaced((stat.st_dev, stat.st_ino), stat.st_size)
                stream.seek(self._offset)
                for lines in self._lines(iter(lambda: stream.read(CHUNK), b"")):
                    self.series.read(lines)
        except IsADirectoryError:
            raise UsageError(f"{path} is a folder without {' or '.join(_IN_FOLDER)}; name the log itself") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        return note

    def close(self) -> None:
        """Reads a last line without an end of line, as a killed run leaves it."""
        self.series.read([self._rest.decode(errors="replace")])
        self._rest = b""

    def _replaced(self, file: tuple[int, int], size: int) -> str:
        before, self._file = self._file, file
        if before is None or (before == file and size >= self._offset):
            return ""
        self._offset, self._rest, self._too_long = 0, b"", False
        self.series.begin_anew()
        how = "was cut" if before == file else "was replaced"
        return f"{self.path} {how}; it is read again from its beginning, and steps read before are kept"

    def _lines(self, chunks: Iterator[bytes]) -> Iterator[list[str]]:
        """Yields the relevant lines (``TELLING``) of each chunk; keeps its unfinished last line."""
        for chunk in chunks:
            self._offset += len(chunk)
            *whole, rest = _ENDS.split(self._rest + chunk)
            if self._too_long and whole:
                whole, self._too_long = whole[1:], False
            self._rest = rest
            if len(rest) > LONGEST_LINE:
                self._rest, self._too_long = b"", True
            yield [line.decode(errors="replace") for line in whole if TELLING.search(line)]

    def _read_database(self, path: Path) -> None:
        """Reads the newest run of Trackio's table ``metrics``: each row has a step, and its metrics as JSON."""
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                runs = [
                    name for (name,) in database.execute("SELECT run_name FROM metrics GROUP BY 1 ORDER BY max(id)")
                ]
                if not runs or (self.run is not None and self.run not in runs):
                    others = f"; it has {', '.join(runs[-5:])}" if runs else ""
                    raise UsageError(f"{path} has no run {self.run or 'with metrics'}{others}")
                rows = database.execute(
                    "SELECT id, step, metrics FROM metrics WHERE run_name = ? AND id > ? ORDER BY id",
                    (self.run or runs[-1], self._offset),
                )
                for self._offset, step, metrics in rows:
                    self.series.read([f'{metrics.rstrip()[:-1]}, "step": {step}}}'])
        except sqlite3.Error as error:
            raise UsageError(f"{path} is no database of Trackio: {error}") from None


def _within(path: Path) -> Path:
    """Returns the log in a run's folder: ms-swift's, else the Trainer's newest state. Raises ``UsageError`` for a
    TensorBoard file."""
    if path.is_dir():
        inside = [path / name for name in _IN_FOLDER]
        saved = sorted(path.glob("checkpoint-*/trainer_state.json"), key=lambda file: file.stat().st_mtime)
        path = next((file for file in (*inside, *saved[::-1]) if file.is_file()), path)
    if "tfevents" in path.name:
        raise UsageError(
            f"{path} is TensorBoard's, which is not read; name the run's output, its folder with checkpoints, or "
            "Trackio's database"
        )
    return path
