"""Text in terminal cells."""

from __future__ import annotations

import math
import time

from rich.cells import cell_len, set_cell_size

from autotune.wording.text import clean


def fit(text: object, width: int) -> str:
    """Cuts ``clean`` text to at most ``width`` terminal cells, with an ellipsis."""
    safe = clean(text)
    if cell_len(safe) <= width:
        return safe
    return set_cell_size(safe, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def clock_time(at: float, *, today: float | None = None) -> str:
    """Formats local time as ``16:42``; with ``today`` the date too when it is another day."""
    try:
        moment = time.localtime(at)
    except (OverflowError, ValueError, OSError):
        return "?"
    if today is not None and time.localtime(today)[:3] != moment[:3]:
        return time.strftime("%Y-%m-%d %H:%M", moment)
    return time.strftime("%H:%M", moment)


def bar(share: float, width: int) -> str:
    """Draws a plain bar of ``width`` cells, filled to ``share`` (clamped to 0..1)."""
    filled = round(width * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    return "█" * filled + "░" * (width - filled)
