"""Texts of exported files: ``*.txt`` beside this one, with ``$name`` for what is filled in."""

from pathlib import Path
from string import Template


def fill(template: str, **values: str) -> str:
    """The template of that name with every ``$name`` replaced."""
    return Template((Path(__file__).parent / f"{template}.txt").read_text(encoding="utf-8")).substitute(values)
