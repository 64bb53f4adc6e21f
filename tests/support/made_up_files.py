"""Files of a machine that is only made up."""

from __future__ import annotations

from pathlib import Path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
