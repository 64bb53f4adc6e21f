"""The two output streams: results on stdout, messages on stderr. No markup."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, RenderableType

from autotune.documents.study import plain

WIDTH = 80
"""Width in columns of output that does not go to a terminal."""


def out(most: int | None = 100) -> Console:
    """Returns the console for results, at most ``most`` columns wide."""
    return _console(sys.stdout, most)


def talk(most: int | None = 100) -> Console:
    """Returns the console for progress, hints and errors."""
    return _console(sys.stderr, most)


def _console(stream: TextIO, most: int | None) -> Console:
    probe = Console(file=stream)
    columns = min(most or probe.width, probe.width) if probe.is_terminal else WIDTH
    return Console(file=stream, width=max(1, columns), markup=False, emoji=False, highlight=False)


def show(renderable: RenderableType, most: int | None = 100) -> None:
    """Prints a result; pads its lines with blanks only on a terminal."""
    screen = out(most)
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    for text in captured.get().splitlines():
        line(text.rstrip())


def line(text: str) -> None:
    """Prints one unwrapped line of plain text on stdout, in one write."""
    print(f"{text}\n", end="", flush=True)  # noqa: T201 - this is the one place that prints


def say(text: str) -> None:
    """Writes one unwrapped line to stderr; drops it if the stream is closed or full."""
    with suppress(OSError):
        print(f"{text}\n", end="", file=sys.stderr, flush=True)  # noqa: T201


def document(value: Any) -> None:
    """Prints a JSON document on stdout, in ASCII, so that no terminal or locale can break it."""
    line(json.dumps(value, indent=2, allow_nan=False))


def answer(value: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Prints an answer on stdout: as the document of ``value``, else as ``lines``."""
    if as_json:
        document(plain(value))
        return
    for text in lines:
        line(text)


def record(value: Any) -> None:
    """Prints one line of NDJSON on stdout."""
    line(json.dumps(value, allow_nan=False, separators=(",", ":")))


class _Output(io.TextIOWrapper):
    """Standard output whose errors name it, so that a full disk behind stdout is not reported as a full home folder."""

    def write(self, text: str) -> int:
        written: int = self._do(super().write, text)
        return written

    def flush(self) -> None:
        self._do(super().flush)

    def _do(self, act: Callable[..., Any], *given: str) -> Any:
        try:
            return act(*given)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # else Python tries the rest again at its exit
            raise OSError(error.errno, error.strerror, "the command's output") from None


def set_up() -> None:
    """Prepares the streams of a command: replaces characters that a stream cannot encode, discards output to a closed
    one, and names standard output in its errors."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, lines = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Output(sys.stdout.detach(), encoding, "replace", line_buffering=lines)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or sys.stdout
