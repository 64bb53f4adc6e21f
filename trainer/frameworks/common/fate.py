"""What becomes of a key of a user's own config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from search_spaces.configuration import KnobValue


class Fate(StrEnum):
    """What becomes of a key."""

    KNOB = "knob"
    """The baseline's value; the search may move it."""
    INPUT = "input"
    """Model, prompts, rewards and the completion length, which a study has fields of its own for."""
    MEASURING = "measuring"
    """A trial does without it or sets its own; an exported file keeps it. It moves no figure."""
    WORKLOAD = "workload"
    """Given to every trial unchanged, but for knobs inside a mapping."""
    REFUSED = "refused"
    """A trial cannot honour it; only a value that does nothing is let through, and a trial does without it."""


def uncompiled(keys: Mapping[str, Any], configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """``keys`` of the user's own beside ``configuration``: a compiler named among them would turn compilation on."""
    off = configuration.get("torch_compile") is False
    return {key: value for key, value in keys.items() if not (off and key == "torch_compile_backend")}


def without(passthrough: Mapping[str, Any], *fates: Collection[str]) -> dict[str, Any]:
    """``passthrough`` but for the keys of these fates."""
    return {key: value for key, value in passthrough.items() if not any(key in keys for keys in fates)}
