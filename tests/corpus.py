"""Hostile and odd inputs to every command and every route, and what may come of them.

    python -m tests.corpus --count 2000 [--seed 1] [--processes 20]

Every input must end within ten seconds of computing: a command with a documented exit code and, where it refuses, one
sentence; a request with an answer below 500 that is a problem document where it refuses. No traceback, no crash file,
no escape codes, and a command that only looks makes no file. Most commands run in this process, some in one of their
own. The seed decides the inputs; kept ones (``tests/fixtures/kept_inputs.jsonl``) run first. Exit code 1: something was
unclean.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from api.app import application_of
from api.guard.security import Access
from tests.support import here, hostile
from tests.support.served import URL, Reader, settings_in, whole_study

KEPT = Path(__file__).parent / "fixtures" / "kept_inputs.jsonl"
LONGEST_S = 10.0
"""Of this process's own time, as a busy machine must not fail an input."""
WAITS_S = 600.0
"""Of time on the clock."""
LONGEST_SENTENCE = 2500
CODES = frozenset({0, 2, 3, 4, 5, 6})
LOOKING = frozenset({"status", "trials", "best", "show", "logs", "compare", "plan", "space"})
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class TooLongError(BaseException):
    """Raised in the middle of an input that does not end."""


@dataclass
class Ended:
    """What came of one input."""

    where: str
    outcome: str
    wrong: list[str]


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Whatever has not ended in time is ended, and known to have been."""

    def late(*_: object) -> None:
        raise TooLongError

    bounds = ((signal.SIGPROF, signal.ITIMER_PROF, LONGEST_S), (signal.SIGALRM, signal.ITIMER_REAL, WAITS_S))
    before = {number: signal.signal(number, late) for number, _, _ in bounds}
    for _, timer, seconds in bounds:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, timer, _ in bounds:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


class Place:
    """A home with a study, a folder with files of all kinds, and a reader of the API."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.names = hostile.lay_out(self.work)
        settings = settings_in(folder)
        whole_study(settings)
        self.home = settings.home.root
        self.reader = Reader(settings)
        self.paths = application_of(self.reader.cache, Access(), "1").openapi()["paths"]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_")},
            "AUTOTUNE_HOME": str(self.home),
            "HOME": str(folder),
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "80",
        }

    def files(self) -> set[str]:
        """All there are, but those SQLite makes for readers."""
        found = (str(p.relative_to(self.work.parent)) for p in self.work.parent.rglob("*"))
        return {name for name in found if not name.endswith(("-wal", "-shm"))}


def command(place: Place, words: Sequence[str], *, alone: bool = False) -> Ended:
    """One command line, here or in a process of its own."""
    before = place.files()
    try:
        if alone:
            code, out, err = _alone(place, words)
        else:
            with bounded():
                ran = here.autotune(words, place.work, place.environment)
            code, out, err = ran.returncode, ran.stdout, ran.stderr
    except (TooLongError, subprocess.TimeoutExpired):
        return Ended(words[0], "does not end", [f"still running after {LONGEST_S:.0f} s"])
    wrong = list(wrong_in(code, out, err))
    new = place.files() - before
    wrong += [f"a crash file: {name}" for name in new if "crashes/" in name]
    if words[0] in LOOKING and new:
        wrong.append(f"it made {sorted(new)[:3]}")
    return Ended(words[0], f"exit code {code}", wrong)


def _alone(place: Place, words: Sequence[str]) -> tuple[int, str, str]:
    run = subprocess.run(
        [str(Path(sys.executable).with_name("autotune")), *words],
        cwd=place.work, env=place.environment, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=WAITS_S, check=False,
    )  # fmt: skip
    return run.returncode, run.stdout.decode("utf-8", "replace"), run.stderr.decode("utf-8", "replace")


def wrong_in(code: int, out: str, err: str) -> Iterator[str]:
    if code not in CODES:
        yield f"exit code {code}"
    if "Traceback" in err + out or "autotune: unexpected " in err:
        yield f"an unexpected error: {err.strip()[-300:]!r}"
    if STEERS.search(out + err):
        yield "control characters"
    if code not in (2, 5, 6):
        return
    lines = err.splitlines()
    said = [line for line in lines if line.startswith("autotune: ")]
    if len(said) > 1 or (not said and not out):
        yield f"{len(said)} sentences: {err[:300]!r}"
    if any(len(line) > LONGEST_SENTENCE for line in lines):
        yield f"a line of {max(map(len, lines))} characters"


def request(place: Place, method: str, address: str, more: dict[str, Any]) -> Ended:
    """One request through the whole application."""
    route = address.partition("?")[0].split("/")
    where = f"{method} /{route[3] if len(route) > 3 else route[-1]}"[:30]
    try:
        with bounded():
            answer = asyncio.run(_asked(place, method, address, more))
    except TooLongError:
        return Ended(where, "does not end", [f"no answer after {LONGEST_S:.0f} s"])
    except (httpx.InvalidURL, UnicodeError):
        return Ended(where, "cannot be sent", [])
    wrong = [f"told as a crash: {each!r}" for each in place.reader.crashes]
    place.reader.crashes.clear()
    if answer.status_code >= 500 and answer.status_code != 503:
        wrong.append(f"status {answer.status_code}")
    kind = answer.headers.get("content-type", "")
    if answer.status_code >= 400 and method != "HEAD" and not kind.startswith("text/html"):
        if not kind.startswith("application/problem+json"):
            wrong.append(f"{answer.status_code} as {kind or 'nothing'}: {answer.text[:100]!r}")
        elif not {"title", "status"} <= answer.json().keys():
            wrong.append(f"no problem document: {answer.text[:200]}")
    if len(answer.content) > LONGEST_SENTENCE * 8 and answer.status_code >= 400:
        wrong.append(f"a refusal of {len(answer.content)} bytes")
    return Ended(where, str(answer.status_code), wrong)


async def _asked(place: Place, method: str, address: str, more: dict[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(app=place.reader.app, raise_app_exceptions=False)
    headers = {n: v.encode("utf-8", "surrogateescape") for n, v in more.get("headers", {}).items()}
    async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
        return await client.request(method, address, **{**more, "headers": headers})


def kept() -> list[Any]:
    """Inputs that were unclean once."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()]


def run_kept(place: Place, case: Any) -> Ended:
    """One of them."""
    if "command" in case:
        return command(place, case["command"])
    more = {"headers": case.get("headers", {}), **({"content": case["body"].encode()} if "body" in case else {})}
    return request(place, case["method"], case["address"], more)


def corpus(count: int, seed: int, processes: int, requests: float = 0.4) -> tuple[Counter[tuple[str, str]], list[str]]:
    """(outcomes by command or route, what was unclean); ``requests`` is their share, ``processes`` a number."""
    rng, found, unclean = random.Random(seed), Counter[tuple[str, str]](), []

    def note(asked: object, where: str, ended: Ended) -> None:
        found[(where, ended.outcome)] += 1
        unclean.extend(f"{str(asked)[:600]}: {each}" for each in ended.wrong)
        for each in unclean[len(unclean) - len(ended.wrong) :]:
            print(f"unclean: {each}", flush=True)

    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        place = Place(Path(folder).resolve())
        for case in kept():
            note(case, "kept", run_kept(place, case))
        for number in range(count):
            if rng.random() < requests:
                method, address, more = hostile.request(rng, place.paths)
                ended = request(place, method, address, more)
                note((method, address, more), ended.where, ended)
            else:
                words = hostile.command_line(rng, place.names)
                ended = command(place, words, alone=number < processes)
                note(json.dumps([word[:300] for word in words]), ended.where, ended)
        place.reader.cache.close()
    return found, unclean


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=20)
    given = parser.parse_args()
    began = time.monotonic()
    found, unclean = corpus(given.count, given.seed, given.processes)
    for (where, outcome), count in sorted(found.items()):
        print(f"{count:5} {where:30} {outcome}")
    print(f"{found.total()} inputs of seed {given.seed} in {time.monotonic() - began:.0f} s, {len(unclean)} unclean")
    return int(bool(unclean))


if __name__ == "__main__":
    sys.exit(main())
