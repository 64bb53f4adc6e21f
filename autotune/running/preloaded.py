"""Forks trials from a process that has already imported the framework (``preload`` of the child's ``start.py``).

A preloaded process serves a trial only if both have the same environment and imports. Otherwise the trial is started
the ordinary way.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from autotune.machine.lanes import CPUS_VARIABLE
from autotune.ports import StopToken
from autotune.running import proc
from autotune.running.launch import Spawn, child_environment, spawn
from autotune.running.log import CappedLog, LogPump
from autotune.running.process_tree import Child
from trainer.child.contract import TAG_VARIABLE, write_atomic

TAG_ROOM = 96
"""Characters reserved for the tag of a preloaded process: a forked process writes its own tag over it."""
LOOK_S = 0.25
GONE_S = 2.0
"""Most seconds for a preloaded process to report the end of a forked one."""
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
        """Receives the preloaded process, the fork's id, and ``others``, which map the same files."""
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

        Adding the bytes makes a forked trial count as much as one that imported everything itself.
        """
        shared = sum(proc.read_share(other.pid, origin=False) for other in self._others if other.alive)
        return shared + (proc.read_share(self._preload.pid, origin=True) if self._preload.alive else 0)

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
        """Returns the exit code by ``waitpid``: when a preloaded process ends, this process adopts its children."""
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


COMMANDS = ("trial", "worker")
MOST, MANY = 2, 4
"""Most preloaded processes at a time: with and without vLLM; with ``ROOM``, also another allocator or a compiler."""
ROOM = 16 << 30
"""Bytes of the machine's memory from which ``MANY`` applies: one process takes 0.5 GiB, 0.7 with vLLM (PSS, measured;
decision 24)."""


@dataclass(frozen=True)
class PreloadTimeouts:
    """Time limits of requests to a preloaded process, in seconds."""

    ready_s: float = 180.0
    """Limit of the imports, as long as they may take in a trial."""
    answer_s: float = 10.0
    """Limit of a fork."""
    look_s: float = 0.05


def most_alive(memory: int | None) -> int:
    """Returns the most preloaded processes on a machine with ``memory`` bytes; ``None``: unknown."""
    return MANY if memory is not None and memory >= ROOM else MOST


class Preloads:
    """Replacement for ``spawn.spawn`` that forks from preloaded processes. Only one thread may use it at a time."""

    def __init__(
        self, patience: PreloadTimeouts | None = None, most: int = MOST, tries: int = 3, refusals: Path | None = None
    ) -> None:
        """Receives ``tries``: the number of preloaded processes that may fail before no more is started; and
        ``refusals``: the file in which tuners of the same software record imports that cannot be shared."""
        self._patience = patience or PreloadTimeouts()
        self._most = most
        self._left = tries
        self._alive: list[Preload] = []
        """Preloaded processes, the last used one last."""
        self._notes: list[str] = []
        self._refusals = refusals
        self._unfit = {} if refusals is None else _refused(refusals)
        """Reasons why imports cannot be shared, by ``kind_of`` them."""
        self._finalizer = weakref.finalize(self, _end_all, self._alive)

    def close(self) -> None:
        """Ends all preloaded processes; a later trial starts one again."""
        _end_all(self._alive)

    def take_notes(self) -> tuple[str, ...]:
        """Returns and clears the reasons why trials were started instead of forked."""
        notes, self._notes = tuple(self._notes), []
        return notes

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the living preloaded processes."""
        return tuple(preload.pid for preload in self._alive if preload.alive)

    def starter(self, stop: StopToken) -> Spawn:
        """Returns ``spawn`` with a stop token, on which it ends its wait for imports."""
        return functools.partial(self.spawn, stop=stop)

    def spawn(
        self,
        argv: Sequence[str],
        cwd: Path,
        tag: str,
        log: CappedLog,
        environment: Mapping[str, str],
        stop: StopToken | None = None,
    ) -> tuple[Child, LogPump]:
        """Starts a process as ``spawn.spawn`` does, but forks the process if the result is the same.

        Args:
            stop: level 2 ends the wait for imports; the process is then started the ordinary way.
        """
        asked = time.monotonic()
        try:
            if (forked := self._forked(argv, cwd, tag, log, environment, stop, asked)) is not None:
                return forked
        except (PreloadError, OSError) as error:
            why = f"not forked from a preloaded process, but started: {error}"
            self._notes.append(why)
            log.write(f"autotune: {why}\n".encode())
        if not environment.get("CUDA_VISIBLE_DEVICES"):
            self.close()  # its mapped files count against the host memory that the trial has
        return spawn(argv, cwd, tag, log, environment)

    def _forked(
        self,
        argv: Sequence[str],
        cwd: Path,
        tag: str,
        log: CappedLog,
        environment: Mapping[str, str],
        stop: StopToken | None,
        since: float,
    ) -> tuple[Child, LogPump] | None:
        if len(argv) != 5 or argv[2] not in COMMANDS or argv[3] != "--directory":
            return None
        whole = {**child_environment(os.environ, tag), **environment}
        request = {"command": argv[2], "directory": argv[4], "cwd": str(cwd), "tag": tag, "asked": since}
        key = environment_key(argv[0], argv[1], whole)
        for preload in [p for p in reversed(self._alive) if p.key == key]:
            if (child := self._fork(preload, request, log)) is not None:
                return child
        if self._left <= 0:
            return None
        first = self._started(argv, whole, tag, stop)
        if first is None:
            return None
        child = self._fork(first, request, log)
        if child is None:
            self._left -= 1
            self._drop(first)
            raise PreloadError("the preloaded process refused the trial it was started for")
        return child

    def _started(
        self, argv: Sequence[str], environment: Mapping[str, str], tag: str, stop: StopToken | None
    ) -> Preload | None:
        """Returns a new, ready preloaded process; ``None`` if the user stops. Raises ``PreloadError``, ``OSError``."""
        self._make_room()
        preload = Preload(argv[0], argv[1], argv[4], environment, preload_tag(tag))
        self._alive.append(preload)
        try:
            kind, answer = self._answered(preload, stop)
        except PreloadError:
            self._left -= 1
            self._drop(preload)
            raise
        if answer is not None and "ready" in answer:
            return preload
        self._drop(preload)
        if answer is None:
            return None
        why = str(answer.get("unfit", answer))
        if kind not in self._unfit or not kind:
            self._left -= 1
            self._unfit[kind] = why
            with contextlib.suppress(OSError):
                if self._refusals is not None:
                    write_atomic(self._refusals, json.dumps(self._unfit))
        raise PreloadError(f"the imports cannot be shared: {why}")

    def _answered(self, preload: Preload, stop: StopToken | None) -> tuple[str, Mapping[str, object] | None]:
        """Returns ``kind_of`` the imports, and the process's answer after them; no answer if the user stops meanwhile.

        Refuses at once a kind that could not be shared before: imports take long. Raises ``PreloadError``.
        """
        left, kind = self._patience.ready_s, ""
        while True:
            answer = preload.answer(self._patience.look_s)
            if answer is not None and "begins" not in answer:
                return kind, answer
            if answer is not None:
                kind = kind_of(preload.key, answer["begins"])
                if kind in self._unfit:
                    return kind, {"unfit": self._unfit[kind]}
                continue
            if stop is not None and stop.level >= 2:
                return kind, None
            left -= self._patience.look_s
            if left <= 0:
                raise PreloadError(f"the preloaded process was not ready after {self._patience.ready_s:.0f} s")

    def _fork(self, preload: Preload, request: Mapping[str, object], log: CappedLog) -> tuple[Child, LogPump] | None:
        """Returns the forked process; ``None`` if it is refused. Raises ``OSError`` and ``PreloadError``."""
        output, input_ = os.pipe()
        go_out, go_in = os.pipe()
        others = [p for p in self._alive if p is not preload and p.alive]
        try:
            preload.ask({"fork": {**request, "others": [p.pid for p in others]}}, (input_, go_out))
            answer = preload.answer(self._patience.answer_s)
            if answer is None:
                raise PreloadError(f"the preloaded process did not answer within {self._patience.answer_s:.0f} s")
            if "pid" not in answer:
                os.close(output)
                return None
            child = Forked(preload, int(answer["pid"]), others)
            os.write(go_in, b"x")
        except (PreloadError, OSError) as error:
            os.close(output)
            self._left -= 1
            self._drop(preload)
            raise PreloadError(str(error)) from error
        finally:
            for handle in (input_, go_out, go_in):
                os.close(handle)
        self._alive.sort(key=lambda p: p is preload)
        pump = LogPump(output, log)
        pump.start()
        return child, pump

    def _make_room(self) -> None:
        for preload in [p for p in self._alive if not p.alive]:
            self._drop(preload)
        while len(self._alive) >= self._most:
            preload = self._alive.pop(0)
            preload.end()

    def _drop(self, preload: Preload) -> None:
        preload.kill()
        if preload in self._alive:
            self._alive.remove(preload)


def preload_tag(tag: str) -> str:
    """Returns the tag of the preloaded process for trials with tags like ``tag``; a sweep of the study finds it too."""
    return f"{tag.rsplit(':', 2)[0]}:preload"


def kind_of(process: tuple[Any, ...], imports: object) -> str:
    """Returns a short hash of a process's environment and imports, the same for all CPU sets and GPUs."""
    *program, variables = process
    own = [pair for pair in variables if pair[0] not in (CPUS_VARIABLE, "CUDA_VISIBLE_DEVICES")]
    return hashlib.sha256(repr((program, own, imports)).encode()).hexdigest()[:16]


def _refused(file: Path) -> dict[str, str]:
    """Returns the refusals of other tuners in the last day; older ones expire, because some happen by chance."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        if time.time() - file.stat().st_mtime < 86_400:
            return dict(json.loads(file.read_text(encoding="utf-8")))
    return {}


def _end_all(alive: list[Preload]) -> None:
    while alive:
        alive.pop().end()
