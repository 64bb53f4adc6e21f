"""Starts ``autotune`` by forking a process that has imported it: a study is begun again and again, and imports take
most of a start."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue

from tests.e2e import forked
from tests.support.node import TESTS

IMPORTED = ["autotune.cli.app", "autotune.cli.commands.start", "autotune.wiring", "autotune.proposals", "api.serving"]


@cache
def _begin_server() -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, __name__])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{TESTS / 'nvml'}{os.pathsep}{TESTS.parents[1]}"
    context.Process(target=int).start()  # the server begins with it, and keeps this path
    del os.environ["PYTHONPATH"]
    if before is not None:
        os.environ["PYTHONPATH"] = before


class Forked(forked.Forked):
    """A running ``autotune WORDS``; stderr goes to a file."""

    def __init__(self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], errors: Path) -> None:
        _begin_server()
        errors.write_text("")
        self.errors = errors
        super().__init__(partial(_run, errors), words, cwd, environment)

    def lines(self) -> Iterator[str]:
        """Of stdout; it is read however long the caller takes, because a full pipe would hold the program up."""
        read: SimpleQueue[str | None] = SimpleQueue()

        def reading() -> None:
            for line in self.stdout:
                read.put(line)
            read.put(None)

        threading.Thread(target=reading, daemon=True).start()
        return iter(read.get, None)


def _run(errors: Path, words: Sequence[str]) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    sys.path.insert(0, str(TESTS / "nvml"))
    forked.command(words)
