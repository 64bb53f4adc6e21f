"""Fails one write of this process: of Python's file operations, or of SQLite's own.

A write is named by its process, what it does, the file and how often that was done before: another run of the same
study meets it again. Named are opening to write, writing, flushing, renaming, making, shortening, touching and
removing, and each commit twice: at its log and at its flush.
"""

from __future__ import annotations

import _sqlite3
import builtins
import ctypes
import errno
import functools
import io
import json
import os
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "AUTOTUNE_TRIAL_FAULT"
"""JSON: ``root``, ``log``, ``fail`` (the write's name or null) and ``error`` (a name of ``errno``)."""

_write, _open = os.write, io.open
_CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_AUDITED = {
    "os.mkdir": "mkdir",
    "os.rename": "rename",
    "os.remove": "remove",
    "os.rmdir": "rmdir",
    "os.truncate": "truncate",
    "os.utime": "utime",
}
"""Audit event -> what it does; its first argument is the file."""


class Faults:
    """Counts the writes below a root, names each in a log, and fails one."""

    def __init__(self, process: str, root: str, log: str, fail: str | None, error: str) -> None:
        self.process, self.root, self.fail = process, os.path.realpath(root), fail
        self.number = int(getattr(errno, error))
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def hits(self, what: str, path: str) -> bool:
        """Whether this is the write to fail."""
        if path != self.root and not path.startswith(f"{self.root}/"):
            return False
        with self._lock:
            words = f"{self.process} {what} {_plain(os.path.relpath(path, self.root))}"
            self._counts[words] += 1
            name = f"{words} {self._counts[words]}"
            hit = name == self.fail
            _write(self._log, f"{'FAILED ' if hit else ''}{name}\n".encode())
        return hit

    def meet(self, what: str, path: str) -> None:
        """Raises ``OSError`` if this is the write to fail."""
        if self.hits(what, path):
            raise OSError(self.number, os.strerror(self.number), path)


def _plain(path: str) -> str:
    """The same in every run: names of temporary files have eight letters of chance."""
    folder, name = os.path.split(path)
    if name.startswith((".", "tmp")) and len(name) > 8:
        name = f"{name[:-8]}*"
    return os.path.join(folder, name)


def _of(file: object, folder: object = -1) -> str:
    """The path of a file given by name or number."""
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")
    name = os.fsdecode(file)  # type: ignore[arg-type]
    if isinstance(folder, int) and folder >= 0:
        name = os.path.join(_of(folder), name)
    name = os.path.abspath(name)
    return os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))


def begin(process: str) -> None:
    """If the environment asks for it; for the rest of this process's life."""
    if VARIABLE not in os.environ:
        return
    faults = Faults(process, **json.loads(os.environ[VARIABLE]))
    sys.addaudithook(functools.partial(_hook, faults))
    for name in ("write", "pwrite", "fsync"):
        setattr(os, name, _numbered(faults, name, getattr(os, name)))
    io.open = builtins.open = functools.partial(_opened, faults)  # type: ignore[assignment]
    sqlite3.dbapi2.connect = functools.partial(sqlite3.dbapi2.connect, factory=_connection(faults))  # type: ignore[attr-defined]
    _hook_sqlite(faults)


def _hook(faults: Faults, event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if flags & _CREATES and not isinstance(path, int):
            faults.meet("open", _of(path))
    elif event in _AUDITED:
        folder = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
        faults.meet(_AUDITED[event], _of(arguments[0], folder))


def _numbered(faults: Faults, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(handle: Any, *rest: Any) -> Any:
        number = handle if isinstance(handle, int) else handle.fileno()
        faults.meet(name, _of(number))
        return real(handle, *rest)

    return call


def _opened(
    faults: Faults,
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """``open``, whose writes are counted."""
    if not set(mode) & set("wax+"):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
    raw.faults = faults
    if buffering == 0:
        return raw
    whole: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    if "b" in mode:
        return whole
    return io.TextIOWrapper(whole, encoding, errors, newline, line_buffering=buffering == 1)


class _Raw(io.FileIO):
    faults: Faults

    def write(self, data: Any) -> Any:
        self.faults.meet("write", _of(self.fileno()))
        return super().write(data)


def _connection(faults: Faults) -> type[sqlite3.Connection]:
    class Connection(sqlite3.Connection):
        """A commit is failed before it writes its log, or before it flushes it."""

        seen = 0

        def commit(self) -> None:
            if self.in_transaction and self.total_changes != self.seen:
                self.seen = self.total_changes
                [path] = [row[2] for row in self.execute("PRAGMA database_list") if row[1] == "main"]
                for what, code in (("commit", _CODES[faults.number]), ("flush", sqlite3.SQLITE_IOERR_FSYNC)):
                    if faults.hits(what, os.path.realpath(path)):
                        error = sqlite3.OperationalError("disk I/O error")
                        error.sqlite_errorcode = code
                        raise error
            super().commit()

    return Connection


_CODES = {
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_IOERR_WRITE,
    errno.EIO: sqlite3.SQLITE_IOERR_WRITE,
    errno.EROFS: sqlite3.SQLITE_READONLY,
}


class _Vfs(ctypes.Structure):
    """``sqlite3_vfs`` of sqlite3.h, as far as the functions that set the system's own."""

    _fields_ = (
        *(("iVersion", ctypes.c_int), ("szOsFile", ctypes.c_int), ("mxPathname", ctypes.c_int)),
        *((name, ctypes.c_void_p) for name in ("pNext", "zName", "pAppData", "xOpen", "xDelete", "xAccess")),
        *((name, ctypes.c_void_p) for name in ("xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose")),
        *((name, ctypes.c_void_p) for name in ("xRandomness", "xSleep", "xCurrentTime", "xGetLastError")),
        ("xCurrentTimeInt64", ctypes.c_void_p),
        ("xSetSystemCall", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)),
        ("xGetSystemCall", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
    )


_SIZE, _OFFSET, _POINTER, _INT, _TEXT = ctypes.c_ssize_t, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_CALLS = {
    "open": (_INT, _TEXT, _INT, _INT),
    "pwrite": (_SIZE, _INT, _POINTER, ctypes.c_size_t, _OFFSET),
    "pwrite64": (_SIZE, _INT, _POINTER, ctypes.c_size_t, _OFFSET),
    "ftruncate": (_INT, _INT, _OFFSET),
    "unlink": (_INT, _TEXT),
}
"""System call SQLite makes by a table of its own -> result and arguments."""
_kept: list[Any] = []


def _hook_sqlite(faults: Faults) -> None:
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    for name, shape in _CALLS.items():
        real = vfs.contents.xGetSystemCall(vfs, name.encode())
        if real:
            kind = ctypes.CFUNCTYPE(*shape, use_errno=True)
            ours = kind(functools.partial(_called, faults, name, kind(real)))
            _kept.append(ours)
            assert vfs.contents.xSetSystemCall(vfs, name.encode(), ctypes.cast(ours, _POINTER)) == 0


def _called(faults: Faults, name: str, real: Callable[..., int], *arguments: Any) -> int:
    path = _of(arguments[0])
    # Pages and rollback journals are of a commit, which is named itself; a log is of all commits.
    of_commit = path.endswith(("-wal", "-journal")) or os.path.exists(f"{path}-journal")
    counts = bool(arguments[1] & _CREATES) and not path.endswith("-journal") if name == "open" else not of_commit
    if counts and faults.hits(f"sqlite-{name}", path):
        ctypes.set_errno(faults.number)
        return -1
    return real(*arguments)


def known(log: Path) -> list[str]:
    """The writes a run has met, in their order; the one that failed begins with ``FAILED``."""
    return log.read_text().splitlines() if log.exists() else []
