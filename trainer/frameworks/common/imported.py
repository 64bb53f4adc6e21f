"""A user's own config, as every framework's reader returns it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import show
from trainer.frameworks.common.config_entries import ConfigError, Faults, problem
from trainer.frameworks.common.values import KnobKeyError, count_of


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


class Reading:
    """A user's configuration while it is read: its name, the line of each key, its values and its faults."""

    def __init__(self, name: str) -> None:
        self.name, self.faults = name, Faults()
        self.lines: Mapping[str, int] = {}
        self.values: Mapping[str, Any] = {}

    def line(self, key: str) -> int:
        """Returns the line of ``key``, or of the mapping that holds it; 0 if neither is there."""
        while key not in self.lines and "." in key:
            key = key.rpartition(".")[0]
        return self.lines.get(key, 0)

    def problem(self, key: str, text: str) -> ConfigError:
        """Builds the error on ``key``, which begins with its file and line."""
        return problem(self.name, self.line(key), f"{key}: {text}")

    def report(self, error: KnobKeyError) -> None:
        """Collects the fault of a key that cannot become a knob."""
        self.faults.add(self.problem(error.key, error.text))

    def length(self, key: str, *, nullable: bool = True) -> int | None:
        """Returns the tokens of ``key``; ``None`` if it is not set. Raises ``ConfigError`` for no positive number."""
        value = self.values.get(key)
        if key not in self.values or (nullable and value is None):
            return None
        try:
            return count_of(key, value)
        except KnobKeyError as error:
            raise self.problem(key, error.text) from None

    def rewards(self, names: Any) -> tuple[str, ...]:
        """Returns ``names``. Raises ``ConfigError`` for a name instead of a list, or another number of weights."""
        weights = self.values.get("reward_weights")
        if isinstance(names, str):
            raise self.problem("reward_funcs", f"expected a list of names, got {show(names)}; write [{show(names)}]")
        if names and weights is not None and len(weights) != len(names):
            text = f"expected one for each of the {len(names)} reward_funcs, got {len(weights)}"
            raise self.problem("reward_weights", text)
        return tuple(names or ())


def located(sentence: str, name: str, lines: Mapping[str, int]) -> str:
    """Adds file ``name`` and the line of the first key that ``sentence`` mentions."""
    words = re.findall(r"[A-Za-z_][\w.]*", sentence)
    mentioned = next((lines[word] for word in (w.rstrip(".") for w in words) if word in lines), 0)
    return str(problem(name, mentioned, sentence.rstrip(".")))


INPUTS: Mapping[str, str] = {
    "model": "--model",
    "rewards": "--reward",
    "data": "--data",
    "max_prompt_length": "--max-prompt-length",
    "max_completion_length": "--max-completion-length",
}
"""Field of a request -> its command-line option."""
KNOB = "set."
"""Prefix of a knob's name, for values that ``--set`` gives."""


def asked_for(key: str, inputs: Mapping[str, str], knobs: Mapping[str, str]) -> str:
    """Returns the field of a request, or ``KNOB`` and a knob, that the command line can set for ``key``; empty if none.

    Args:
        inputs: key -> field of a request.
        knobs: knob -> key, for knobs that are one key each.
    """
    named = next((knob for knob, own in knobs.items() if own == key), "")
    return inputs.get(key) or (KNOB + named if named else "")


def unknown(name: str, line: int, key: str, text: str, field: str = "") -> ConfigError:
    """Builds the error on ``key`` whose value ``text`` only a shell knows; ``field`` is from ``asked_for``."""
    option = INPUTS.get(field) or (f"--set {field.removeprefix(KNOB)}=..." if field else "")
    give = f"give {option}, or " if option else ""
    return problem(name, line, f"{key}: {text} is known to a shell only; {give}write its value out")
