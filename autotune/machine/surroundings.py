"""Checks for limits and folders that programs expect and that containers or batch systems may lack."""

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
    """Bytes that ``/dev/shm`` can hold; ``None``: the folder does not exist."""
    open_files: int
    """Most files that a process may have open, by its hard limit."""
    locked_memory: int | None
    """Bytes that a process may lock in memory; ``None``: no limit."""
    home: str
    """Home folder of the user; empty if neither ``HOME`` nor the user database has one."""
    home_usable: bool
    """True if the home folder can be written, or created."""
    named: bool
    """True if the user database has a name for this user."""
    temporary: bool
    """True if there is a folder for temporary files."""
    zombies: int
    """Number of dead children that process 1 has not waited for."""


def look(environ: Mapping[str, str] | None = None, files: Files = HOST) -> Surroundings:
    """Reads the limits and folders; creates only a short-lived temporary file."""
    values = os.environ if environ is None else environ
    home = home_of(values)
    opened, locked = (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK))
    return Surroundings(
        shared_memory=_capacity(SHARED_MEMORY),
        open_files=1 << 62 if opened == resource.RLIM_INFINITY else opened,
        locked_memory=None if locked == resource.RLIM_INFINITY else locked,
        home=home,
        home_usable=bool(home) and _writable(Path(home)),
        named=has_name(),
        temporary=_has_temporary(),
        zombies=sum(_is_zombie_of_first(folder) for folder in files.proc.glob("[0-9]*")),
    )


def home_of(environ: Mapping[str, str]) -> str:
    """Returns the user's home folder; empty if it is not known."""
    return environ.get("HOME", "").strip() or (_account().pw_dir if has_name() else "")


def has_name() -> bool:
    """Tells whether the user database has this user."""
    try:
        _account()
    except KeyError:
        return False
    return True


def _account() -> pwd.struct_passwd:
    return pwd.getpwuid(os.geteuid())


def _capacity(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def existing(path: Path) -> Path:
    """Returns ``path``, or its nearest parent folder that exists."""
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
