"""Waits for the parent's decision whether the recorded cycles are enough.

The parent weighs them against the study's other trials, which the child does not know. The child waits between cycles,
when nothing is timed.
"""

from __future__ import annotations

import time
from typing import Optional, Tuple

from .contract import RunPaths

GO, END = "go", "end"

ANSWER_S = 2.0
"""Seconds after which the next cycle starts without the parent's answer; a later answer counts then."""
POLL_S = 0.01


def is_enough(paths: RunPaths, cycle: int, wait_s: float = ANSWER_S) -> bool:
    """Returns the parent's decision after cycle ``cycle``; a decision to end is final."""
    until = time.monotonic() + wait_s
    while True:
        answered, word = read_answer(paths) or (-1, GO)
        if word == END:
            return True
        if answered >= cycle or time.monotonic() >= until:
            return False
        time.sleep(POLL_S)


def read_answer(paths: RunPaths) -> Optional[Tuple[int, str]]:
    """Reads the decision (cycle, word); ``None`` before the first."""
    try:
        cycle, word = paths.enough.read_text(encoding="utf-8").split()
        return int(cycle), word
    except (OSError, ValueError):
        return None
