"""Reads process data directly from ``/proc``, because it is read ten times a second.

For a process that has ended, every reader returns an empty answer, not an error.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from autotune.machine import hardware
from autotune.machine.hardware import HOST, Files
from trainer.child.contract import TAG_VARIABLE

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_TAG = b"\0" + TAG_VARIABLE.encode() + b"="


@dataclass(frozen=True, slots=True)
class Stat:
    """State of one process. ``pid`` with ``started`` is unique; ``pid`` alone is reused."""

    pid: int
    parent: int
    session: int
    state: str
    started: int
    """Start time, in clock ticks after boot."""
    cpu_ticks: int
    """User and system time in clock ticks, including children that it has waited for."""
    name: str = ""
    """Name of the process's program, at most 15 bytes; a process can change it."""

    @property
    def age_s(self) -> float:
        """Seconds since the process was forked."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / TICKS_PER_SECOND

    @property
    def ended(self) -> bool:
        """True for a zombie."""
        return self.state in ("Z", "X")


def read_stat(pid: int) -> Stat | None:
    """Parses ``/proc/PID/stat``; ``None`` if the process is gone."""
    data = _read(f"/proc/{pid}/stat")
    end = data.rfind(b")")  # the name before it may hold blanks and brackets
    if end < 0:
        return None
    field = data[end + 2 :].split()
    cpu = sum(int(value) for value in field[11:15])
    name = data[data.find(b"(") + 1 : end].decode("utf-8", "replace")
    return Stat(pid, int(field[1]), int(field[3]), field[0].decode(), int(field[19]), cpu, name)


def list_pids() -> list[int]:
    """Lists the ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_tag(pid: int) -> str | None:
    """Returns the trial tag in the process's environment; ``None`` without one or without permission.

    During ``exec`` no process shows a tag.
    """
    environment = b"\0" + _read(f"/proc/{pid}/environ")
    at = environment.find(_TAG)
    if at < 0:
        return None
    return environment[at + len(_TAG) :].split(b"\0", 1)[0].decode("utf-8", "replace")


def read_resident(pid: int) -> tuple[int, int]:
    """Returns the resident bytes and, of them, the file-backed or shared ones; cheap, as exact as the kernel's
    counters."""
    field = _read(f"/proc/{pid}/statm").split()
    if len(field) < 3:
        return 0, 0
    return int(field[1]) * PAGE, int(field[2]) * PAGE


def read_proportional(pid: int) -> int | None:
    """Returns the exact PSS in bytes, at about 9 ms per resident GiB; ``None`` if it cannot be read."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def read_share(pid: int, *, origin: bool) -> int:
    """Returns the bytes of a forked tree's pages that the kernel counts as those of ``pid``; 0 if they cannot be read.

    Args:
        pid: a process outside the tree.
        origin: true if the tree was forked from it: all of its pages are the tree's except private anonymous ones,
            which
            the tree has replaced or freed. Otherwise the two only map the same files.
    """
    sizes = {}
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]:
        name, _, rest = line.partition(b":")
        sizes[name] = int(rest.split()[0]) * 1024
    if origin:
        return max(0, sizes.get(b"Pss", 0) - sizes.get(b"Private_Dirty", 0))
    return max(0, sizes.get(b"Pss_File", 0) - sizes.get(b"Private_Clean", 0))


def catches(pid: int, number: signal.Signals) -> bool:
    """Tells whether the process has a handler for the signal, so that the signal does not end it."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send(process: Stat, number: signal.Signals) -> None:
    """Sends a signal to exactly this process, never to a later one with the same id."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        now = read_stat(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or no longer ours: whoever waits for its end will see
    finally:
        os.close(handle)


def oom_kills(files: Files = HOST) -> int:
    """Counts processes ended by the kernel's out-of-memory killer, in this process's control group, else the machine.

    A control group's count excludes other containers.
    """
    group = next(iter(hardware.groups(files, "memory")), files.cgroup)
    for path in (group / "memory.events", group / "memory.oom_control", files.proc / "vmstat"):
        for line in _read(str(path)).splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read()
    except OSError:  # gone, or not ours
        return b""
