"""Where two pieces of plain data differ, as lines for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

SHORT_LIST = 8
"""Longer ones are shown as a whole where two differ."""


def differing(before: Any, after: Any, where: str = "") -> list[str]:
    """``place: before -> after`` for every leaf in which two pieces of plain data differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found: list[str] = []
        for key in sorted(set(before) | set(after)):
            place = f"{where}.{key}" if where else str(key)
            found += differing(before.get(key), after.get(key), place)
        return found
    if before == after:
        return []
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after) <= SHORT_LIST:
        pairs = enumerate(zip(before, after, strict=True))
        return [line for index, (old, new) in pairs for line in differing(old, new, f"{where}[{index}]")]
    return [f"{where}: {_short(before)} -> {_short(after)}"]


def _short(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, Mapping | Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
