"""SQLite: the only file with its SQL and error codes, and the test whether a folder is fit for its locks.

Settings and reasons: docs/decisions/0001-own-tables.md.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from autotune.errors import NoDatabaseError, StoreError, UnfitDatabaseError
from autotune.ports import StudyLock
from autotune.store.backend import WRITE, Backend
from autotune.store.locks import FileStudyLock, Holder, LocalStudyLock

_CREATION_TIMEOUT_S = 60.0

_ADVICE: Mapping[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space and start again (what was acknowledged is kept)",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a copy, or move it away to begin a new one",
    sqlite3.SQLITE_NOTADB: "the file is not a database; move it away, or name another one",
    sqlite3.SQLITE_READONLY: "it cannot be written; check the permissions of the file and of its folder",
    sqlite3.SQLITE_PERM: "it cannot be written; check the permissions of the file and of its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed; check the disk and its free space",
}

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_PUT_BACK = "put a copy back if there is one; without it the same command begins anew"

_ERRNO: Mapping[int | None, int] = {
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
}


class SqliteFile(Backend):
    """A database file, with its write-ahead log and its locks beside it."""

    def __init__(self, path: Path, busy_timeout_s: float, *, create: bool = True) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._create = create
        self._file: tuple[int, int] | None = None
        """Device and inode of the opened file."""
        self._held: list[FileStudyLock] = []

    @property
    def place(self) -> str:
        return f"database {self._path}"

    def engine(self) -> Engine:
        if self._path.is_dir():
            raise StoreError(f"{self.place} is a folder; name a file in it")
        if self._create:
            check_place(self._path)
            self._path.parent.mkdir(parents=True, exist_ok=True)
        elif not self._path.is_file() or not self._path.stat().st_size:
            raise NoDatabaseError(f"there is no {self.place}; `autotune start` makes one")
        if self._path.is_file():
            self._check(self._path)
        engine = create_engine(self._url(), connect_args={"timeout": self._busy_timeout_s}, hide_parameters=True)
        _prepare(engine)
        return engine

    def _url(self) -> URL:
        read_only = self._read_only()
        if self._create and not read_only:
            return URL.create("sqlite", database=str(self._path))
        log = self._path.with_name(f"{self._path.name}-wal")
        options = {"mode": "rw"}  # or SQLite would make a file where there was one when it was looked for
        if read_only:
            # Where no log can be made, SQLite reads a file in its mode only if told that nobody changes it.
            options = {"mode": "ro", **({} if log.exists() else {"immutable": "1"})}
        return URL.create("sqlite", database=f"file:{quote(str(self._path))}", query={**options, "uri": "true"})

    def _read_only(self) -> bool:
        """Tells whether the file exists, but the file or its folder cannot be written."""
        return self._path.is_file() and not (os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK))

    @contextmanager
    def creation(self, engine: Engine) -> Iterator[None]:  # noqa: ARG002 - another database locks inside itself
        if self._read_only():
            raise StoreError(f"{self.place} has no tables yet, and cannot be written; name a file in a folder that can")
        try:
            with FileLock(f"{self._path}.lock", timeout=_CREATION_TIMEOUT_S):
                yield
        except Timeout:
            raise StoreError(
                f"{self.place} has been under preparation by another process for {_CREATION_TIMEOUT_S:.0f} s; "
                "end that process and start again"
            ) from None

    def ready(self, engine: Engine) -> bool:
        if self._read_only():
            return True
        with engine.connect() as connection:
            return connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"

    def make_ready(self, engine: Engine) -> None:
        with _outside_transaction(engine) as cursor:
            mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"{self.place}: its file system cannot hold a write-ahead log; use a folder on a local disk"
            )

    def study_lock(self, engine: Engine, study_id: int, name: str) -> StudyLock:  # noqa: ARG002 - a file holds it
        return FileStudyLock(self._path.with_name(f"{self._path.name}.study-{study_id}"), name, self._held)

    def guard(self, session: Session) -> None:  # noqa: ARG002 - a file needs no query
        """Checks that the file was not deleted and that no other machine took this process for dead. The operating
        system keeps the locks while the process lives."""
        self._check(self._path)
        for lock in tuple(self._held):
            lock.check()

    def confirm(self) -> None:
        self._check(self._path, self._path.with_name(f"{self._path.name}-wal"))

    def _check(self, *files: Path) -> None:
        """Raises ``StoreError`` if a file was deleted or replaced: SQLite would write to a nameless file."""
        try:
            found = [(at.st_dev, at.st_ino) for at in map(os.stat, files)]
        except FileNotFoundError as error:
            raise StoreError(f"{self.place}: {error.filename} was deleted while it was in use; {_PUT_BACK}") from None
        if self._file is None:
            self._file = found[0]
        if found[0] != self._file:
            raise StoreError(f"{self.place} was replaced by another file while it was in use; {_PUT_BACK}")

    def lost(self, error: Exception) -> bool:
        """Tells whether another process keeps the database locked; the transaction has then changed nothing."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        return int(getattr(cause, "sqlite_errorcode", 0)) & 0xFF in _LOCKED

    def explain(self, error: Exception) -> str:
        return _explain(error, self._busy_timeout_s)


class SqliteMemory(Backend):
    """A database in this process only, gone when the store is closed."""

    place = "database :memory:"

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._held: dict[int, Holder] = {}

    def engine(self) -> Engine:
        engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}, hide_parameters=True
        )
        _prepare(engine)
        return engine

    def turn(self) -> AbstractContextManager[object]:
        return self._turn

    def study_lock(self, engine: Engine, study_id: int, name: str) -> StudyLock:  # noqa: ARG002 - in this process
        return LocalStudyLock(self._held, study_id, name)

    def explain(self, error: Exception) -> str:
        return _explain(error, 0.0)


def _prepare(engine: Engine) -> None:
    """Sets up connections that check foreign keys, and transactions that begin as the caller asks."""

    @event.listens_for(engine, "connect")
    def connect(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:  # noqa: ARG001 - the event's shape
        # The driver must not begin transactions by itself: it would do so too late for reads and never IMMEDIATE.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred transaction that turns to writing fails at once if another wrote meanwhile; this one waits.
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def _outside_transaction(engine: Engine) -> Iterator[sqlite3.Cursor]:
    raw = engine.raw_connection()
    try:
        cursor: sqlite3.Cursor = raw.cursor()  # type: ignore[assignment]  # the driver's own class
        yield cursor
        cursor.close()
    finally:
        raw.close()


def _explain(error: Exception, busy_timeout_s: float) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        code = _ERRNO.get(getattr(cause, "errno", None), 0)
    if code == 0 and isinstance(cause, OSError):
        return f"{cause.strerror}: {cause.filename}"
    # The log's index could not be made larger; that is all a full disk says when it was full before the first write.
    primary = sqlite3.SQLITE_FULL if code == sqlite3.SQLITE_IOERR_SHMSIZE else code & 0xFF
    if primary in _LOCKED:
        return f"another process has kept it locked for {busy_timeout_s:g} s; end that process or wait, and try again"
    return _ADVICE.get(primary, str(cause) or type(cause).__name__)


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
