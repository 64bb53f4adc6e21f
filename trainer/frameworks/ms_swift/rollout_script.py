"""The script that starts a user's rollout server, where it is not the one that trains. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.knobs.model import show
from trainer.frameworks.common.config_entries import meant, problem
from trainer.frameworks.common.fields import Field, FieldError
from trainer.frameworks.common.server_script import PORT, Served, with_gpus, without
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.common.words import typed
from trainer.frameworks.ms_swift.given import SERVERS_OWN, rollout_given
from trainer.frameworks.ms_swift.key_handling import refusal
from trainer.frameworks.ms_swift.key_tables import SERVED
from trainer.frameworks.ms_swift.key_values import from_keys


def server_knobs(text: str, name: str, fields: Mapping[str, Field]) -> Served:
    """The knobs of the server's command.

    Args:
        text: a shell script with ``swift rollout``.
        fields: the arguments of ``swift rlhf``, which takes the server's too.

    Raises:
        ConfigError: naming file, line, argument, and what was expected or what to do.
    """
    command, given, count = rollout_given(text, name)
    values, notes = {}, []
    if count > 1:
        several = f"it starts {count} rollout servers alike, and a trial starts one, on GPUs of its own machine"
        notes.append(str(problem(name, command.words[0].line, several)))
    for key, own in given.items():
        why = refusal(key, list(own.words))
        if why is not None:
            raise problem(name, own.line, f"{key}: {why}")
        if key in SERVED:
            try:
                values[key] = typed(fields[key], own.words)
            except FieldError as error:
                raise problem(name, own.line, f"{key}: {error}") from None
        elif key not in fields and (key.startswith("vllm_") or f"vllm_{key}" in fields):
            raise problem(name, own.line, f"`swift rollout` has no argument {show(key)}; {meant(key, SERVED, 0.75)}")
        elif key not in SERVERS_OWN:
            notes.append(str(without(name, own.line, key)))
    try:
        knobs = from_keys(values)
    except KnobKeyError as error:
        line = given[error.key].line if error.key in given else 0
        raise problem(name, line, f"{error.key}: {error.text}") from None
    said = {key: "" if own.unknown else own.words[0] for key, own in given.items() if own.words}
    return Served(
        with_gpus(knobs, command, name),
        notes=tuple(notes),
        host=said.get("host", ""),
        port=said.get("port", PORT),
        model=said.get("model", ""),
    )
