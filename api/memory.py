"""The memory of an attempt over its time: the file is found through the database alone, and checked."""

from __future__ import annotations

import os
from pathlib import Path

from api.logs import open_below
from autotune.documents.memory_timeline import MemoryTimeline, read_open
from autotune.errors import NotFoundError
from trainer.child.contract import RunPaths

WORDS = "memory timeline"


def timeline_in(folder: Path, root: Path) -> MemoryTimeline | None:
    """Of an attempt's ``folder`` below ``root``; ``None`` where there is none yet, or none that can be read."""
    try:
        file = open_below(root, RunPaths(folder).memory)
    except NotFoundError:
        return None
    try:
        return read_open(file)
    finally:
        os.close(file)
