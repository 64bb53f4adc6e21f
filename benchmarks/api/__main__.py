"""What the REST API costs and how fast it is: ``python -m benchmarks.api [--trials 10000] [--seconds 60] ...``.

A study of many made-up trials in a SQLite file, ``autotune serve`` on it, and a process that writes to it as a running
study does, beside 200 clients (one request a second each, open loop: half of them a recommendation query, half a page
of trials) and 50 listeners, one more of which takes nothing of its stream. Then the clients ask as fast as they are
answered. At last it writes in turns alone and beside clients (``benchmarks/api/turns.py``). Readers, server and writer
share the machine's cores; nothing is measured on a machine that does anything else at the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
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

import psutil

from autotune.settings import read_settings
from benchmarks.api import turns
from benchmarks.api.load import LATE_S, Heard, Seen, closed_loop, hang, heard_all, listen, open_loop, quantile
from benchmarks.api.writer import Writer
from tests.support.large_study import large_study

PATHS = {
    "recommendation": "/api/v1/recommendations?model=small&gpu=cpu&framework=trl",
    "trials page": "/api/v1/studies/1/trials?limit=100",
}
STREAM = "/api/v1/studies/1/events/stream"
TURN_S = 10.0 + turns.SETTLE_S
"""What counts of it has every kind of write equally often."""
RESTS_S = 1.0
SETTLED_WITHIN_S = 120.0
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
    rounds: int = 6
    turn: float = TURN_S
    nice: int | None = None


@dataclass(frozen=True)
class Server:
    """One that runs."""

    port: int
    pid: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and the figures as JSON; exit code 0 however they are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second of each client")
    parser.add_argument("--listeners", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6, help="of turns: alone, beside the server")
    parser.add_argument("--turn", type=float, default=TURN_S, help="seconds of each")
    parser.add_argument("--nice", type=int, help="of the server; its own default unless told")
    asked = Asked(**vars(parser.parse_args(arguments)))
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), asked)
    print(table(asked, found))
    print(json.dumps(found, sort_keys=True))
    return 0


def measure(home: Path, asked: Asked) -> dict[str, Any]:
    """All figures; seconds unless the name says otherwise."""
    settings = read_settings({"AUTOTUNE_HOME": str(home)})
    settings.home.prepare()
    large_study(settings, asked.trials)
    with served(home, asked.nice) as server:
        began = time.perf_counter()
        get(server.port, PATHS["trials page"])
        first = time.perf_counter() - began
        settled = _settle(server)
        writer, busy = Writer(home, asked.seconds), _busy(server)
        seen, heard, slow = asyncio.run(_read(server.port, asked))
        cores = {who: (now - busy[who]) / asked.seconds for who, now in _busy(server).items()}
        beside = writer.wait().figures()
        fastest = asyncio.run(closed_loop(server.port, PATHS, 32, min(10.0, asked.seconds)))
        slower = _in_turns(home, server, asked)
    return {
        "first_reading_s": first,
        "settled_s": settled,
        "latencies_s": {
            kind: {f"p{p}": quantile(values, p / 100) for p in (50, 95, 99)} | {"requests": len(values)}
            for kind, values in sorted(seen.latencies.items())
        },
        "late": {str(second): number for second, number in sorted(seen.late.items()) if number},
        "statuses": {str(status): number for status, number in sorted(seen.statuses.items())},
        "cores": cores,
        "listeners_that_heard_all": heard_all(heard),
        "slow_listener_dropped": slow.ended,
        "saturation_answers_a_second": fastest,
        "write_beside_s": beside,
        "writer_slower": slower,
    }


async def _read(port: int, asked: Asked) -> tuple[Seen, list[Heard], Heard]:
    end = time.perf_counter() + asked.seconds
    slow = Heard()
    hanging = asyncio.create_task(hang(port, STREAM, slow, lambda: time.perf_counter() >= end))
    seen, heard = await _load(port, asked, asked.seconds)
    await hanging
    return seen, heard, slow


async def _load(port: int, asked: Asked, seconds: float) -> tuple[Seen, list[Heard]]:
    """All clients and all listeners but the one that hangs."""
    end = time.perf_counter() + seconds
    heard = [Heard() for _ in range(asked.listeners)]
    listening = [asyncio.create_task(listen(port, STREAM, one, lambda: time.perf_counter() >= end)) for one in heard]
    seen = await open_loop(port, PATHS, asked.clients, asked.rate, seconds, asked.seed)
    await asyncio.gather(*listening)
    return seen, heard


def _in_turns(home: Path, server: Server, asked: Asked) -> tuple[float, float, float]:
    def act(kind: str, seconds: float) -> None:
        if kind == turns.SERVED:
            asyncio.run(_load(server.port, asked, seconds))
        else:
            time.sleep(seconds)

    writer = Writer(home, asked.rounds * len(turns.KINDS) * (asked.turn + 1.0))
    taken = turns.take(asked.rounds, asked.turn, act, time.perf_counter)
    return turns.slower(writer.wait().writes, taken)


def _settle(server: Server) -> float:
    """Seconds until it has drawn ahead what it draws when it begins, and rests."""
    began, process = time.perf_counter(), psutil.Process(server.pid)
    while time.perf_counter() - began < SETTLED_WITHIN_S:
        before = sum(process.cpu_times()[:2])
        time.sleep(RESTS_S)
        if sum(process.cpu_times()[:2]) - before < RESTS_S / 20:
            break
    return time.perf_counter() - began


def _busy(server: Server) -> dict[str, float]:
    """Seconds of a core so far."""
    used = psutil.Process(server.pid).cpu_times()
    return {"server": used.user + used.system, "clients": time.process_time()}


@contextmanager
def served(home: Path, nice: int | None = None) -> Iterator[Server]:
    """``autotune serve`` on that home."""
    argv = [sys.executable, "-m", "autotune.cli", "serve", "--home", str(home), "--port", "0"]
    argv += [] if nice is None else ["--nice", str(nice)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AUTOTUNE_")}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        yield Server(int(process.stdout.readline().strip().rsplit(":", 1)[1]), process.pid)
    finally:
        process.terminate()
        process.wait(20)


def get(port: int, path: str) -> str:
    """What is there."""
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
    slower, low, high = found["writer_slower"]
    beside = 1000 * found["write_beside_s"]["mean"]
    slow = "dropped" if found["slow_listener_dropped"] else "NOT dropped"
    cores = ", ".join(f"{who} {share:.2f}" for who, share in found["cores"].items())
    lines += [
        "",
        f"- target p99 {1000 * TARGET_P99_S:.0f} ms: {met}; answers by status: {found['statuses']}",
        f"- answers later than {1000 * LATE_S:.0f} ms: {sum(found['late'].values())}, due in the seconds "
        f"{', '.join(f'{second} ({number})' for second, number in found['late'].items()) or '-'}",
        f"- a write beside readers: {beside:.2f} ms; longer than alone, in {asked.rounds} rounds of turns, by "
        f"{100 * slower:+.1f} % (95 % interval {100 * low:+.1f} to {100 * high:+.1f} %; target "
        f"{100 * TARGET_SLOWER:.0f} %: {'met' if slower <= TARGET_SLOWER else 'missed'})",
        f"- cores in use meanwhile: {cores}",
        f"- saturated at {found['saturation_answers_a_second']:.0f} answers/s",
        f"- listeners that heard everything: {found['listeners_that_heard_all']} of {asked.listeners}; the one that "
        f"took nothing was {slow}",
        f"- the first reading of the study took {found['first_reading_s']:.1f} s; the server rested "
        f"{found['settled_s']:.1f} s later, which is when all this began",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
