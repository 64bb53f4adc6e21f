"""Writes the API's description to ``docs/openapi.json``, or checks it: ``python -m tools.openapi [--check]``.

Users depend on the file, so changes are reviewed: ``make check`` fails until the file is written again.
"""

from __future__ import annotations

import argparse
import difflib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api.app import application_of
from api.cache import StudyCache
from api.guard.security import Access
from autotune.settings import read_settings
from tools.environments import say

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "openapi.json"
SHOWN_LINES = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the file; returns 0 if it now equals the description."""
    said = "the API is not what docs/openapi.json says; `make openapi` writes it anew, then review the difference"
    return write_or_check("tools.openapi", FILE, description(), said, arguments)


def write_or_check(program: str, file: Path, text: str, remedy: str, arguments: Sequence[str] | None) -> int:
    """Writes ``text`` to a generated file; with ``--check`` only compares. Returns 0 if the file now holds ``text``.

    A check shows the first differences, then ``remedy``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the file would change")
    if not parser.parse_args(arguments).check:
        file.write_text(text, encoding="utf-8")
        return 0
    there = file.read_text(encoding="utf-8") if file.exists() else ""
    changed = list(difflib.unified_diff(there.splitlines(), text.splitlines(), file.name, "generated", lineterm=""))
    for line in (*changed[:SHOWN_LINES], *([remedy] if changed else [])):
        say(line)
    return 1 if changed else 0


def description() -> str:
    """Returns the document as committed."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cache = StudyCache(read_settings({"AUTOTUNE_HOME": str(ROOT)}), _unopened)
    document: dict[str, Any] = application_of(cache, Access(), version).openapi()
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def _unopened() -> Any:
    raise AssertionError("a description needs no database")


if __name__ == "__main__":
    raise SystemExit(main())
