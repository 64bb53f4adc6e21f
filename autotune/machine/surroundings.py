"""What a container or a batch system may leave out that programs expect of a machine."""

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
REAPERS = frozenset(("systemd", "init", "tini", "dumb-init", "docker-init", "podman-init", "catatonit", "bash", "sh"))
"""Names of first processes that wait for the children of dead ones."""

MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""What Docker and Podman leave in a container."""


@dataclass(frozen=True)
class Surroundings:
    """As this process finds them."""

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
    first: str
    """Name of process 1; empty where it is not to be seen."""
    itself_first: bool
    """This process is process 1."""
    contained: bool
    """It is known to be in a container."""

    @property
    def reaped(self) -> bool:
        """Somebody waits for the children of dead processes, as far as is known."""
        return not self.contained or not self.first or self.itself_first or self.first in REAPERS


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
        first=_first(files),
        itself_first=os.getpid() == 1,
        contained="KUBERNETES_SERVICE_HOST" in values or any(mark.exists() for mark in MARKS),
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


def _writable(folder: Path) -> bool:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK)


def _has_temporary() -> bool:
    try:
        tempfile.gettempdir()
    except OSError:
        return False
    return True


def _first(files: Files) -> str:
    try:
        return (files.proc / "1" / "comm").read_text().strip()
    except OSError:
        return ""
