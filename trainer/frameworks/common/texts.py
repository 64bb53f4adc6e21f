"""Builds the text files of an export: YAML with headings, templates, and a diff against the user's file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from search_spaces import yaml_edit
from trainer.frameworks.common.scripts import comment


def whole_text(
    title: str, inputs: Mapping[str, Any], tuned: Mapping[str, Any], run: Mapping[str, Any], others: str = ""
) -> str:
    """Formats a whole YAML file: inputs, knobs, and the keys of ``run`` that are in neither under ``others``."""
    left = {key: value for key, value in run.items() if key not in inputs and key not in tuned}
    lines = [f"# {comment(title)}"]
    heads = {"model, data and reward": inputs, "what was tuned": tuned, others or "everything else": left}
    for head, keys in heads.items():
        lines += ["", f"# {head}"]
        lines += [f"{yaml_edit.scalar(key)}: {yaml_edit.scalar(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def difference(own: str, made: str, name: str, called: str = "your configuration") -> str:
    """Returns the diff from the user's ``own`` text to ``made``; empty without an own text.

    ``called`` is the name of the user's text in the diff.
    """
    if not own:
        return ""
    return "\n".join(difflib.unified_diff(own.splitlines(), made.splitlines(), called, name, lineterm=""))


def same_model(own: Any, used: str) -> bool:
    """Tells whether the user's file names the model of the study, perhaps by a relative path."""
    if not isinstance(own, str):
        return False
    tail = "/".join(part for part in own.split("/") if part not in ("", ".", "..", "~"))
    return own == used or (bool(tail) and f"/{used.rstrip('/')}".endswith(f"/{tail}"))


def fill(beside: str, template: str, **values: str) -> str:
    """Reads ``templates/*.txt`` next to the module file ``beside`` and replaces every ``$name``."""
    return Template((Path(beside).parent / "templates" / f"{template}.txt").read_text(encoding="utf-8")).substitute(
        values
    )
