"""A process that writes to a study as a running tuner does: ``python -m benchmarks.api.writer HOME SECONDS [RATE]``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.domain import Outcome, TrialState
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.api.load import quantile
from tests.support import factories

WRITES_A_SECOND = 20.0
"""A tuner writes its spending once a second, and of each cycle a few records."""
LARGE_EVENT = 8000
"""Characters of one event a second, so that who takes nothing of a stream is noticed within the run."""

Write = tuple[float, float]
"""When it began, by the clock all processes share (``time.perf_counter``), and how long it took; seconds."""


@dataclass(frozen=True)
class Written:
    """What a writer did."""

    writes: tuple[Write, ...]

    def figures(self) -> dict[str, float]:
        """Seconds a write took, apart from the pauses between them."""
        took = [seconds for _, seconds in self.writes]
        return {"mean": statistics.fmean(took), "p95": quantile(took, 0.95), "writes": float(len(took))}


class Writer:
    """Such a process. It has begun: what its imports take from the machine is no part of any measurement."""

    def __init__(self, home: Path, seconds: float, rate: float = WRITES_A_SECOND) -> None:
        argv = [sys.executable, "-m", "benchmarks.api.writer", str(home), str(seconds), str(rate)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._process.stdout.readline()

    def wait(self) -> Written:
        """Until its time is over."""
        said, _ = self._process.communicate()
        return Written(tuple((at, took) for at, took in json.loads(said)))


def write(home: Path, seconds: float, rate: float = WRITES_A_SECOND) -> list[Write]:
    """Writes for so long, ``rate`` times a second."""
    settings = read_settings({"AUTOTUNE_HOME": str(home)})
    store: Any = open_store(settings.database)
    session = store.open_session(1, time.time())
    writes: list[Write] = []
    print("writing", flush=True)
    began = time.perf_counter()
    number, cycle = -1, 0
    while (elapsed := time.perf_counter() - began) < seconds:
        turn = len(writes)
        before = time.perf_counter()
        if turn % 40 == 0:
            if number >= 0:
                store.finish_trial(1, number, TrialState.COMPLETE, Outcome(), time.time(), 9.0, 1)
            draft = factories.draft(configuration=factories.numbered(10**6 + turn + int(began)))
            number, cycle = store.add_trial(1, draft, time.time()).number, 0
            store.start_attempt(1, number, time.time())
        elif turn % 4 == 0:
            store.add_cycle(1, number, 1, factories.cycle(cycle))
            cycle += 1
        elif turn % 4 == 1:
            text = "x" * LARGE_EVENT if turn % WRITES_A_SECOND == 1 else "something happened"
            store.add_event(1, factories.event(message=text, trial=number))
        else:
            store.spend(session, elapsed, 0.0, time.time())
        writes.append((before, time.perf_counter() - before))
        time.sleep(max(0.0, began + len(writes) / rate - time.perf_counter()))
    store.close()
    return writes


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]), *map(float, sys.argv[2:]))))
