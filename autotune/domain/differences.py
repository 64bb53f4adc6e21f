"""Compares two configurations, or two pieces of plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from search_spaces.configuration import Configuration, KnobValue
from search_spaces.knobs import KNOBS

Differences = dict[str, tuple[KnobValue | None, KnobValue | None]]
"""Knob -> (value before, value after); ``None`` where a configuration does not set the knob."""

DERIVED = frozenset(name for name, knob in KNOBS.items() if knob.derived)
"""Knobs whose values follow from other knobs."""

STEPS, ACCUMULATION = "steps_per_generation", "gradient_accumulation_steps"

SHORT_LIST = 8
"""Longest list, in items, that is compared item by item; a longer one is shown as a whole."""


def chosen_differences(before: Configuration, after: Configuration) -> Differences:
    """Returns ``before.difference(after)`` without derived knobs. ``steps_per_generation`` counts only if each
    generation then produces another share of an update."""
    found = {name: pair for name, pair in before.difference(after).items() if name not in DERIVED}
    share = update_share(before)
    if STEPS in found and share is not None and share == update_share(after):
        del found[STEPS]
    return found


def update_share(configuration: Configuration) -> Fraction | None:
    """Returns the share of an update's rows that one generation produces; ``None`` if a knob is not an integer."""
    steps, whole = configuration.get(STEPS), configuration.get(ACCUMULATION)
    return Fraction(steps, whole) if isinstance(steps, int) and isinstance(whole, int) and whole > 0 else None


def differing(before: Any, after: Any, where: str = "") -> list[str]:
    """Returns ``path: before -> after`` for each leaf in which two pieces of plain data differ; ``where`` prefixes
    paths."""
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
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text):  # a digest, whose beginning says as much
        return text[:8]
    return "not set" if value is None else text if len(text) <= 60 else text[:57] + "..."
