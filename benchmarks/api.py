"""What the REST API costs and how fast it is: ``python -m benchmarks.api [--trials 10000] [--seconds 60] ...``.

A study of many made-up trials in a SQLite file, ``autotune serve`` on it, and a process that writes to it as a running
study does. First it writes alone, then beside the server with 200 clients (one request a second each, open loop: half
of them a recommendation query, half a page of trials) and 50 listeners, one more of which takes nothing of its stream.
Then the clients ask as fast as they are answered, and at last it writes alone again: a machine that has become slower
meanwhile is not put down to the readers. Readers, server and writer share the machine's cores; nothing is
measured on a machine that does anything else at the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.domain import Outcome, TrialState
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.load import Heard, Seen, closed_loop, hang, listen, open_loop, quantile
from benchmarks.many_trials import fill
from tests import factories

PATHS = {
    "recommendation": "/api/v1/recommendations?model=small&gpu=cpu&framework=trl",
    "trials page": "/api/v1/studies/1/trials?limit=100",
}
STREAM = "/api/v1/studies/1/events/stream"
WRITES_A_SECOND = 20.0
LARGE_EVENT = 8000
"""Characters of one event a second, so that who takes nothing of a stream is noticed within the run."""
TARGET_P99_S = 0.05
TARGET_SLOWER = 0.05


@dataclass(frozen=True)
class Asked:
    """What is to be measured."""

    trials: int
    seconds: float
    clients: int
    rate: float
    listeners: int
    seed: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and the figures as JSON; exit code 0 however they are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second of each client")
    parser.add_argument("--listeners", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = vars(parser.parse_args(arguments))
    home = options.pop("write")
    asked = Asked(**options)
    if home is not None:
        print(json.dumps(write(home, asked.seconds)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), asked)
    print(table(asked, found))
    print(json.dumps(found, sort_keys=True))
    return 0


def measure(home: Path, asked: Asked) -> dict[str, Any]:
    """All figures; seconds unless the name says otherwise."""
    settings = read_settings({"AUTOTUNE_HOME": str(home)})
    settings.home.prepare()
    fill(Path(settings.database), asked.trials)
    before = _written(home, asked)
    with served(home) as port:
        began = time.perf_counter()
        _get(port, PATHS["trials page"])
        first = time.perf_counter() - began
        writer = _writer(home, asked)
        seen, heard, slow = asyncio.run(_read(port, asked))
        beside = json.loads(writer.communicate()[0])
        fastest = asyncio.run(closed_loop(port, PATHS, 32, min(10.0, asked.seconds)))
    alone = [before, _written(home, asked)]
    return {
        "first_reading_s": first,
        "latencies_s": {
            kind: {f"p{p}": quantile(values, p / 100) for p in (50, 95, 99)} | {"requests": len(values)}
            for kind, values in sorted(seen.latencies.items())
        },
        "statuses": {str(status): number for status, number in sorted(seen.statuses.items())},
        "listeners_that_heard_all": sum(h.events == max(x.events for x in heard) and not h.ended for h in heard),
        "slow_listener_dropped": slow.ended,
        "saturation_answers_a_second": fastest,
        "write_alone_s": alone,
        "write_beside_s": beside,
        "writer_slower": beside["mean"] / statistics.fmean(one["mean"] for one in alone) - 1.0,
    }


async def _read(port: int, asked: Asked) -> tuple[Seen, list[Heard], Heard]:
    end = time.perf_counter() + asked.seconds
    heard, slow = [Heard() for _ in range(asked.listeners)], Heard()

    def over() -> bool:
        return time.perf_counter() >= end

    listening = [asyncio.create_task(listen(port, STREAM, one, over)) for one in heard]
    listening.append(asyncio.create_task(hang(port, STREAM, slow, over)))
    seen = await open_loop(port, PATHS, asked.clients, asked.rate, asked.seconds, asked.seed)
    await asyncio.gather(*listening)
    return seen, heard, slow


def write(home: Path, seconds: float) -> dict[str, float]:
    """Writes as a running study does, for so long; seconds a write took, apart from the pauses between them."""
    settings = read_settings({"AUTOTUNE_HOME": str(home)})
    store = open_store(settings.database)
    session = store.open_session(1, time.time())
    took: list[float] = []
    began = time.perf_counter()
    number, cycle = -1, 0
    while (elapsed := time.perf_counter() - began) < seconds:
        turn = len(took)
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
        took.append(time.perf_counter() - before)
        time.sleep(max(0.0, began + len(took) / WRITES_A_SECOND - time.perf_counter()))
    store.close()
    return {"mean": statistics.fmean(took), "p95": quantile(took, 0.95), "writes": float(len(took))}


def _written(home: Path, asked: Asked) -> Any:
    return json.loads(_writer(home, asked).communicate()[0])


def _writer(home: Path, asked: Asked) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "benchmarks.api", "--write", str(home), "--seconds", str(asked.seconds)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@contextmanager
def served(home: Path) -> Iterator[int]:
    """The port of ``autotune serve`` on that home."""
    argv = [sys.executable, "-m", "autotune.cli", "serve", "--home", str(home), "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AUTOTUNE_")}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        yield int(process.stdout.readline().strip().rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.wait(20)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300) as answer:
        return str(answer.read().decode())


def table(asked: Asked, found: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{asked.trials} trials, {asked.clients} clients at {asked.rate:g} requests/s, {asked.listeners} listeners, "
        f"{asked.seconds:g} s, {os.cpu_count()} cores",
        "",
        "| | p50 ms | p95 ms | p99 ms | requests |",
        "|---|---|---|---|---|",
    ]
    for kind, figures in found["latencies_s"].items():
        cells = " | ".join(f"{1000 * figures[p]:.1f}" for p in ("p50", "p95", "p99"))
        lines.append(f"| {kind} | {cells} | {figures['requests']} |")
    worst = max(figures["p99"] for figures in found["latencies_s"].values())
    met = "met" if worst <= TARGET_P99_S and set(found["statuses"]) == {"200"} else "missed"
    slower = found["writer_slower"]
    alone = " and ".join(f"{1000 * one['mean']:.2f}" for one in found["write_alone_s"])
    beside = 1000 * found["write_beside_s"]["mean"]
    slow = "dropped" if found["slow_listener_dropped"] else "NOT dropped"
    lines += [
        "",
        f"- target p99 {1000 * TARGET_P99_S:.0f} ms: {met}; answers by status: {found['statuses']}",
        f"- writes: {alone} ms alone before and after, {beside:.2f} ms beside readers ({100 * slower:+.1f} %; target "
        f"{100 * TARGET_SLOWER:.0f} %: {'met' if slower <= TARGET_SLOWER else 'missed'})",
        f"- saturated at {found['saturation_answers_a_second']:.0f} answers/s",
        f"- listeners that heard everything: {found['listeners_that_heard_all']} of {asked.listeners}; the one that "
        f"took nothing was {slow}",
        f"- the first reading of the study took {found['first_reading_s']:.1f} s",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
