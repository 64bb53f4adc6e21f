"""Starts ``autotune`` by forking a process that has imported it: a study is begun again and again, and imports take
most of a start."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from queue import SimpleQueue

from tests.support.node import TESTS

IMPORTED = ["autotune.cli.app", "autotune.cli.commands.start", "autotune.wiring", "autotune.proposals", "api.serving"]


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, __name__])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{TESTS / 'nvml'}{os.pathsep}{TESTS.parents[1]}"
    context.Process(target=int).start()  # the server begins with it, and keeps this path
    del os.environ["PYTHONPATH"]
    if before is not None:
        os.environ["PYTHONPATH"] = before
    return context


class Forked:
    """A running ``autotune WORDS``; stderr goes to a file."""

    def __init__(self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], errors: Path) -> None:
        context = _server()
        reading, writing = context.Pipe(duplex=False)
        errors.write_text("")
        self.errors = errors
        self._process = context.Process(target=_run, args=(words, cwd, dict(environment), writing, errors))
        self._process.start()
        writing.close()
        self.stdout = os.fdopen(os.dup(reading.fileno()), errors="replace")
        self.pid = int(self._process.pid or 0)

    def lines(self) -> Iterator[str]:
        """Of stdout; it is read however long the caller takes, because a full pipe would hold the program up."""
        read: SimpleQueue[str | None] = SimpleQueue()

        def reading() -> None:
            for line in self.stdout:
                read.put(line)
            read.put(None)

        threading.Thread(target=reading, daemon=True).start()
        return iter(read.get, None)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """The exit code; negative: the signal that ended it."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        assert code is not None, f"it has not ended in {timeout} s"
        return code


def _run(words: Sequence[str], cwd: Path, environment: Mapping[str, str], out: Connection, errors: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(cwd)
    os.dup2(out.fileno(), 1)
    out.close()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.path.insert(0, str(TESTS / "nvml"))
    sys.argv = ["autotune", *words]
    from autotune.cli.app import main  # noqa: PLC0415

    main()
