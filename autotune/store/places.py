"""Checks whether a folder is fit for SQLite: by the kind of its file system, and by a test of its locks."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UnfitDatabaseError

MOUNTS = Path("/proc/self/mounts")
NETWORKS = {"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "smbfs": "SMB"}
"""Kind of a network file system -> its name. SQLite's log is not safe there, even with working locks, because processes
share memory through a file (https://sqlite.org/wal.html)."""
ELSEWHERE = "keep studies in PostgreSQL ($AUTOTUNE_DATABASE), or on a local disk (--home or $AUTOTUNE_HOME)"
_OF_OPEN_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
"""``struct flock`` for a write lock on the first byte."""
_TAKEN = (errno.EAGAIN, errno.EACCES)


@dataclass(frozen=True)
class Mount:
    """A mounted file system."""

    at: str
    kind: str

    def __str__(self) -> str:
        return f"{NETWORKS.get(self.kind, self.kind)}, mounted at {self.at}"


def check_place(file: Path) -> None:
    """Refuses a database file on a network, or where two processes could lock the same file. Leaves no file behind.

    Raises ``UnfitDatabaseError``. A read-only folder is judged by the kind of its file system alone.
    """
    folder = file.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    mount = mount_of(folder)
    where = folder if mount is None else f"{folder} ({mount})"
    if mount is not None and mount.kind in NETWORKS:
        raise UnfitDatabaseError(f"database {file}: SQLite is not safe in {where}; {ELSEWHERE}")
    if os.access(folder, os.W_OK) and (why := _unlocked(folder)) is not None:
        raise UnfitDatabaseError(f"database {file}: in {where} {why}, so two tuners could run one study; {ELSEWHERE}")


def mount_of(folder: Path) -> Mount | None:
    """Returns the file system of a folder; ``None`` if the system does not report it."""
    real, found = Path(os.path.realpath(folder)), None
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        _, at, kind, *_ = (re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), word) for word in line.split())
        # Of two at the same place the later one is seen.
        if real.is_relative_to(at) and (found is None or len(at) >= len(found.at)):
            found = Mount(at, kind)
    return found


def _unlocked(folder: Path) -> str | None:
    """Describes a problem with the locks of ``folder``: flock, for studies, and fcntl, for SQLite. ``None`` if both
    work.

    An fcntl lock belongs to the process; a lock of an open file conflicts with it like another process's (fcntl(2)).
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".locks-") as ours, open(ours.name, "rb+") as theirs:
            fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _refused(lambda: fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)):
                return "a locked file can be locked again"
            fcntl.flock(ours, fcntl.LOCK_UN)
            fcntl.lockf(ours, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            if not _refused(lambda: fcntl.fcntl(theirs, fcntl.F_OFD_SETLK, _OF_OPEN_FILE)):
                return "a locked file can be locked again"
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            return f"files cannot be locked ({error.strerror})"
        # Whatever else is wrong with the folder is told by whoever writes to it.
    return None


def _refused(lock: Callable[[], object]) -> bool:
    """Tells whether the second lock is refused; also true if the system does not know this kind of lock."""
    try:
        lock()
    except OSError as error:
        return error.errno in (*_TAKEN, errno.EINVAL)
    return False
