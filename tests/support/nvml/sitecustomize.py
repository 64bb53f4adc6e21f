"""Moves the clock of a process whose path has this folder by the seconds in the file ``MADE_UP_CLOCK``."""

from __future__ import annotations

import os
import time
from pathlib import Path

_real = time.time


def _moved() -> float:
    try:
        return _real() + float(Path(os.environ["MADE_UP_CLOCK"]).read_text())
    except (KeyError, OSError, ValueError):
        return _real()


time.time = _moved
