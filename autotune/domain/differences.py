"""Differences between two configurations, two specifications or two pieces of plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from autotune.domain.studies import StudySpec
from search_spaces.configuration import Configuration, KnobValue
from search_spaces.knobs import KNOBS

Differences = dict[str, tuple[KnobValue | None, KnobValue | None]]
"""Knob -> (before, after); ``None`` where a side does not set it."""

DERIVED = frozenset(name for name, knob in KNOBS.items() if knob.derived)
"""Knobs that nobody chooses: their values follow from others."""

STEPS, ACCUMULATION = "steps_per_generation", "gradient_accumulation_steps"

SHORT_LIST = 8
"""Longer ones are shown as a whole where two differ."""


def chosen_differences(before: Configuration, after: Configuration) -> Differences:
    """``before.difference(after)`` without knobs that follow from others.

    Steps per generation are compared as a share of an update, because that is what they do.
    """
    found = {name: pair for name, pair in before.difference(after).items() if name not in DERIVED}
    share = update_share(before)
    if STEPS in found and share is not None and share == update_share(after):
        del found[STEPS]
    return found


def update_share(configuration: Configuration) -> Fraction | None:
    """Share of an update's rows that one generation produces; ``None`` if the knobs are not numbers."""
    steps, whole = configuration.get(STEPS), configuration.get(ACCUMULATION)
    return Fraction(steps, whole) if isinstance(steps, int) and isinstance(whole, int) and whole > 0 else None


def spec_differences(before: StudySpec, after: StudySpec) -> list[str]:
    """``place: before -> after`` for everything in which two specifications differ."""
    return differing(before.identity(), after.identity())


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
