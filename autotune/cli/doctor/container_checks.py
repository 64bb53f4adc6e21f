"""What a container often lacks, each with the option that gives it: shared memory, a home, a name, open files."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.cli.doctor.findings import Finding, Verdict
from autotune.wording.numbers import format_size

SHARED_WANTED = 1 << 30
"""Bytes of /dev/shm below which it may not suffice; Docker gives 64 MiB."""
FILES_WANTED = 4096
"""Open files; vLLM and NCCL hold a socket for each pair of processes."""
LOCKED_WANTED = 64 << 20
"""Bytes of memory NCCL may pin over InfiniBand."""
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""What ``getpass.getuser`` reads before it asks the system: torch names its compilers' cache by it."""


@dataclass(frozen=True)
class Surroundings:
    """What a process is given."""

    shared: int | None
    """Bytes of /dev/shm, ``None`` without one."""
    home: str | None
    home_can_be_written: bool
    named: bool
    """The user has a name: in the environment or in the system's list."""
    temporary: str | None
    """Folder for temporary files, ``None`` if none can be written."""
    files: int
    """Most open files, -1 without a limit."""
    locked: int
    """Most bytes of locked memory, -1 without a limit."""


def look(environ: Mapping[str, str] = os.environ) -> Surroundings:
    """Of this process."""
    home = environ.get("HOME") or None
    return Surroundings(
        shared=_size(Path("/dev/shm")),  # noqa: S108 - it is measured, and nothing written there
        home=home,
        home_can_be_written=home is not None and os.path.isdir(home) and os.access(home, os.W_OK),
        named=any(environ.get(name) for name in NAMES) or _is_listed(),
        temporary=_temporary(),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    )


def check_container(found: Surroundings, gpus: int) -> list[Finding]:
    """What is too little; nothing where all is there."""
    return [*_folders(found), *_shared(found), *_limits(found, gpus)]


def _folders(found: Surroundings) -> list[Finding]:
    findings = []
    if found.temporary is None:
        text = "no folder for temporary files can be written, so no trial can run"
        findings.append(Finding("temporary", Verdict.PROBLEM, text, "docker run --tmpfs /tmp:exec ..."))
    if not found.home_can_be_written:
        what = "HOME is not set" if found.home is None else f"HOME={found.home} cannot be written"
        text = f"{what}; frameworks keep their caches there, and fail without"
        findings.append(Finding("HOME", Verdict.WARNING, text, "export HOME=/a/folder/you/can/write"))
    if not found.named:
        text = f"user id {os.getuid()} has no name, and torch fails where it asks for one"
        findings.append(Finding("user", Verdict.WARNING, text, "export USER=autotune LOGNAME=autotune"))
    return findings


def _shared(found: Surroundings) -> list[Finding]:
    if found.shared is not None and found.shared >= SHARED_WANTED:
        return []
    size = "no /dev/shm" if found.shared is None else f"{format_size(found.shared)} of shared memory (/dev/shm)"
    text = f"{size}; NCCL, vLLM and data loaders need {format_size(SHARED_WANTED)} or more"
    return [Finding("shared memory", Verdict.WARNING, text, "docker run --ipc=host ..., or --shm-size=8g")]


def _limits(found: Surroundings, gpus: int) -> list[Finding]:
    findings = []
    if 0 <= found.files < FILES_WANTED:
        text = f"{found.files} files may be open at a time; several ranks need {FILES_WANTED} or more"
        findings.append(Finding("open files", Verdict.WARNING, text, "ulimit -n 65536"))
    if gpus > 1 and 0 <= found.locked < LOCKED_WANTED:
        text = f"{format_size(found.locked)} of memory may be locked; NCCL over InfiniBand needs more"
        findings.append(Finding("locked memory", Verdict.WARNING, text, "docker run --ulimit memlock=-1 ..."))
    return findings


def _size(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def _is_listed() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _temporary() -> str | None:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return None
