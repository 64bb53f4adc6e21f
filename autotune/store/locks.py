"""One tuner per study: locks that end with the process that holds them."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from autotune.errors import StoreError, StudyBusyError
from autotune.ports import StudyLock

__all__ = ["FileStudyLock", "LocalLocks", "busy"]


def busy(name: str, pid: int | None) -> StudyBusyError:
    """The error that names the holder, if it is known."""
    who = f"process {pid}" if pid is not None else "another process"
    return StudyBusyError(f"study {name!r} is being run by {who}; stop that one or wait until it has ended")


class FileStudyLock:
    """The operating system's lock on ``<base>.lock``; ``<base>.holder`` says which process has it."""

    def __init__(self, base: Path, name: str) -> None:
        self._holder = base.with_name(base.name + ".holder")
        self._path = base.with_name(base.name + ".lock")
        self._name = name
        self._lock: FileLock | None = None

    def __enter__(self) -> FileStudyLock:
        # A new one each time: a FileLock lets its own holder in again, and a second tuner may be a thread of this one.
        lock = FileLock(self._path, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise busy(self._name, self._pid()) from None
        except OSError as error:
            raise StoreError(f"study {self._name!r} cannot be locked: {self._path}: {error.strerror}") from error
        self._lock = lock
        with suppress(OSError):
            self._holder.write_text(f"{os.getpid()}\n", encoding="ascii")
        return self

    def __exit__(self, *details: object) -> None:
        if self._lock is not None:
            with suppress(OSError):
                self._holder.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def _pid(self) -> int | None:
        """Of a holder that lives: one that has died may have left its number, and the next not yet written its own."""
        try:
            pid = int(self._holder.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if psutil.pid_exists(pid) else None


class LocalLocks:
    """Locks for a database no other process can reach."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._guard = threading.Lock()

    def lock(self, study_id: int, name: str) -> StudyLock:
        return _LocalStudyLock(self, study_id, name)

    def take(self, study_id: int) -> bool:
        """Whether it was free."""
        with self._guard:
            free = study_id not in self._held
            self._held.add(study_id)
            return free

    def free(self, study_id: int) -> None:
        with self._guard:
            self._held.discard(study_id)


class _LocalStudyLock:
    def __init__(self, locks: LocalLocks, study_id: int, name: str) -> None:
        self._locks = locks
        self._study_id = study_id
        self._name = name
        self._mine = False

    def __enter__(self) -> _LocalStudyLock:
        if not self._locks.take(self._study_id):
            raise busy(self._name, os.getpid())
        self._mine = True
        return self

    def __exit__(self, *details: object) -> None:
        if self._mine:
            self._mine = False
            self._locks.free(self._study_id)
