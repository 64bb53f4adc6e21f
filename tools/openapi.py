"""Writes the API's description to ``docs/openapi.json``, or checks it: ``python -m tools.openapi [--check]``.

Users build on the file, so a change is reviewed: ``make check`` fails until the file is written again.
"""

from __future__ import annotations

import argparse
import difflib
import json
import tomllib
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


def main(arguments: list[str] | None = None) -> int:
    """Writes or checks the file; returns 0 if it now equals the description."""
    parser = argparse.ArgumentParser(prog="python -m tools.openapi")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the file would change")
    options = parser.parse_args(arguments)
    text = description()
    if not options.check:
        FILE.write_text(text, encoding="utf-8")
        return 0
    there = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    changed = list(difflib.unified_diff(there.splitlines(), text.splitlines(), str(FILE.name), "the API", lineterm=""))
    for line in changed[:SHOWN_LINES]:
        say(line)
    if changed:
        say("the API is not what docs/openapi.json says; `make openapi` writes it anew, then review the difference")
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
