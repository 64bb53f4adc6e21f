"""The tuner program (``tests.e2e.tuner``) by forking a process that has imported it: imports take most of a start."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.e2e.tuner"])
    return context


class Forked:
    """``python -m tests.e2e.tuner WORDS``, running; has what the tests use of a ``subprocess.Popen``."""

    def __init__(self, words: Sequence[str]) -> None:
        context = _server()
        (out, their_out), (err, their_err) = (context.Pipe(duplex=False) for _ in range(2))
        self._process = context.Process(target=_run, args=(words, dict(os.environ), their_out, their_err))
        self._process.start()
        their_out.close()
        their_err.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(end.fileno()), errors="replace") for end in (out, err))
        self.pid = int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """The exit code; negative: the signal that ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("the tuner", timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left of stdout and stderr, once it has ended."""
        with ThreadPoolExecutor(2) as readers:  # a full pipe would hold the program up
            out, err = (readers.submit(stream.read) for stream in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # else the readers would wait for it
                raise
            return out.result(), err.result()


def _run(words: Sequence[str], environment: dict[str, str], out: Connection, err: Connection) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    from tests.e2e import tuner  # noqa: PLC0415

    sys.exit(tuner.begin(words))
