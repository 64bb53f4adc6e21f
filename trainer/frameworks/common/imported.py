"""A user's own config, as every framework's reader returns it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.config_entries import problem


@dataclass(frozen=True)
class Imported:
    """A framework's config, understood."""

    knobs: Mapping[str, KnobValue]
    """Knobs that the file sets; all others have the framework's default."""
    passthrough: Mapping[str, Any]
    """All other keys except inputs, with values as the framework's parser reads them; ``env`` is name -> text."""
    model: str | None
    dataset: Mapping[str, Any]
    """Keys on the place of the prompts: ``dataset_...``, ``datasets`` and related keys."""
    rewards: tuple[str, ...]
    """Names as in ``reward_funcs``."""
    max_completion_length: int | None
    lines: Mapping[str, int]
    """Key, and key.inner key of mappings -> line, counted from 1."""
    text: str
    """Text of the file."""
    notes: tuple[str, ...] = ()
    """Notes that the user may not expect, a sentence each with file and line."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Field of a request, or ``asked.KNOB`` and a knob -> a finished sentence: its value is known to a shell only, and
    a named option gives it."""
    processes: int = 0
    """Training processes that the launch starts on all nodes, for verl the training GPUs; 0 if unknown."""
    max_prompt_length: int | None = None
    """Tokens; for Open-R1 the limit at which TRL 0.18 cuts a prompt at its left."""


def located(sentence: str, name: str, lines: Mapping[str, int]) -> str:
    """Adds file ``name`` and the line of the first key that ``sentence`` mentions."""
    words = re.findall(r"[A-Za-z_][\w.]*", sentence)
    mentioned = next((lines[word] for word in (w.rstrip(".") for w in words) if word in lines), 0)
    return str(problem(name, mentioned, sentence.rstrip(".")))
