"""Waiting for what has to happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 240.0
"""Just below pytest's own limit for a test: what takes longer has stopped, and is not merely slow."""


def wait_for(
    condition: Callable[[], object], what: str = "it", seconds: float = PATIENCE_S, step: float = 0.01
) -> None:
    """Return once ``condition()`` holds; ``what`` is named if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {seconds:.0f} s"
        time.sleep(step)


def has_text(path: Path) -> bool:
    """Whether a file is there and not empty; a writer creates it before it fills it."""
    return path.exists() and path.stat().st_size > 0
