"""Moves the clock of a process whose path has this folder by the seconds in the file ``MADE_UP_CLOCK``."""

from __future__ import annotations

import os
import time
from pathlib import Path

if "MADE_UP_CLOCK" in os.environ:
    _real, _file = time.time, Path(os.environ["MADE_UP_CLOCK"])

    def _moved() -> float:
        try:
            return _real() + float(_file.read_text())
        except (OSError, ValueError):
            return _real()

    time.time = _moved
