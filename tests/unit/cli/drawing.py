"""Renders as a terminal or a pipe would show it."""

import io
from typing import Any

from rich.cells import cell_len
from rich.console import Console


def lines(renderable: Any, width: int = 80, *, terminal: bool = False) -> Any:
    stream = io.StringIO()
    screen = Console(
        file=stream,
        width=width,
        force_terminal=terminal,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    screen.print(renderable)
    return stream.getvalue().splitlines()


def text(renderable: Any, width: int = 80) -> Any:
    return "\n".join(lines(renderable, width))


def widest(renderable: Any, width: int = 80) -> Any:
    return max((cell_len(line) for line in lines(renderable, width)), default=0)
