"""How soon a page of a large study is seen, and what it loads: ``python -m benchmarks.page [--trials 10000] ...``.

A study of many made-up trials in a SQLite file, ``autotune serve`` on it, and a real Chromium that knows nothing of it
at each turn. Of each page the time from the navigation to the first text or drawing on the screen ("first contentful
paint", https://www.w3.org/TR/paint-timing/), and the bytes that came over the wire until it was loaded, with headers.
A server reads the newest study when it begins, so the very first page of one is told apart: of one that is asked at
once, and of one that has had time to read.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.settings import read_settings
from benchmarks.api import Server, served
from benchmarks.many_trials import fill
from tests.e2e.browser import browser

PAGES: Mapping[str, str] = {
    "study": "/studies/1",
    "study, filtered": "/studies/1?outcome=OOM&knob.precision=bf16",
    "why": "/studies/1/why",
    "trial": "/studies/1/trials/0",
    "compare": "/studies/1/compare?trial=0&trial=2&trial=3",
    "recommendation": "/studies/1/recommendation",
    "all studies": "/",
}
FIRST = ("study", "why", "all studies")
"""Pages a server may be asked for first."""
WAITS_S = (0.0, 10.0)
"""From the address a server prints to its first request."""
TARGET_S = 1.0
TARGET_BYTES = 500_000
PATIENCE_MS = 120_000
POLL_MS = 25
PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0"
SEEN = """() => {
  const loaded = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  return [paint.startTime / 1000, loaded.reduce((sum, one) => sum + one.transferSize, 0)];
}"""


@dataclass(frozen=True)
class Seen:
    """One view of a page by a browser that knew nothing."""

    paint_s: float
    bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and the figures as JSON; exit code 0 however they are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5, help="views of each page")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings({"AUTOTUNE_HOME": folder})
        settings.home.prepare()
        fill(Path(settings.database), options.trials)
        with browser() as chromium:
            first = {name: [_first(Path(folder), chromium, PAGES[name], wait) for wait in WAITS_S] for name in FIRST}
            with served(Path(folder)) as server:
                url = url_of(server)
                view(chromium, url + PAGES["study"])
                found = {n: [view(chromium, url + path) for _ in range(options.turns)] for n, path in PAGES.items()}
    print(table(options.trials, first, found))
    print(json.dumps({"first": _plain(first), "pages": _plain(found)}, sort_keys=True))
    return 0


def _first(home: Path, chromium: Any, path: str, wait_s: float) -> Seen:
    """The first page of a server that began ``wait_s`` ago."""
    with served(home) as server:
        time.sleep(wait_s)
        return view(chromium, url_of(server) + path)


def url_of(server: Server) -> str:
    """Of a server on this machine."""
    return f"http://127.0.0.1:{server.port}"


def _plain(found: Mapping[str, Sequence[Seen]]) -> dict[str, list[list[float]]]:
    return {name: [[one.paint_s, one.bytes] for one in some] for name, some in found.items()}


def view(chromium: Any, address: str) -> Seen:
    """A page in a context of its own, so without a cache or a connection that is there already."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    try:
        tab = context.new_page()
        tab.goto(address, timeout=PATIENCE_MS)
        end = time.monotonic() + PATIENCE_MS / 1000
        while not tab.evaluate(PAINTED):  # wait_for_function needs eval, which the page's policy forbids
            if time.monotonic() > end:
                raise TimeoutError(f"{address}: nothing on the screen after {PATIENCE_MS / 1000:g} s")
            tab.wait_for_timeout(POLL_MS)
        paint_s, transferred = tab.evaluate(SEEN)
        return Seen(float(paint_s), int(transferred))
    finally:
        context.close()


def table(trials: int, first: Mapping[str, Sequence[Seen]], found: Mapping[str, Sequence[Seen]]) -> str:
    """For people."""
    lines = [
        f"{trials} trials, {os.cpu_count()} cores; each view by a browser that knew nothing",
        "",
        "| page | first paint, median ms | worst ms | kB | views |",
        "|---|---|---|---|---|",
    ]
    for name, some in found.items():
        paints = [one.paint_s for one in some]
        figures = f"{1000 * statistics.median(paints):.0f} | {1000 * max(paints):.0f}"
        lines.append(f"| {name} | {figures} | {max(one.bytes for one in some) / 1000:.0f} | {len(some)} |")
    every = [one for some in found.values() for one in some]
    paint, heaviest = max(one.paint_s for one in every), max(one.bytes for one in every)
    lines += [
        "",
        f"- target {TARGET_S:g} s to the first paint: {_met(paint <= TARGET_S)}; "
        f"{TARGET_BYTES // 1000} kB: {_met(heaviest <= TARGET_BYTES)}",
        *(f"- the very first page of a server, {name}: {_waits(some)}" for name, some in first.items()),
    ]
    return "\n".join(lines)


def _waits(some: Sequence[Seen]) -> str:
    words = ("asked at once" if wait == 0 else f"{wait:g} s after its start" for wait in WAITS_S)
    return ", ".join(f"{one.paint_s:.1f} s {said}" for one, said in zip(some, words, strict=True))


def _met(met: bool) -> str:
    return "met" if met else "missed"


if __name__ == "__main__":
    raise SystemExit(main())
