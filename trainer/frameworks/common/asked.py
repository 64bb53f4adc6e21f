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
"""Field of a request -> the option that gives it."""
KNOB = "set."
"""Before the name of a knob, where ``--set`` gives it."""


def asked_for(key: str, inputs: Mapping[str, str], knobs: Mapping[str, str]) -> str:
    """What the command line can give in place of ``key``: a field of a request, or ``KNOB`` and a name; else nothing.

    Args:
        inputs: its keys of inputs -> fields.
        knobs: knobs -> its keys, where a knob is a key and nothing else counts by it.
    """
    named = next((knob for knob, own in knobs.items() if own == key), "")
    return inputs.get(key) or (KNOB + named if named else "")


def unknown(name: str, line: int, key: str, written: str, field: str = "") -> ConfigError:
    """The sentence on a ``key`` whose value ``written`` only a shell knows; ``field`` is as ``asked_for`` has it."""
    option = INPUTS.get(field) or (f"--set {field.removeprefix(KNOB)}=..." if field else "")
    give = f"give {option}, or " if option else ""
    return problem(name, line, f"{key}: {written} is known to a shell only; {give}write its value out")
