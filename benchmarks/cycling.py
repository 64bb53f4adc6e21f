"""A process that computes cycles of a fixed size and stores each: ``python -m benchmarks.cycling HOME SECONDS``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.writer import Write
from tests.support import factories

CYCLE = 10_000_000
"""Additions; some 0.3 s of one core."""


class Cycler:
    """Such a process; it has begun."""

    def __init__(self, home: Path, seconds: float) -> None:
        argv = [sys.executable, "-m", "benchmarks.cycling", str(home), str(seconds)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._process.stdout.readline()

    def wait(self) -> tuple[Write, ...]:
        """Until its time is over: when each cycle began, and how long it took, its storing included."""
        said, _ = self._process.communicate()
        return tuple((at, took) for at, took in json.loads(said))


def cycle(home: Path, seconds: float) -> list[Write]:
    """Computes for so long, as a trial of one thread does."""
    store: Any = open_store(read_settings({"AUTOTUNE_HOME": str(home)}).database)
    trial = store.add_trial(1, factories.draft(), time.time())
    store.start_attempt(1, trial.number, time.time())
    took: list[Write] = []
    print("cycling", flush=True)
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        sum(range(CYCLE))
        store.add_cycle(1, trial.number, 1, factories.cycle(len(took)))
        took.append((began, time.perf_counter() - began))
    store.close()
    return took


if __name__ == "__main__":
    print(json.dumps(cycle(Path(sys.argv[1]), float(sys.argv[2]))))
