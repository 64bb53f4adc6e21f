"""Reads the limits and counters of this process's control groups, of version 1 and 2: what a container may use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60
"""Bytes above which a version 1 control group means "no limit"."""


@dataclass(frozen=True)
class Files:
    """Paths of the kernel's files about the machine."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    sys: Path = Path("/sys")


HOST = Files()


def core_quotas(files: Files = HOST) -> list[float]:
    """CPU cores that each of the groups allows; empty without a limit."""
    return [quota for group in _groups(files, "cpu") if (quota := _quota(group)) is not None]


def memory_limit(files: Files = HOST) -> int | None:
    """Bytes of the tightest group; ``None`` without a limit."""
    return min((limit for _, limit in _limits(files)), default=None)


def free_memory(files: Files = HOST) -> int | None:
    """Bytes until the tightest group is full, files that the kernel can drop not counted; ``None`` without a limit."""
    return min((max(0, limit - _used(group)) for group, limit in _limits(files)), default=None)


def oom_kills(files: Files = HOST) -> int:
    """Processes the kernel's out-of-memory killer has ended: in this process's group where that is counted, else on the
    whole machine. The group's counter has the kills for its own limit and those for the machine's."""
    for group in _groups(files, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            found = _field(group / name, "oom_kill")
            if found is not None:
                return found
    return _field(files.proc / "vmstat", "oom_kill") or 0


def _limits(files: Files) -> Iterator[tuple[Path, int]]:
    for group in _groups(files, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = read(group / name).strip()
            if text.isdigit() and int(text) < UNLIMITED:
                yield group, int(text)


def _used(group: Path) -> int:
    text = read(group / "memory.current").strip() or read(group / "memory.usage_in_bytes").strip()
    droppable = _field(group / "memory.stat", "inactive_file") or 0
    return max(0, int(text) - droppable) if text.isdigit() else 0


def _field(path: Path, name: str) -> int | None:
    """The number behind ``name`` in a file with a name and a number on each line."""
    for line in read(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _quota(group: Path) -> float | None:
    """Cores by ``cpu.max`` (version 2) or ``cpu.cfs_quota_us`` (version 1)."""
    words = read(group / "cpu.max").split() or [
        read(group / "cpu.cfs_quota_us").strip(),
        read(group / "cpu.cfs_period_us").strip(),
    ]
    if len(words) != 2 or not all(w.isdigit() for w in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _groups(files: Files, controller: str) -> Iterator[Path]:
    """This process's control group and all above it, of both versions."""
    for line in read(files.proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = files.cgroup / controllers if controllers else files.cgroup
        group = root / path.lstrip("/")
        while group != root:
            yield group
            group = group.parent
        yield root


def read(path: Path) -> str:
    """Its text; empty if it is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""
