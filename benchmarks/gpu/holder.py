"""Runs one stage of a visit and ends all of its processes, whatever becomes of the visit or of the stage.

``python holder.py SECONDS GRACE COMMAND...``: its input is a pipe of the visit's, which closes when the visit is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

PR_SET_CHILD_SUBREAPER = 36
KILLING_S = 10.0


def hold(seconds: str, grace: str, *command: str) -> int:
    """Runs a command until it has ended, its time is over, or whoever holds the other end of the input is gone; then
    ends every process that came of it. Returns its exit code, 124 where it was ended."""
    become_subreaper()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    gone, end = os.pidfd_open(child.pid), time.monotonic() + float(seconds)
    ready, _, _ = select.select([sys.stdin, gone], [], [], max(0.0, end - time.monotonic()))
    over = gone not in ready
    if over:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT if "pytest" in command else signal.SIGTERM)
        select.select([gone], [], [], float(grace))
    code = child.poll()
    end_all()
    return 124 if over else int(code if code is not None else child.wait())


def become_subreaper() -> None:
    """Orphans of this process's descendants come to it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(of: int) -> Iterator[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stream:
                parent = int(stream.read().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(name))
    below = parents.get(of, [])
    while below:
        yield from below
        below = [child for pid in below for child in parents.get(pid, [])]


def end_all() -> None:
    """Kills every process below this one, until there is none."""
    end = time.monotonic() + KILLING_S
    while (found := list(descendants(os.getpid()))) and time.monotonic() < end:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(hold(*sys.argv[1:]))
