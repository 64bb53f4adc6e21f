"""What the texts of an export share, whichever framework they are for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from search_spaces import yaml_edit
from trainer.frameworks.common.scripts import comment


def sections_text(title: str, sections: Mapping[str, Mapping[str, Any]]) -> str:
    """A whole YAML file: what it is of, and then its keys under a head for each section."""
    lines = [f"# {comment(title)}"]
    for head, keys in sections.items():
        lines += ["", f"# {head}"]
        lines += [f"{yaml_edit.scalar(key)}: {yaml_edit.scalar(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def difference(own: str, made: str, name: str, called: str = "your configuration") -> str:
    """Changes of ``made`` against the user's ``own`` text; empty without one.

    Args:
        called: what the user's is called.
    """
    if not own:
        return ""
    return "\n".join(difflib.unified_diff(own.splitlines(), made.splitlines(), called, name, lineterm=""))


def same_model(own: Any, used: str) -> bool:
    """Whether the user's file names the model the study ran, perhaps by a relative path."""
    if not isinstance(own, str):
        return False
    tail = "/".join(part for part in own.split("/") if part not in ("", ".", "..", "~"))
    return own == used or (bool(tail) and f"/{used.rstrip('/')}".endswith(f"/{tail}"))


def fill(beside: str, template: str, **values: str) -> str:
    """A text of ``templates/*.txt`` beside the code, with every ``$name`` in it replaced.

    Args:
        beside: the module it belongs to, as ``__file__``.
    """
    return Template((Path(beside).parent / "templates" / f"{template}.txt").read_text(encoding="utf-8")).substitute(
        values
    )
