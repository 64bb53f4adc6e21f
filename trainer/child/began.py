"""Measures the time since this process was requested, and ends this process together with its parent."""

from __future__ import annotations

import os
import threading
import time
from typing import Callable, List, Optional

_ASKED: List[float] = []
_TAKEN: List[float] = []


def end_with_parent() -> Callable[[], None]:
    """Starts a thread that ends this process once its parent has ended. Returns a function that stops the thread."""
    parent, over = os.getppid(), threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if os.getppid() != parent:
                os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()

    def stay() -> None:
        over.set()
        watcher.join()

    return stay


def asked_at(moment: float) -> None:
    """Records that this process was forked, and when the fork was requested (``time.monotonic``)."""
    _ASKED[:] = [moment]
    _TAKEN.clear()


def take() -> Optional[float]:
    """Returns the seconds since this process was requested; ``None`` from the second call on.

    Without ``asked_at``, counts from the start of this process, or of the launcher of its ranks.
    """
    if _TAKEN:
        return None
    _TAKEN.append(time.monotonic())
    if _ASKED:
        return max(0.0, _TAKEN[0] - _ASKED[0])
    started = _started(os.getppid() if "LOCAL_RANK" in os.environ else os.getpid())
    return None if started is None else max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def _started(pid: int) -> Optional[float]:
    """Returns the start time of process ``pid``, in seconds after boot; ``None`` if unknown."""
    fields = stat_fields(pid)
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else None


def stat_fields(pid: int) -> List[str]:
    """Returns the fields of ``/proc/PID/stat`` after the name, the state first; empty if the file cannot be read."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()
    except OSError:
        return []
