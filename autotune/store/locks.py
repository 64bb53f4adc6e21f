"""File locks that allow one tuner per study and end with their process."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from autotune.errors import StoreError, StudyBusyError

_NAMING_S = 0.5
"""Seconds in which a new holder writes its name. A process that only tests the lock writes none."""
BEAT_S = 10.0
"""Interval, in seconds, at which a holder touches its file."""
SILENT_S = 45.0
"""Seconds without a touch after which a holder on another machine counts as dead."""
LOOK_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """Process that runs a study."""

    host: str
    pid: int
    since: float
    """Time at which the process took the lock, in UTC seconds since the epoch."""

    @staticmethod
    def this() -> Holder:
        """Returns this process as a holder."""
        return Holder(socket.gethostname(), os.getpid(), time.time())

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"process {self.pid} on {self.host} since {when}"


def busy(name: str, holder: Holder | None) -> StudyBusyError:
    """Builds the error for a study that another process runs; names the holder if it is known."""
    who = str(holder) if holder is not None else "another process"
    return StudyBusyError(f"study {name!r} is being run by {who}; stop that one or wait until it has ended")


class FileStudyLock:
    """The operating system's lock on ``<base>.lock``; ``<base>.holder`` names the process that has it, which touches
    that file at intervals.

    A file server may keep the lock of a dead machine, or give one lock to two machines. So a holder on another machine
    keeps the study exactly as long as it touches its file.
    """

    def __init__(self, base: Path, name: str, locks: list[FileStudyLock] | None = None) -> None:
        self._holder = base.with_name(base.name + ".holder")
        self._path = base.with_name(base.name + ".lock")
        self._name = name
        self._lock: FileLock | None = None
        self._held = [] if locks is None else locks
        self._mine: Holder | None = None
        self._over = threading.Event()

    def __enter__(self) -> FileStudyLock:
        self._lock = self._acquired()
        self._mine = Holder.this()
        with suppress(OSError):
            self._holder.write_text(json.dumps(asdict(self._mine)) + "\n", encoding="ascii")
        self._held.append(self)
        self._over.clear()
        threading.Thread(target=self._live, daemon=True, name="autotune-lock").start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._lock is not None:
            self._over.set()
            self._held.remove(self)
            if self._read() in (self._mine, None):
                with suppress(OSError):
                    self._holder.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def check(self) -> None:
        """Raises ``StudyBusyError`` if another tuner considered this process dead and now has the study."""
        holder = self._read()
        if holder not in (self._mine, None):
            raise busy(self._name, holder)

    def _acquired(self) -> FileLock:
        # A new one each time: a FileLock lets its own holder in again, and a second tuner may be a thread of this one.
        lock, took, waits = FileLock(self._path, timeout=0, thread_local=False), False, False
        named = time.monotonic() + _NAMING_S
        silent, beat = time.monotonic() + SILENT_S, self._beat()
        while True:
            took = took or self._took(lock)
            holder, now = self._read(), time.monotonic()
            elsewhere = holder is not None and holder.host != socket.gethostname()
            if took and (not elsewhere or now >= silent):
                return lock
            if holder is None and now < named:
                time.sleep(0.02)
                continue
            if not elsewhere or self._beat() != beat:
                if took:  # such a lock holds on one machine only
                    lock.release()
                raise busy(self._name, holder)
            if now >= silent:
                with suppress(FileNotFoundError):
                    self._path.unlink()
                lock = FileLock(self._path, timeout=0, thread_local=False)
                continue
            if not waits:
                waits = True
                _log.warning("waiting up to %.0f s to see whether %s still runs study %r", SILENT_S, holder, self._name)
            time.sleep(min(LOOK_S, silent - now))

    def _live(self) -> None:
        while not self._over.wait(BEAT_S):
            with suppress(OSError):
                if self._read() == self._mine:
                    os.utime(self._holder)

    def _beat(self) -> tuple[int, int] | None:
        """Returns the time and inode of the holder's file, which change at every touch."""
        try:
            found = os.stat(self._holder)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def is_held(self) -> bool:
        """Tests the lock with a shared lock for an instant. A tuner that starts in this instant finds no holder and
        tries again (``__enter__``)."""
        try:
            file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:  # this file system knows no such locks, and the library makes do with a file
            return self._read() is not None
        finally:
            os.close(file)
        return False

    def _took(self, lock: FileLock) -> bool:
        try:
            lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def _unusable(self, error: OSError) -> StoreError:
        return StoreError(f"study {self._name!r} cannot be locked: {self._path}: {error.strerror}")

    def _read(self) -> Holder | None:
        """Reads the holder, if it is alive; a dead process may have left its name behind."""
        try:
            holder = Holder(**json.loads(self._holder.read_text(encoding="ascii")))
            elsewhere = holder.host != socket.gethostname()
            return holder if elsewhere or psutil.pid_exists(holder.pid) else None
        except (OSError, ValueError, TypeError):
            return None


class LocalStudyLock:
    """Lock of a study in a database that no other process can reach.

    Args:
        holders: study id -> holder; shared by all locks of the database.
    """

    def __init__(self, holders: dict[int, Holder], study_id: int, name: str) -> None:
        self._held, self._study_id, self._name = holders, study_id, name
        self._mine: Holder | None = None

    def __enter__(self) -> LocalStudyLock:
        mine = Holder.this()
        if (holder := self._held.setdefault(self._study_id, mine)) is not mine:  # one step, whatever other threads do
            raise busy(self._name, holder)
        self._mine = mine
        return self

    def __exit__(self, *details: object) -> None:
        if self._mine is not None:
            self._mine = None
            self._held.pop(self._study_id, None)

    def is_held(self) -> bool:
        return self._study_id in self._held
