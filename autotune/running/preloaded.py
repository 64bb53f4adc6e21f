"""Forks trials from a process that has already imported the framework (``preload`` of the child's ``start.py``).

A preloaded process serves a trial only if both have the same environment and imports. Otherwise the trial is started
the ordinary way.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from autotune.running import proc
from trainer.child.contract import TAG_VARIABLE

TAG_ROOM = 96
"""Characters reserved for the tag of a preloaded process: a forked process writes its own tag over it."""
LOOK_S = 0.25
GONE_S = 2.0
"""Seconds for a preloaded process to report the end of a forked one."""
UNKNOWN = 255
"""Exit code of a process whose exit status cannot be read."""


class PreloadError(Exception):
    """Raised if a preloaded process has ended, does not answer, or cannot be forked; the message names the case."""


class Preload:
    """One preloaded process."""

    def __init__(self, python: str, start: str, directory: str, environment: Mapping[str, str], tag: str) -> None:
        """Starts the process, which imports the modules for the trial in ``directory``. Raises ``OSError``."""
        self.key = environment_key(python, start, environment)
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        self._answers: list[dict[str, Any]] = []
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        try:
            self.process = subprocess.Popen(
                (python, start, "preload", "--directory", directory), cwd="/", start_new_session=True,
                env={**environment, TAG_VARIABLE: tag.ljust(TAG_ROOM, ".")}, stdin=theirs.fileno(),
                stdout=self._errors, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError:
            ours.close()
            self._errors.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Process id of the preloaded process itself."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """True while the process answers requests."""
        return self._channel.fileno() >= 0 and self.process.poll() is None

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Returns the next message of the process; ``None`` if none arrives within ``seconds``.

        Raises:
            PreloadError: the process has ended.
        """
        left = seconds  # by what was waited for, not by the clock: both may have been stopped meanwhile
        with self._lock:
            while not self._answers:
                if self._receive(max(0.0, min(left, LOOK_S))):
                    continue
                if self._channel.fileno() < 0:
                    raise PreloadError(f"the preloaded process is gone; it said: {self._last_words()}")
                if left <= 0:
                    return None
                left -= LOOK_S
            return dict(self._answers.pop(0))

    def ask(self, message: Mapping[str, Any], handles: tuple[int, ...] = ()) -> None:
        """Sends a request. Raises ``PreloadError`` if the process has ended."""
        try:
            socket.send_fds(self._channel, [json.dumps(message).encode()], list(handles), socket.MSG_DONTWAIT)
        except OSError as error:
            raise PreloadError(f"the preloaded process cannot be asked: {error}") from error

    def code_of(self, pid: int, seconds: float = 0.0) -> int | None:
        """Returns the exit code of a forked process; ``None`` if it does not arrive within ``seconds``."""
        end = time.monotonic() + seconds
        with self._lock:
            while pid not in self._ended and self._receive(max(0.0, end - time.monotonic())):
                pass
            return self._ended.get(pid)

    def kill(self) -> None:
        """Kills the process at once. Its forked children become children of this process, a subreaper."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        with self._lock:
            while self._receive(0.0):  # what it had told before
                pass
            self._close()

    def end(self, seconds: float = 2.0) -> None:
        """Ends the process; its forked children continue."""
        with contextlib.suppress(PreloadError, subprocess.TimeoutExpired):
            self.ask({"end": True})
            self.process.wait(seconds)
        self.kill()

    def _receive(self, seconds: float) -> bool:
        """Receives one message; returns false if none came or the channel is closed."""
        if self._channel.fileno() < 0:
            return False
        try:
            self._channel.settimeout(seconds)
            data = self._channel.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            data = b""
        if not data:
            self._close()
            return False
        message = json.loads(data)
        if "ended" in message:
            self._ended[int(message["ended"])] = int(message["code"])
        else:
            self._answers.append(message)
        return True

    def _close(self) -> None:
        self._channel.close()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read()[-2000:].decode("utf-8", "replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "nothing")
        return "nothing"


class Forked:
    """Process of a trial forked from a preloaded one, with the interface of ``Popen``."""

    def __init__(self, preload: Preload, pid: int, others: Sequence[Preload] = ()) -> None:
        """Takes the preloaded process, the fork's id, and ``others``, which map the same files."""
        self.pid = pid
        self.returncode: int | None = None
        self._preload, self._others = preload, tuple(others)
        self._lock = threading.Lock()
        stat = proc.read_stat(pid)
        self._started = stat.started if stat is not None else None

    def poll(self) -> int | None:
        """Returns the exit code; ``None`` while the process runs. Thread-safe."""
        with self._lock:
            if self.returncode is None:
                self.returncode = self._look()
            return self.returncode

    def shared_bytes(self) -> int:
        """Returns the bytes of pages shared with preloaded processes, which the kernel counts as theirs.

        With these bytes a forked trial counts as much as one that imported everything itself.
        """
        shared = sum(proc.read_share(other.pid, origin=False) for other in self._others if other.alive)
        return shared + (proc.read_share(self._preload.pid, origin=True) if self._preload.alive else 0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code. Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and timeout is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code

    def _look(self) -> int | None:
        code = self._preload.code_of(self.pid)
        if code is not None:
            return code
        if not self._preload.alive:
            return self._inherited()
        stat = proc.read_stat(self.pid)
        if stat is not None and stat.started == self._started and not stat.ended:
            return None
        if (code := self._preload.code_of(self.pid, GONE_S)) is not None:
            return code
        self._preload.kill()  # it does not take the exit status of its own child: then we do
        return self._inherited()

    def _inherited(self) -> int | None:
        """Returns the exit code by ``waitpid``: when a preloaded process ends, its children become this process's."""
        if (code := self._preload.code_of(self.pid)) is not None:
            return code
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            stat = proc.read_stat(self.pid)
            running = stat is not None and stat.started == self._started and not stat.ended
            return None if running else UNKNOWN
        return os.waitstatus_to_exitcode(status) if pid else None


def environment_key(python: str, start: str, environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Returns a key that is equal for processes started with the same environment, apart from the tag."""
    return python, start, tuple(sorted((n, v) for n, v in environment.items() if n != TAG_VARIABLE))
