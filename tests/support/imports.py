"""Cases of imports: what users write, and what must become of it (``tests/fixtures/imports.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_FOUND = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "imports.yaml").read_text(encoding="utf-8"))


def of(test: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a test."""
    return [tuple(row) for row in _FOUND[test]]
