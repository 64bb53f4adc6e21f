"""The Python parts of ``quarter_hour.sh``: inputs of a study, an environment over unpacked packages, copies of results.

``python -m benchmarks.gpu.visit COMMAND``, where COMMAND is

* ``inputs FOLDER ARCH PROMPT``: recipe of the random model, prompts of at most PROMPT tokens, and the reward;
* ``environment ENV PACKAGES``: an environment of this interpreter that finds PACKAGES first;
* ``copy HOME OUT``: the database, by its own backup, and the records and logs of all trials.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

KEPT = ("*.jsonl", "*.json", "log.txt", "*.log")
LARGEST = 4 << 20
"""Bytes of a file that is copied."""


def inputs(place: str, arch: str, prompt: str) -> None:
    """Writes ``recipe.json``, ``prompts.jsonl`` and ``reward.py``."""
    from benchmarks.gpu import inputs as made  # noqa: PLC0415  (the other commands run before autotune can be imported)
    from benchmarks.gpu.architectures import ARCHITECTURES  # noqa: PLC0415

    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(ARCHITECTURES[arch].recipe()), encoding="utf-8")
    made.prompts(folder, int(prompt), seed=0)
    made.reward(folder)


def environment(env: str, packages: str) -> None:
    """A trial gets no ``PYTHONPATH``, so its interpreter has to find the packages by itself."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(env)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(env)}))
    lines = [f"import site; site.addsitedir({str(place)!r})\n" for place in (packages, sysconfig.get_path("purelib"))]
    (own / "packages.pth").write_text("".join(lines), encoding="utf-8")


def copy(place: str, target: str) -> None:
    """What is there so far; safe while the study runs."""
    home, out = Path(place), Path(target)
    out.mkdir(parents=True, exist_ok=True)
    database = home / "autotune.sqlite"
    if database.is_file():
        source = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        backup = sqlite3.connect(out / "autotune.sqlite.new")
        with source, backup:
            source.backup(backup)
        source.close()
        backup.close()
        (out / "autotune.sqlite.new").replace(out / "autotune.sqlite")
    for pattern in KEPT:
        for path in (home / "runs").rglob(pattern):
            if path.is_file() and path.stat().st_size <= LARGEST and "scratch" not in path.parts:
                to = out / "runs" / path.relative_to(home / "runs")
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)


COMMANDS: Mapping[str, tuple[Callable[..., None], int]] = {
    "inputs": (inputs, 3),
    "environment": (environment, 2),
    "copy": (copy, 2),
}


def main(words: list[str]) -> None:
    """Runs one command."""
    command, count = COMMANDS.get(words[0] if words else "", (None, 0))
    if command is None or len(words) != count + 1:
        sys.exit(__doc__)
    command(*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
