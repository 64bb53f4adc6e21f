"""Courses of searches, kept in a file as each is done, so that a comparison of hours can be broken off and go on.

A course is taken from the file only if it would come out the same: its key is a digest of the table, the arm, the seed,
the number of trials, the versions of the packages that search, and the sources the arm is made of. A line that was cut
off when the program was killed is no course.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from autotune.errors import UsageError
from benchmarks.search.arms import Arm
from benchmarks.search.replay import Course
from benchmarks.search.world import World

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "optuna", "torch", "scipy", "cmaes", "xgboost", "smac", "ConfigSpace", "ax-platform", "botorch")
_REPLAY = ("arms", "optuna_peers", "peers", "replay", "world")
_PEERS = ("candidate_grid", "translation", "proposer", "openings")
OF_PEERS = (*(f"benchmarks/search/{n}.py" for n in _REPLAY), *(f"autotune/proposals/{n}.py" for n in _PEERS))
"""What a peer without anything of ours is made of; all others are made of all of ``OF_OURS``."""
OF_OURS = ("benchmarks/search", "autotune/proposals", "autotune/statistics", "search_spaces")


class Kept:
    """The file; ``None`` keeps nothing.

    Raises:
        UsageError: it cannot be read or written, or holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._there: dict[str, Course] = {}
        if path is None:
            return
        try:
            path.touch()
            *whole, cut = path.read_text(encoding="utf-8").split("\n")
            for number, line in enumerate(whole, start=1):
                self._read(line, number)
            if cut:
                path.write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--keep {path}: {getattr(error, 'strerror', None) or error}") from None

    def _read(self, line: str, number: int) -> None:
        try:
            data = json.loads(line)
            fields = {n: tuple(v) if isinstance(v, list) else v for n, v in data["course"].items()}
            self._there[str(data["key"])] = Course(**fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(f"--keep {self._path}, line {number}: that is no course of this command") from None

    def get(self, key: str) -> Course | None:
        """What is there for a key."""
        return self._there.get(key)

    def add(self, key: str, course: Course) -> None:
        """Keep a course that was just run."""
        self._there[key] = course
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                line = {"key": key, "course": asdict(course)}
                stream.write(json.dumps(line, separators=(",", ":"), default=lambda number: number.item()) + "\n")


def key_of(world: World, arm: Arm, seed: int, trials: int) -> str:
    """Of one course."""
    plain = not (arm.is_ours or arm.filtered or arm.wants_times)
    parts = [world.name, world.digest, arm.name, seed, trials, sources(OF_PEERS if plain else OF_OURS), _versions()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@lru_cache(maxsize=4)
def sources(paths: tuple[str, ...]) -> str:
    """Digest of files, and of all modules in folders, below the repository."""
    found = hashlib.sha256()
    for path in (ROOT / one for one in paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return found.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    found = []
    for name in PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, ""))
    return tuple(found)
