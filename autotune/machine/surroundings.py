"""Checks for things that programs expect of a machine and that containers or batch systems may lack."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.machine.hardware import HOST, Files

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (it is looked at; nothing is created there)


@dataclass(frozen=True)
class Surroundings:
    """Limits and folders of this process's environment."""

    shared_memory: int | None
    """Bytes that ``/dev/shm`` can hold; ``None``: there is none."""
    open_files: int
    """Files that a process may have open at most, by its hard limit."""
    locked_memory: int | None
    """Bytes that a process may lock; ``None``: as many as it likes."""
    home: str
    """The user's home; empty where neither ``HOME`` nor the list of users has one."""
    home_usable: bool
    """It can be written, or made."""
    named: bool
    """This user has a name."""
    temporary: bool
    """There is a folder for temporary files."""
    zombies: int
    """Dead children that process 1 has not waited for."""


def look(environ: Mapping[str, str] | None = None, files: Files = HOST) -> Surroundings:
    """Reads all of it; creates nothing but, for a moment, a temporary file."""
    values = os.environ if environ is None else environ
    home = home_of(values)
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return Surroundings(
        shared_memory=_capacity(SHARED_MEMORY),
        open_files=_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        locked_memory=None if locked == resource.RLIM_INFINITY else locked,
        home=home,
        home_usable=bool(home) and _writable(Path(home)),
        named=has_name(),
        temporary=_has_temporary(),
        zombies=sum(_is_zombie_of_first(folder) for folder in files.proc.glob("[0-9]*")),
    )


def home_of(environ: Mapping[str, str]) -> str:
    """The user's home folder; empty where it is not known."""
    return environ.get("HOME", "").strip() or (_account().pw_dir if has_name() else "")


def has_name() -> bool:
    """Whether the list of users has this one."""
    try:
        _account()
    except KeyError:
        return False
    return True


def _account() -> pwd.struct_passwd:
    return pwd.getpwuid(os.geteuid())


def _limit(value: int) -> int:
    return 1 << 62 if value == resource.RLIM_INFINITY else value


def _capacity(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def existing(path: Path) -> Path:
    """``path``, or the nearest of the folders above it that is there."""
    return next((place for place in (path, *path.parents) if place.exists()), path)


def _writable(folder: Path) -> bool:
    place = existing(folder)
    return place.is_dir() and os.access(place, os.W_OK)


def _has_temporary() -> bool:
    try:
        tempfile.gettempdir()
    except OSError:
        return False
    return True


def _is_zombie_of_first(folder: Path) -> bool:
    try:
        state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):  # gone meanwhile
        return False
    return (state, parent) == ("Z", "1")
