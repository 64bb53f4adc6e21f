"""A user's own config, understood: what every framework's reader makes of it."""

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
    """Those the file sets; what it leaves out has the framework's default."""
    passthrough: Mapping[str, Any]
    """Every other key but the inputs, as the framework's parser would have its value; ``env`` is name -> text."""
    model: str | None
    dataset: Mapping[str, Any]
    """Where the prompts are: ``dataset_...``, ``datasets`` and what goes with them."""
    rewards: tuple[str, ...]
    """Names as in ``reward_funcs``."""
    max_completion_length: int | None
    lines: Mapping[str, int]
    """Key, and key.inner key of mappings -> line, counted from 1."""
    text: str
    """The file as it was given."""
    notes: tuple[str, ...] = ()
    """What the user may not expect, a sentence each with file and line."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Field of a request, or ``asked.KNOB`` and a knob -> a finished sentence: the file names it by what only a shell
    knows, and which option of the command line gives it instead."""
    processes: int = 0
    """Training processes that the launch starts on all nodes; of verl the GPUs that train. 0 if nothing says it."""
    max_prompt_length: int | None = None
    """Tokens; of Open-R1 those from which TRL 0.18 cuts a prompt at its left."""


def located(sentence: str, name: str, lines: Mapping[str, int]) -> str:
    """``sentence`` about the keys of file ``name``, with the line of the first key it mentions."""
    words = re.findall(r"[A-Za-z_][\w.]*", sentence)
    mentioned = next((lines[word] for word in (w.rstrip(".") for w in words) if word in lines), 0)
    return str(problem(name, mentioned, sentence.rstrip(".")))
