"""Whether a folder is a place for SQLite: by the kind of its file system, and by a test of its locks."""

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
"""Kind of file system -> its name. SQLite's log is not safe there (https://sqlite.org/wal.html), whatever its locks do:
processes share memory through a file, which two machines do not."""
ELSEWHERE = "keep studies in PostgreSQL ($AUTOTUNE_DATABASE), or on a local disk (--home or $AUTOTUNE_HOME)"
_OF_OPEN_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
"""``struct flock``: the first byte, for writing."""
_TAKEN = (errno.EAGAIN, errno.EACCES)


@dataclass(frozen=True)
class Mount:
    """A file system where it is mounted."""

    at: str
    kind: str

    def __str__(self) -> str:
        return f"{NETWORKS.get(self.kind, self.kind)}, mounted at {self.at}"


def check_place(file: Path) -> None:
    """Refuses a database file on a network, or where two processes could lock the same file. Nothing stays there.

    Raises ``UnfitDatabaseError``. A folder that may only be read is judged by its kind alone.
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
    """The file system a folder is on; ``None``: the system does not tell."""
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
    """The problem with the locks of ``folder``: those of studies, and SQLite's, which are of another kind.

    Locks of SQLite's kind are a process's; one of an open file meets them like another process's (fcntl(2)).
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
    """Whether the second lock is refused; a system that does not know its kind has refused nothing wrongly."""
    try:
        lock()
    except OSError as error:
        return error.errno in (*_TAKEN, errno.EINVAL)
    return False
