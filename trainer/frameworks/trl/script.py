"""Reads a shell script that starts TRL's GRPO script with options into keys with their lines. Pure; runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from search_spaces.knobs.model import show
from search_spaces.yaml_text import Entry
from trainer.frameworks.common.config_entries import ENVIRONMENT, OF_THE_LAUNCH, ConfigError, Faults, problem
from trainer.frameworks.common.imported import asked_for, unknown
from trainer.frameworks.common.launcher import Launch, launch_of, sharding_of, uncounted
from trainer.frameworks.common.script_folder import folder_notes
from trainer.frameworks.common.server_script import serves
from trainer.frameworks.common.shell import Command
from trainer.frameworks.common.training_script import options_of, own_program, refer, refuse_config, training_commands
from trainer.frameworks.trl.key_handling import MEASURING
from trainer.frameworks.trl.keys import NATIVE

_NAMES = re.compile(r"grpo|gspo", re.IGNORECASE)
_OPTIONS = ("--num_generations", "--reward_funcs", "--use_vllm")
"""Beginnings of options that GRPO alone has."""
_TRLS = re.compile(r"(?:^|[/.])grpo(?:\.py)?$")
"""Matches the name of TRL's script."""
_INPUTS: Mapping[str, str] = {
    "model_name_or_path": "model",
    "reward_funcs": "rewards",
    "dataset_name": "data",
    "max_completion_length": "max_completion_length",
}
"""Key -> field of a request."""
_REFUSED: Mapping[str, str] = {
    "vlm": "a vision model: a trial of TRL has prompts of text only",
    "agent": "tools: a trial has one turn, without tools",
    "openenv": "an environment of several turns: a trial has one turn",
    "async_grpo": "asynchronous GRPO: a trial trains in step with its completions",
}
"""Part of a script's path -> its kind of training, and the reason of the refusal."""


@dataclass(frozen=True)
class Script:
    """Keys of a script with their lines."""

    keys: dict[str, Entry]
    """Key -> its words, an entry each; ``env`` is a mapping."""
    launch: Launch = field(default_factory=Launch)
    unread: tuple[ConfigError, ...] = ()
    """Options of the launcher that decide a trial, and are read from an accelerate file only."""
    notes: tuple[str, ...] = ()
    asked: Mapping[str, str] = field(default_factory=dict)
    """Same as ``Imported.asked``."""
    folder: str | None = ""
    """Working directory of the training (``Command.folder``)."""


def read_script(text: str, name: str, faults: Faults) -> Script:
    """Reads the keys of the one training command.

    Args:
        faults: collects every option that cannot be read.

    Raises:
        ConfigError: no such command, several, or keys in a file.
    """
    command, at = _training(text, name)
    entry, words = command.words[at], command.words[at + 1 :]
    for part, why in _REFUSED.items():
        if part in entry.text:
            raise problem(name, entry.line, f"{show(entry.text)} trains with {why}")
    if "open_r1" in entry.text or not _TRLS.search(entry.text):
        raise own_program(entry, name, "TRL's script")
    launch = launch_of(command.words[:at])
    refuse_config(words, launch, name, serves=serves(text, name))
    keys: dict[str, Entry] = {}
    notes = list(uncounted(launch, name))
    options = list(options_of(words, name, faults))
    rollout = any(key == "generation_batch_size" for key, _, _ in options)  # it is counted in micro-batches
    knobs = {knob: key for knob, key in NATIVE.items() if not (rollout and knob == "micro_batch_size")}
    asked: dict[str, str] = {}
    for key, first, own in options:
        hidden = next((word for word in own if word.unknown), None)
        if hidden is None:
            keys[key] = Entry([Entry(word.text, word.line) for word in own], first.line)
        elif key in MEASURING:
            said = f"{key}: {show(hidden.unknown)} is known to a shell only; a trial does without it"
            notes.append(str(problem(name, first.line, said)))
        elif wanted := asked_for(key, _INPUTS, knobs) if len(own) == 1 else "":
            asked[wanted] = str(unknown(name, first.line, key, show(hidden.unknown), wanted))
        else:
            faults.add(unknown(name, hidden.line, key, show(hidden.unknown)))
    variables = {key: word for key, word in command.environment.items() if not OF_THE_LAUNCH.fullmatch(key)}
    if own_variables := {key: Entry(word.text, word.line) for key, word in variables.items() if not word.unknown}:
        keys[ENVIRONMENT] = Entry(dict(own_variables), entry.line)
    for key, word in variables.items():
        if word.unknown:
            said = f"{key}: {show(word.unknown)} is known to a shell only; a trial does without it"
            notes.append(str(problem(name, word.line, said)))
    notes += folder_notes(name, command.folder)
    return Script(keys, launch, tuple(_unread(launch, name)), tuple(notes), asked, command.folder)


def _training(text: str, name: str) -> tuple[Command, int]:
    """Returns the one training command, and its script's index; of equal ones the first."""
    every = list({tuple(word.text for word in pair[0].words): pair for pair in training_commands(text, name)}.values())
    by_name = [(command, at) for command, at in every if _NAMES.search(command.words[at].text)]
    by_option = [pair for pair in every if any(word.text.startswith(_OPTIONS) for word in pair[0].words)]
    likely = by_option or by_name or every
    if len(likely) == 1:
        return likely[0]
    if not likely:
        refer(text, name, "trl")
    said = "expected one command that trains (`accelerate launch grpo.py --model_name_or_path ...`, `trl grpo ...`)"
    line, count = (likely[1][0].words[0].line, len(likely)) if likely else (0, "none")
    raise problem(name, line, f"{said}, found {count}; give a script with one of them")


def plain_keys(keys: Mapping[str, Entry]) -> dict[str, object]:
    """Returns the words of ``keys`` as the values of a YAML file."""
    return {key: _plain(entry) for key, entry in keys.items()}


def _plain(entry: Entry) -> object:
    if not isinstance(entry.value, list):
        return entry.plain
    texts = [str(item.value) for item in entry.value]
    words = [{"true": True, "false": False}.get(text.lower(), text) for text in texts]
    return True if not words else words[0] if len(words) == 1 else words


def _unread(launch: Launch, name: str) -> Iterator[ConfigError]:
    for option, word in sharding_of(launch):
        if option == "config_file":
            said = f"--config_file: it says how the run is sharded; give it with --accelerate {word.text}"
        elif "megatron" in option:
            said = f"--{option}: Megatron is not supported: a trial shards with DeepSpeed or FSDP; remove it"
        else:
            said = f"--{option}: a trial reads it from an accelerate file only; write one and give it with --accelerate"
        yield problem(name, word.line, said)
