"""Starts a rollout server for a trial or another command, polls it until it is ready, and watches it afterwards."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from autotune.errors import MachineError
from autotune.ports import Clock, ServerLaunch, StopToken
from autotune.running.ending import Stop, ended_by
from autotune.running.job import Graces
from autotune.running.launch import spawn
from autotune.running.log import CappedLog, read_tail
from autotune.running.process_tree import ProcessTree, become_subreaper
from trainer.child.contract import PhaseMark, RunPaths, StartupPart, StartupRecord, dumps

_ADDRESSES = (("127.0.0.1", "::ffff:127.0.0.1"), ("0.0.0.0",), ("::",))  # noqa: S104 - looked for, not bound
"""Addresses at which a connection to 127.0.0.1 arrives; the kernel takes the first that has a listener."""


def listeners(port: int) -> tuple[int | None, ...]:
    """Returns the ids of the processes that a connection to ``port`` may reach: several if they share it; ``None`` for
    one that may not be inspected."""
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    found = [(c.laddr.ip, c.pid) for c in listening if c.laddr and c.laddr.port == port]
    return next(filter(None, (tuple(pid for ip, pid in found if ip in kind) for kind in _ADDRESSES)), ())


def strangers_at(port: int, pids: Collection[int]) -> bool:
    """Tells whether a connection to ``port`` may reach a process that is not in ``pids``."""
    return any(pid not in pids for pid in listeners(port))


def is_free(port: int) -> bool:
    """Tells whether a server may bind ``port``: no socket of it is open or in TIME_WAIT."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


LOOPBACK = "127.0.0.1"


def free_ports(count: int, address: str = LOOPBACK) -> tuple[int, ...]:
    """Returns ``count`` different free ports of an address; another process may take one before it is used."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((address, 0))
        return tuple(int(each.getsockname()[1]) for each in sockets)


class ReadinessPoll(threading.Thread):
    """Polls the server's health address until it returns the expected answer.

    Polls in a separate thread, because an answer may take long.
    """

    def __init__(self, url: str, answer: str) -> None:
        super().__init__(name="server-health", daemon=True)
        self._url = url
        self._answer = answer.encode()
        self._done = threading.Event()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.ready = False

    def run(self) -> None:
        while not self._done.wait(0.25):
            if self._ask():
                self.ready = True
                return

    def _ask(self) -> bool:
        try:
            with self._opener.open(self._url, timeout=5.0) as answer:
                return answer.status == 200 and self._answer in answer.read(1 << 16)
        except (OSError, HTTPException, ValueError):  # not there yet, or not ours
            return False

    def finish(self) -> None:
        """Stops polling, without waiting for a pending answer."""
        self._done.set()


class RunningServer:
    """A running rollout server process."""

    def __init__(self, launch: ServerLaunch, paths: RunPaths, tag: str, clock: Clock) -> None:
        """Starts the server. Raises ``OSError`` if that fails."""
        self._launch, self._paths, self._clock = launch, paths, clock
        self._began = clock.monotonic()
        mark = PhaseMark(paths.phase)
        mark.set(StartupPart.SERVER.value)
        mark.close()
        self.child, self._pump = spawn(launch.argv, paths.scratch, tag, CappedLog(paths.server_log), launch.environment)
        self._health = ReadinessPoll(launch.health, launch.answer)
        self.greeted = False
        """True once the server was ready and its start-up time was recorded."""
        self._port = urlsplit(launch.health).port or 0
        self._displaced = False
        self._health.start()

    def greet(self, tree: ProcessTree) -> bool:
        """Records the server's start-up time as a part of the trial's; returns true once, when the server is ready.

        An answer at its port counts only if no process outside ``tree`` listens there, since most answers do not
        identify their server. A server that binds its port last (swift/pipelines/infer/rollout.py:1112,
        trl/scripts/vllm_serve.py:570) leaves it free for minutes, and several servers may share one port
        (``SO_REUSEPORT``, vllm/entrypoints/launchers/launcher.py:221).

        Raises:
            OSError: the record could not be written.
        """
        if self.greeted or self._displaced or not self._health.ready:
            return False
        self._displaced = strangers_at(self._port, {member.pid for member in tree.refresh()})
        if self._displaced:
            return False
        record = StartupRecord(StartupPart.SERVER, self._clock.monotonic() - self._began)
        with self._paths.metrics.open("ab") as stream:
            stream.write(dumps(record).encode() + b"\n")
        self.greeted = True
        return True

    def trouble(self) -> tuple[Stop, str] | None:
        """Returns the reason why the trial cannot continue; ``None`` if there is none."""
        code = self.child.poll()
        if code is not None:
            when = "in the middle of the trial" if self.greeted else "before it was ready"
            return Stop.SERVER, f"the rollout server {'was ' if code < 0 else ''}{ended_by(code)} {when}"
        if self._displaced:
            return Stop.DISPLACED, f"another process answers at port {self._port}, which the rollout server was to have"
        waited = self._clock.monotonic() - self._began
        if not self.greeted and waited >= self._launch.ready_s:
            return Stop.NOT_READY, f"the rollout server was not ready after {waited:.0f} s"
        return None

    def finish(self) -> str:
        """Releases the server after its processes have ended; returns the end of its log."""
        self._health.finish()
        self._pump.finish()
        return read_tail(self._paths.server_log)


@contextmanager
def server_beside(
    launch: ServerLaunch, folder: Path, tag: str, stop: StopToken, *, clock: Clock, graces: Graces | None = None
) -> Iterator[RunningServer]:
    """Yields the ready server and ends all of its processes after the block.

    If a stop is requested while the server starts, the block is entered; its command sees the stop too.

    Args:
        folder: for the log and the working directory.
        tag: tag of the processes, by which a later tuner finds them.

    Raises:
        MachineError: the server cannot start, ends, or is not ready in time; the message names its log.
    """
    become_subreaper()
    paths, limits = RunPaths(folder), graces or Graces()
    paths.scratch.mkdir(parents=True, exist_ok=True)
    try:
        server = RunningServer(launch, paths, tag, clock)
    except OSError as error:
        raise MachineError(f"the rollout server could not be started: {error}") from None
    tree = ProcessTree(lambda found: found == tag, server.child)
    try:
        while not server.greet(tree) and stop.level == 0:
            trouble = server.trouble()
            if trouble is not None:
                raise MachineError(f"{trouble[1]}; its output is in {paths.server_log}")
            clock.sleep(0.05)
        yield server
    finally:
        tree.kill(clock, limits.terminate_s, limits.kill_s)
        server.finish()
