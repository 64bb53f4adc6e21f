"""The two channels: stdout carries data, stderr carries talk. No markup."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, RenderableType

WIDTH = 80
"""Columns of everything drawn where there is no terminal; a terminal has its own."""


def out(most: int | None = 100) -> Console:
    """Returns the console for results, at most ``most`` columns wide."""
    return _console(sys.stdout, most)


def width() -> int:
    """Returns the columns of the terminal, for tables."""
    return out(None).width


def talk(most: int | None = 100) -> Console:
    """Returns the console for progress, hints and errors."""
    return _console(sys.stderr, most)


def _console(stream: TextIO, most: int | None) -> Console:
    probe = Console(file=stream)
    columns = min(most or probe.width, probe.width) if probe.is_terminal else WIDTH
    return Console(file=stream, width=max(1, columns), markup=False, emoji=False, highlight=False)


def show(renderable: RenderableType, most: int | None = 100) -> None:
    """Prints a result; in a pipe or a file without the blanks that fill its lines."""
    screen = out(most)
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    for text in captured.get().splitlines():
        line(text.rstrip())


def line(text: str, *, stream: TextIO | None = None) -> None:
    """Prints one unwrapped line of plain text, by default on stdout."""
    target = stream or sys.stdout
    try:
        target.write(text + "\n")
        target.flush()
    except OSError as error:
        raise OSError(
            error.errno, error.strerror, f"the command's {'output' if stream is None else 'messages'}"
        ) from None


def say(text: str) -> None:
    """Writes one unwrapped line of talk; it is lost on a stream that is closed or full."""
    with suppress(OSError):
        line(text, stream=sys.stderr)


def document(value: Any) -> None:
    """Prints a JSON document on stdout, in ASCII, so that no terminal or locale can break it."""
    line(json.dumps(value, indent=2, allow_nan=False))


def record(value: Any) -> None:
    """Prints one line of NDJSON on stdout."""
    line(json.dumps(value, allow_nan=False, separators=(",", ":")))


def tolerate_encoding() -> None:
    """Lets a stream show a replacement for a character that it cannot show, and a closed one swallow all."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
