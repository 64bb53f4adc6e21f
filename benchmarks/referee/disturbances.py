"""Other programs that come and go while a study runs: busy loops, a compiler, a copy, by a seeded schedule.

``python -m benchmarks.referee.disturbances ACT FOLDER`` is one of these programs; it ends with whoever started it.
"""

from __future__ import annotations

import compileall
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

KINDS = ("none", "bursts", "compile", "copy", "mix")
SHORTEST_S, LONGEST_S = 5.0, 60.0
COPIED = 256 << 20
"""Bytes of the file that is copied."""
ACTS = {"bursts": (("busy",), ("busy", "busy")), "compile": (("compile",),), "copy": (("copy",),)}
"""What one burst of a kind is, each as likely: the programs that run at once."""

Burst = tuple[float, float, tuple[str, ...]]
"""Seconds of quiet, seconds of disturbance after them, and the programs."""


def schedule(kind: str, seed: int) -> Iterator[Burst]:
    """Yields bursts without end; nothing for ``none``."""
    chance = random.Random(f"{kind} {seed}")  # noqa: S311  (repeatable on purpose)
    acts = [act for some in ACTS.values() for act in some] if kind == "mix" else ACTS.get(kind, ())
    while acts:
        yield chance.uniform(SHORTEST_S, LONGEST_S), chance.uniform(SHORTEST_S, LONGEST_S), chance.choice(acts)


class Disturbances:
    """Runs a schedule from entering the block to leaving it; nothing is left running then."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self._schedule = schedule(kind, seed)
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disturbances", daemon=True)
        self.seconds = 0.0
        """Of disturbance so far."""

    def __enter__(self) -> Disturbances:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        for quiet_s, disturbed_s, acts in self._schedule:
            if self._over.wait(quiet_s):
                return
            began = time.monotonic()
            programs = [self._begin(act) for act in acts]
            self._over.wait(disturbed_s)
            for program in programs:
                program.kill()
                program.wait()
            self.seconds += time.monotonic() - began

    def _begin(self, act: str) -> subprocess.Popen[bytes]:
        argv = (sys.executable, "-m", "benchmarks.referee.disturbances", act, str(self._folder))
        return subprocess.Popen(argv, cwd=Path(__file__).resolve().parents[2], stdin=subprocess.DEVNULL)


def keep_busy(_: Path) -> None:
    """Keeps one CPU busy for a moment."""
    ends = time.monotonic() + 0.1
    while time.monotonic() < ends:
        pass


def compile_once(folder: Path) -> None:
    """Compiles a few packages of the standard library once."""
    sources = folder / "sources"
    if not sources.exists():
        shutil.copytree(Path(json.__file__).parents[1] / "asyncio", sources)
    compileall.compile_dir(sources, quiet=2, force=True)


def copy_once(folder: Path) -> None:
    """Copies a file onto the disk once."""
    first, second = folder / "first", folder / "second"
    if not first.exists():
        first.write_bytes(os.urandom(1 << 20) * (COPIED >> 20))
    with second.open("wb") as target, first.open("rb") as source:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())


PROGRAMS: dict[str, Callable[[Path], None]] = {"busy": keep_busy, "compile": compile_once, "copy": copy_once}


def main(act: str, folder: str) -> None:
    """Repeats one program until the process that started this one is gone."""
    parent, place = os.getppid(), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    while os.getppid() == parent:
        PROGRAMS[act](place)


if __name__ == "__main__":
    main(*sys.argv[1:3])
