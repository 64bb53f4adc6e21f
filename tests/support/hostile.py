"""Hostile and odd inputs: words, files, command lines and requests, decided by a seed.

The words and the small files are in ``tests/fixtures/hostile.json``.

What can be asked is read from the program itself (its commands and options, the API's description), so that a new
option or route is met without a word here.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import typer

from autotune.cli.app import build_app

FOUND = json.loads((Path(__file__).parents[1] / "fixtures" / "hostile.json").read_text())
WORDS = (*FOUND["words"], "9" * 400, "9" * 5000, "x" * 300, "y" * 6000)
HEADERS: Mapping[str, Sequence[str]] = FOUND["headers"] | {"Host": [*FOUND["headers"]["Host"], "a" * 300]}
BODIES = (*(text.encode("latin-1") for text in FOUND["bodies"]), b"[" * 4000, b"x" * 5000)
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(f'*{a}' for _ in range(9))}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
CONTENTS: Mapping[str, bytes] = {
    **{name: text.encode("latin-1") for name, text in FOUND["files"].items()},
    "wide.json": b'{"a": ' + b"9" * 5000 + b"}",
    "deep.json": b"[" * 50_000,
    "deep.yaml": b"a: " + b"{a: " * 3000,
    "bomb.yaml": BOMB.encode(),
    "long.yaml": b"beta: " + b"x" * 200_000,
    "binary.bin": bytes(range(256)) * 64,
}


def lay_out(folder: Path) -> list[str]:
    """Makes files of all kinds in ``folder``; their names, and some of what is not there."""
    for name, content in CONTENTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere/at/all")
    (folder / "folder").mkdir()
    tops = sorted({name.split("/")[0] for name in CONTENTS})
    absent = ("missing.yaml", "folder/missing/x", "empty.yaml/below", "z" * 256, "p/" * 2100, "/proc/self/nothing/x")
    return [*tops, "fifo", "loop", "dangling", "folder", "model/config.json", *absent]


NEVER = frozenset({"install_completion", "show_completion", "help", "follow", "version"})
"""Options that change the user's shell, or never end."""
ALWAYS = {"start": ("--dry-run",)}
"""Else an input that is right would run trials for as long as it asks."""
LEFT_OUT = frozenset({"serve", "verify", "retry", "doctor"})
"""Right inputs of these run until they are ended, or start programs; ``BAD`` has inputs for them."""
BAD: Mapping[str, Sequence[str]] = {
    "serve": ("--token-file fifo", "--token-file token", "--token-file missing.yaml", "--host :: --token-file loop"),
    "verify": ("--updates 0", "--rounds nan", "--trial 99"),
    "retry": ("99", "-1", "nan", "0 nothing", "3 --budget 0m"),
    "doctor": ("--config loop", "--framework none", "--home empty.yaml"),
}


@cache
def program() -> click.Command:
    """The command line, made once."""
    return typer.main.get_command(build_app())


@cache
def commands() -> dict[tuple[str, ...], click.Command]:
    """Each command by its words."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name, command in program().commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        found |= {(name,): command} if below is None else {(name, n): c for n, c in below.items()}
    return found


def word(rng: random.Random, files: Sequence[str]) -> str:
    """One word: a hostile one, a file's name, or a piece of both."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(files)
    if kind < 0.9:
        return rng.choice(WORDS)
    made = rng.choice(WORDS) + rng.choice(("", "/", ":", "=", "\x1b", " ")) + rng.choice(files)
    return made.lstrip("~")[: rng.choice((3, 20, 400))]


def command_line(rng: random.Random, files: Sequence[str]) -> list[str]:
    """One command line; an option gets a word of its own kind as often as another."""
    known = commands()
    words = rng.choice(list(known))
    if words[0] in LEFT_OUT:
        return [*words, *rng.choice(BAD[words[0]]).split(), *_options(rng, known[words], files, most=1)]
    return [*words, *ALWAYS.get(words[0], ()), *_options(rng, known[words], files, most=4)]


def _options(rng: random.Random, command: click.Command, files: Sequence[str], most: int) -> Iterator[str]:
    parameters = [p for p in command.params if p.name not in NEVER]
    options = [p for p in parameters if isinstance(p, click.Option)]
    if command.name == "start" and rng.random() < 0.8:
        yield from ("--budget", "1m")
    for option in rng.sample(options, min(len(options), rng.randint(0, most))):
        yield rng.choice(option.opts)
        if not option.is_flag and rng.random() < 0.97:
            yield _fitting(rng, option.type, files)
    for argument in parameters:
        if isinstance(argument, click.Argument) and (argument.required or rng.random() < 0.5):
            yield _fitting(rng, argument.type, files)
    if rng.random() < 0.03:
        yield word(rng, files)


def _fitting(rng: random.Random, kind: click.ParamType, files: Sequence[str]) -> str:
    if rng.random() < 0.5:
        return word(rng, files)
    if isinstance(kind, click.Choice):
        return str(rng.choice(list(kind.choices)))
    if isinstance(kind, click.types.IntParamType):
        return str(rng.choice((0, 1, 2, 3, 7, -1, 4096, 2**31, 2**63, 10**30)))
    if isinstance(kind, click.types.FloatParamType):
        return rng.choice(("0", "0.5", "-1", "1e-300", "1e300", "nan", "inf"))
    return rng.choice((*files, "first", "1", "model", "grpo.yaml", "space.yaml", "prompts.jsonl"))


def request(rng: random.Random, paths: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """One request: method, address, and what ``httpx`` takes beside them."""
    path = rng.choice(sorted(paths))
    operations = paths[path]
    method = rng.choice(sorted(operations) if rng.random() < 0.9 else ("put", "delete", "patch", "head", "options"))
    asked = operations.get(method, next(iter(operations.values()))).get("parameters", [])
    address, pairs = path, []
    for name in (p["name"] for p in asked if p["in"] == "path"):
        address = address.replace(f"{{{name}}}", _quoted(_place(rng, listens="stream" in path)))
    queries = [p["name"] for p in asked if p["in"] == "query"]
    for name in rng.sample(queries, rng.randint(0, len(queries))):
        value = rng.choice(WORDS if rng.random() < 0.7 else ("1", "true", "fail", "10"))
        pairs += [(name, value)] * rng.choice((1, 1, 1, 2))
    if rng.random() < 0.1:
        pairs.append((rng.choice(WORDS[:40]), rng.choice(WORDS)))
    query = "&".join(f"{_quoted(name)}={_quoted(value[:3000])}" for name, value in pairs)
    names = rng.sample(sorted(HEADERS), rng.choice((0, 0, 1, 2)))
    more: dict[str, Any] = {"headers": {name: rng.choice(HEADERS[name]) for name in names}}
    if method in ("post", "put", "patch"):
        said = json.dumps({"action": rng.choice(WORDS)}).encode()
        more["content"] = rng.choice(BODIES) if rng.random() < 0.8 else said
        if rng.random() < 0.7:
            more["headers"]["Content-Type"] = "application/json"
    return method.upper(), address + (f"?{query}" if query else ""), more


def _place(rng: random.Random, *, listens: bool) -> str:
    """One step of an address; a study that is there would be listened to for ever."""
    if listens:
        return rng.choice(("nothing", "0", "-1", "nan", "9" * 400, "%00", "a/b"))
    return rng.choice(("1", "0", "3", "first")) if rng.random() < 0.5 else str(rng.choice(WORDS))[:2000]


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="")
