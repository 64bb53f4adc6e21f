"""Programs by forking a process that has imported them, as imports take most of a start: the tuner program of
``tests.e2e.tuner``, and the ``autotune`` command."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from autotune.cli.app import main
from tests.e2e import tuner

ROOT = Path(__file__).parents[2]
IMPORTED_LATE = ("api.app", "api.listening", "api.server", "autotune.cli.commands.start", "uvicorn.lifespan.off")
"""By the command, when it runs."""


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *IMPORTED_LATE])
    return context


class Forked:
    """A running program; has what the tests use of a ``subprocess.Popen``."""

    def __init__(
        self,
        program: Callable[[Sequence[str]], object],
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
    ) -> None:
        context = _server()
        (out, their_out), (err, their_err) = (context.Pipe(duplex=False) for _ in range(2))
        given = (program, words, cwd, dict(environment), their_out, their_err)
        self._process = context.Process(target=_run, args=given, daemon=True)  # ended with the tests, if one fails
        self._process.start()
        their_out.close()
        their_err.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(end.fileno()), errors="replace") for end in (out, err))
        self.pid = int(self._process.pid or 0)

    @classmethod
    def tuner(cls, words: Sequence[str]) -> Forked:
        """``python -m tests.e2e.tuner WORDS``."""
        return cls(tuner.begin, words, ROOT, os.environ)

    @classmethod
    def command(cls, words: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Forked:
        """``autotune WORDS``."""
        return cls(command, words, cwd, environment)

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


def command(words: Sequence[str]) -> None:
    sys.argv = ["autotune", *words]
    main()


def _run(
    program: Callable[[Sequence[str]], object],
    words: Sequence[str],
    cwd: Path,
    environment: dict[str, str],
    out: Connection,
    err: Connection,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(cwd)
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.exit(program(words))
