"""The two channels: stdout carries data, stderr carries talk. 80 columns, no markup, no surprises."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, RenderableType

WIDTH = 80
"""Columns of everything we draw; a narrower terminal gets its own width."""


def out() -> Console:
    """The console for results."""
    return _console(sys.stdout)


def talk() -> Console:
    """The console for progress, hints and errors."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    probe = Console(file=stream)
    width = min(WIDTH, probe.width) if probe.is_terminal else WIDTH
    return Console(
        file=stream,
        width=max(1, width),
        markup=False,
        emoji=False,
        highlight=False,
    )


def show(renderable: RenderableType) -> None:
    """Print a result; in a pipe or a file without the blanks that fill its lines."""
    screen = out()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    for text in captured.get().splitlines():
        line(text.rstrip())


def line(text: str, *, stream: TextIO | None = None) -> None:
    """One unwrapped line of plain text; stdout unless told."""
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
    """A JSON document on stdout; ASCII, so that no terminal or locale can break it."""
    line(json.dumps(value, indent=2, allow_nan=False))


def record(value: Any) -> None:
    """One line of NDJSON on stdout."""
    line(json.dumps(value, allow_nan=False, separators=(",", ":")))


def tolerate_encoding() -> None:
    """Lets a stream show a replacement for a character that it cannot show, and a closed one swallow all."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
