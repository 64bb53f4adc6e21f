"""Texts of exported files, kept as ``templates/*.txt`` beside the code, with ``$name`` for what is filled in."""

from __future__ import annotations

from pathlib import Path
from string import Template


def fill(beside: str, template: str, **values: str) -> str:
    """The template of that name with every ``$name`` replaced.

    Args:
        beside: the module it belongs to, as ``__file__``.
    """
    return Template((Path(beside).parent / "templates" / f"{template}.txt").read_text(encoding="utf-8")).substitute(
        values
    )
