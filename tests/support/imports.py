"""Rows of tests: what people write, and what must become of it (``tests/fixtures/imports.yaml``, ``words.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_FOUND = {
    test: rows
    for name in ("imports.yaml", "words.yaml")
    for test, rows in yaml.safe_load((_FIXTURES / name).read_text(encoding="utf-8")).items()
}


def of(test: str) -> list[Any]:
    """Returns the rows of a test."""
    return [tuple(row) if isinstance(row, list) else row for row in _FOUND[test]]


def text_of(name: str) -> str:
    """Returns a file of ``tests/fixtures/texts``."""
    return (_FIXTURES / "texts" / name).read_text(encoding="utf-8")
