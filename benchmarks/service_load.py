"""``autotune serve`` under load and abuse for a long time: ``python -m benchmarks.service_load [--minutes 60] ...``.

A study that is written to, and at once: readers (open loop), listeners to its events, some who take nothing of what
they are sent, and connections that begin a request and never end it. Printed are the answers by status, how long they
took, what became of each kind, and the server's memory by the minute. Then the database is renamed away and back. At
last a process computes cycles of a fixed size and stores each, in turns alone, beside the server under this load, and
beside a stand-in that costs the clients alone (``benchmarks/turns.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from autotune.settings import read_settings
from benchmarks import turns
from benchmarks.api import PATHS, STREAM, Server, get, served, stand_in
from benchmarks.cycling import Cycler
from benchmarks.load import Heard, Line, Seen, half_open, hang, heard_all, listen, open_loop, quantile
from benchmarks.many_trials import fill
from benchmarks.writer import Writer

MINUTE_S = 60.0
SETTLED_MINUTES = 3
"""Caches fill; growth is told from here on."""
AWAY_S = 3.0
PAGES = {**PATHS, "page": "/studies/1", "status": "/api/v1/studies/1", "metrics": "/metrics"}


@dataclass(frozen=True)
class Asked:
    """What is to be measured."""

    minutes: float = 60.0
    readers: int = 200
    rate: float = 0.2
    listeners: int = 200
    slow: int = 5
    half_open: int = 50
    trials: int = 1000
    writes: float = 2.0
    rounds: int = 6
    turn: float = 10.0
    seed: int = 0


@dataclass
class Found:
    """What the load met."""

    seen: Seen = field(default_factory=Seen)
    heard: list[Heard] = field(default_factory=list)
    slow: list[Heard] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    """Seconds for which each unfinished request was let stand."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and the figures as JSON; exit code 0 however they are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_load")
    usual = Asked()
    for name, value in vars(usual).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    asked = Asked(**vars(parser.parse_args(arguments)))
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), asked, lambda line: print(line, file=sys.stderr, flush=True))
    print(table(asked, found))
    print(json.dumps(found, sort_keys=True))
    return 0


def measure(home: Path, asked: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures; seconds and bytes unless the name says otherwise."""
    settings = read_settings({"AUTOTUNE_HOME": str(home)})
    settings.home.prepare()
    fill(Path(settings.database), asked.trials)
    seconds = asked.minutes * MINUTE_S
    with served(home) as server:
        get(server.port, PAGES["page"])
        writer = Writer(home, seconds, asked.writes)
        found, memory = asyncio.run(_watched(server, asked, seconds, say))
        writer.wait()
        away = asyncio.run(_without_database(server, Path(settings.database)))
        cycles = _in_turns(home, server, asked)
    return {
        "latencies_s": {
            kind: {f"p{p}": quantile(values, p / 100) for p in (50, 95, 99)} | {"requests": len(values)}
            for kind, values in sorted(found.seen.latencies.items())
        },
        "statuses": _text(found.seen.statuses),
        "listeners": {
            "heard_all": heard_all([one for one in found.heard if not one.refused]),
            "refused": sum(one.refused for one in found.heard),
            "all": len(found.heard),
        },
        "slow_dropped": sum(one.ended for one in found.slow),
        "half_open_held_s": found.held,
        "resident_bytes": memory,
        "statuses_without_database": {name: _text(statuses) for name, statuses in away.items()},
        "cycles_slower": cycles,
    }


def _text(counted: Counter[int]) -> dict[str, int]:
    return {str(key): number for key, number in sorted(counted.items())}


async def _watched(server: Server, asked: Asked, seconds: float, say: Callable[[str], None]) -> tuple[Found, list[int]]:
    """The load, and the server's memory at its start and after each minute of it."""
    process, memory = psutil.Process(server.pid), []
    loading = asyncio.create_task(_load(server.port, asked, seconds))
    while not loading.done():
        memory.append(process.memory_info().rss)
        say(f"minute {len(memory) - 1}: {memory[-1] / 2**20:.1f} MiB")
        await asyncio.wait([loading], timeout=MINUTE_S)
    memory.append(process.memory_info().rss)
    return loading.result(), memory


async def _load(port: int, asked: Asked, seconds: float) -> Found:
    end = time.perf_counter() + seconds

    def over() -> bool:
        return time.perf_counter() >= end

    found = Found(heard=[Heard() for _ in range(asked.listeners)], slow=[Heard() for _ in range(asked.slow)])
    others = [asyncio.create_task(hang(port, STREAM, one, over)) for one in found.slow]
    await asyncio.sleep(0.5)  # they have places, which are fewer than those who want one
    others += [asyncio.create_task(listen(port, STREAM, one, over)) for one in found.heard]
    unfinished = [asyncio.create_task(half_open(port, over)) for _ in range(asked.half_open)]
    found.seen = await open_loop(port, PAGES, asked.readers, asked.rate, seconds, asked.seed)
    await asyncio.gather(*others)
    found.held = [held for each in await asyncio.gather(*unfinished) for held in each]
    return found


async def _without_database(server: Server, database: Path) -> dict[str, Counter[int]]:
    """Statuses before, while the file has another name, and after that."""
    elsewhere = database.with_name("elsewhere")
    found = {"before": await _statuses(server.port, 0.5)}
    database.rename(elsewhere)
    await asyncio.sleep(0.5)
    found["away"] = await _statuses(server.port, AWAY_S)
    elsewhere.rename(database)
    await asyncio.sleep(0.5)
    found["back"] = await _statuses(server.port, 0.5)
    return found


async def _statuses(port: int, seconds: float) -> Counter[int]:
    seen, line, end = Counter[int](), Line(port), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for path in PAGES.values():
            seen[await line.get(path)] += 1
        await asyncio.sleep(0.05)
    line.close()
    return seen


def _in_turns(home: Path, server: Server, asked: Asked) -> dict[str, Any]:
    if asked.rounds < 1:
        return {}
    with stand_in(server, *PAGES.values()) as port:
        ports = {turns.SERVED: server.port, turns.STAND_IN: port}

        def act(kind: str, seconds: float) -> None:
            if kind in ports:
                asyncio.run(_load(ports[kind], asked, seconds))
            else:
                time.sleep(seconds)

        cycler = Cycler(home, asked.rounds * len(turns.KINDS) * (asked.turn + 1.0))
        taken = turns.take(asked.rounds, asked.turn, act, time.perf_counter)
        return turns.slower(cycler.wait(), taken)


def growth(memory: Sequence[int], minutes: float) -> float | None:
    """Bytes an hour from ``SETTLED_MINUTES`` on, by least squares; ``None`` of too short a time."""
    points = [(min(n, minutes), size) for n, size in enumerate(memory) if n >= SETTLED_MINUTES]
    if len(points) < 3:
        return None
    slope, _ = statistics.linear_regression([at for at, _ in points], [size for _, size in points])
    return slope * 60.0


def table(asked: Asked, found: dict[str, Any]) -> str:
    """For people."""
    held, heard, memory = found["half_open_held_s"], found["listeners"], found["resident_bytes"]
    grows = growth(memory, asked.minutes)
    lines = [
        f"{asked.readers} readers at {asked.rate:g} requests/s, {asked.listeners} listeners, {asked.slow} that take "
        f"nothing, {asked.half_open} unfinished requests, {asked.minutes:g} minutes, a study of {asked.trials} trials",
        "",
        "| | p50 ms | p95 ms | p99 ms | requests |",
        "|---|---|---|---|---|",
        *(
            f"| {kind} | {' | '.join(f'{1000 * one[p]:.1f}' for p in ('p50', 'p95', 'p99'))} | {one['requests']} |"
            for kind, one in found["latencies_s"].items()
        ),
        "",
        f"- answers by status: {found['statuses']}",
        f"- listeners: {heard['heard_all']} heard everything, {heard['refused']} of {heard['all']} were told to come "
        "later",
        f"- of {asked.slow} that take nothing {found['slow_dropped']} were cut off",
        f"- unfinished requests: {len(held)} closed by the server"
        + (f", after {min(held):.1f} to {max(held):.1f} s" if held else ""),
        f"- memory by the minute, MiB: {', '.join(f'{size / 2**20:.1f}' for size in memory)}"
        + ("" if grows is None else f"; {grows / 2**20:+.1f} MiB an hour from minute {SETTLED_MINUTES} on"),
        *(f"- answers, database {name}: {seen}" for name, seen in found["statuses_without_database"].items()),
        *(line.replace("writes in turns", "cycles in turns") for line in turns.words(found["cycles_slower"])),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
