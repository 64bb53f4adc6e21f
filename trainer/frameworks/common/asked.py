"""Values of a script that only a shell knows, such as ``$MODEL``, and the command-line option for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.frameworks.common.config_entries import ConfigError, problem

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


def unknown(name: str, line: int, key: str, written: str, field: str = "") -> ConfigError:
    """Builds the error on ``key`` whose value ``written`` only a shell knows; ``field`` is from ``asked_for``."""
    option = INPUTS.get(field) or (f"--set {field.removeprefix(KNOB)}=..." if field else "")
    give = f"give {option}, or " if option else ""
    return problem(name, line, f"{key}: {written} is known to a shell only; {give}write its value out")
