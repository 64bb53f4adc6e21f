"""Starts a rollout server beside a trial or another command, polls it until it is ready, and watches it afterwards."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from autotune.errors import MachineError
from autotune.ports import Clock, ServerLaunch, StopToken
from autotune.running.ending import Stop, ended_by
from autotune.running.job import Graces
from autotune.running.log import CappedLog, read_tail
from autotune.running.process_tree import ProcessTree, become_subreaper
from autotune.running.sockets import strangers_at
from autotune.running.spawn import spawn
from trainer.child.contract import PhaseMark, RunPaths, StartupPart, StartupRecord, dumps

LOOPBACK = "127.0.0.1"
ASK_S = 0.25
ANSWER_S = 5.0
MOST = 1 << 16
"""Bytes of an answer that are looked at."""


def free_ports(count: int, address: str = LOOPBACK) -> tuple[int, ...]:
    """Different ports of an address on which nothing listens; another process may take one before it is used."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((address, 0))
        return tuple(int(each.getsockname()[1]) for each in sockets)


class ReadinessPoll(threading.Thread):
    """Polls the server's health address until it returns the expected answer.

    A thread of its own, because an answer may be long in coming.
    """

    def __init__(self, url: str, answer: str) -> None:
        super().__init__(name="server-health", daemon=True)
        self._url = url
        self._answer = answer.encode()
        self._done = threading.Event()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.ready = False

    def run(self) -> None:
        while not self._done.wait(ASK_S):
            if self._ask():
                self.ready = True
                return

    def _ask(self) -> bool:
        try:
            with self._opener.open(self._url, timeout=ANSWER_S) as answer:
                return answer.status == 200 and self._answer in answer.read(MOST)
        except (OSError, HTTPException, ValueError):  # not there yet, or not ours
            return False

    def finish(self) -> None:
        """Stops polling, without waiting for a pending answer."""
        self._done.set()


class RunningServer:
    """A rollout server process while it runs."""

    def __init__(self, launch: ServerLaunch, paths: RunPaths, tag: str, clock: Clock) -> None:
        """Starts it.

        Raises:
            OSError: it could not be started.
        """
        self._launch, self._paths, self._clock = launch, paths, clock
        self._began = clock.monotonic()
        mark = PhaseMark(paths.phase)
        mark.set(StartupPart.SERVER.value)
        mark.close()
        self.child, self._pump = spawn(launch.argv, paths.scratch, tag, CappedLog(paths.server_log), launch.environment)
        self._health = ReadinessPoll(launch.health, launch.answer)
        self.greeted = False
        """It was ready, and the trial was told."""
        self._port = urlsplit(launch.health).port or 0
        self._displaced = False
        self._health.start()

    def greet(self, tree: ProcessTree) -> bool:
        """Records the server's start-up time as a part of the trial's start-up; true once, when the server is ready.

        An answer at its port is the server's if only processes of ``tree`` listen there. Most servers' answers do not
        say whose they are. A server that takes its port last of all (swift/pipelines/infer/rollout.py:1112,
        trl/scripts/vllm_serve.py:570) leaves it to others for minutes, and several servers may share one
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
        """Why the trial cannot go on, or ``None``."""
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


STEP_S = 0.05


@contextmanager
def server_beside(
    launch: ServerLaunch, folder: Path, tag: str, stop: StopToken, *, clock: Clock, graces: Graces | None = None
) -> Iterator[RunningServer]:
    """The server, ready, for the block's time; none of its processes is left, however the block ends.

    A stop that is asked for while the server starts enters the block, whose command is told of it too.

    Args:
        folder: for its log and its working directory.
        tag: of its processes, by which a later tuner finds them.

    Raises:
        MachineError: it cannot be started, or ends, or is not ready in time; a sentence with its log's place.
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
            clock.sleep(STEP_S)
        yield server
    finally:
        tree.kill(clock, limits.terminate_s, limits.kill_s)
        server.finish()
