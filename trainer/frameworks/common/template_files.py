"""Texts of exported files, kept as ``*.txt`` beside each other, with ``$name`` for what is filled in."""

from __future__ import annotations

from pathlib import Path
from string import Template


class Templates:
    """Those of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self, template: str, **values: str) -> str:
        """The template of that name with every ``$name`` replaced."""
        return Template((self._folder / f"{template}.txt").read_text(encoding="utf-8")).substitute(values)
