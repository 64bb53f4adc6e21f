"""Reads a user's own TRL config: knobs become the baseline, the rest is workload. Pure; opens and evaluates nothing.

The parent calls: ``named_files`` of the text, whose files it reads; ``read_keys``, whose result goes to the child's
``describe``; ``fields_of`` the child's answer; ``import_config``; and last ``imported.located``, if the child answered
that TRL refuses the keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show, whole_number
from search_spaces.yaml_text import Entry, plain
from trainer.frameworks.common import config_entries, server_script, training_script
from trainer.frameworks.common.accelerate_file import FSDP, AccelerateFile, read_file
from trainer.frameworks.common.config_entries import ConfigError, Faults, Imported, Reading
from trainer.frameworks.common.deepspeed import ZERO, at, said_otherwise
from trainer.frameworks.common.fields import Field, FieldError, typed
from trainer.frameworks.common.launcher import Launch, described, launch_of, sharding_of, uncounted
from trainer.frameworks.common.script_folder import folder_notes, in_folder
from trainer.frameworks.common.server_script import Served
from trainer.frameworks.common.shell import Command
from trainer.frameworks.common.trainer_keys import all_knobs
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.trl.key_handling import (
    INPUTS,
    MEASURING,
    PRESETS,
    PROCESSES,
    REFUSED_INSIDE,
    SHARDED,
    note,
    refusal,
)
from trainer.frameworks.trl.keys import NATIVE, OTHERS, from_keys, rest
from trainer.frameworks.trl.server import PROGRAM, starts_server, wants_server

_NAMES = re.compile(r"grpo|gspo", re.IGNORECASE)
_OPTIONS = ("--num_generations", "--reward_funcs", "--use_vllm")
"""Beginnings of options that only GRPO scripts have."""
_SCRIPTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "trl": (re.compile(r"(?:^|(?<!open_r1)[/.])grpo(?:\.py)?$"), "TRL's script"),
    "openr1": (re.compile(r"(?:^|[/.])grpo(?:\.py)?$"), "open_r1/grpo.py"),
}
"""Framework -> pattern of its script's path, and the script's name in messages."""
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
"""Part of a script's path -> its kind of training, which is refused, and the reason."""


Framework = tuple[str, Mapping[str, str], Container[str]]
"""(A key of ``_SCRIPTS``, knob -> key, keys that a trial ignores)."""
TRL: Framework = ("trl", NATIVE, MEASURING)


@dataclass(frozen=True)
class Script:
    """Keys of a script with their lines."""

    keys: dict[str, Entry]
    """Key -> its words, an entry each; ``env`` is a mapping."""
    launch: Launch = field(default_factory=Launch)
    unread: tuple[ConfigError, ...] = ()
    """Errors on launcher options that change a trial and are read from an accelerate file only."""
    notes: tuple[str, ...] = ()
    asked: Mapping[str, str] = field(default_factory=dict)
    """As ``Imported.asked``."""
    folder: str | None = ""
    """Working directory of the training (``Command.folder``)."""


def read_script(text: str, name: str, faults: Faults, framework: Framework = TRL) -> Script:
    """Reads the keys of the one training command.

    Args:
        faults: collects every option that cannot be read.

    Raises:
        ConfigError: no such command, several, or keys in a file.
    """
    start, native, measuring = framework
    command, at = _training(text, name, start)
    entry, words = command.words[at], command.words[at + 1 :]
    for part, why in _REFUSED.items():
        if part in entry.text:
            raise config_entries.problem(name, entry.line, f"{show(entry.text)} trains with {why}")
    pattern, said = _SCRIPTS[start]
    if not pattern.search(entry.text):
        raise training_script.own_program(entry, name, said, start)
    launch = launch_of(command.words[:at])
    training_script.refuse_config(words, launch, text, name, serves=server_script.serves(text, name))
    keys: dict[str, Entry] = {}
    notes = list(uncounted(launch, name))
    options = list(training_script.options_of(words, name, faults))
    rollout = any(key == "generation_batch_size" for key, _, _ in options)  # it is counted in micro-batches
    knobs = {knob: key for knob, key in native.items() if not (rollout and knob == "micro_batch_size")}
    asked: dict[str, str] = {}
    for key, first, own in options:
        hidden = next((word for word in own if word.unknown), None)
        if hidden is None:
            keys[key] = Entry([Entry(word.text, word.line) for word in own], first.line)
        elif key in measuring:
            said = f"{key}: {show(hidden.unknown)} is known to a shell only; a trial does without it"
            notes.append(str(config_entries.problem(name, first.line, said)))
        elif wanted := config_entries.asked_for(key, _INPUTS, knobs) if len(own) == 1 else "":
            asked[wanted] = str(config_entries.unknown(name, first.line, key, show(hidden.unknown), wanted))
        else:
            faults.add(config_entries.unknown(name, hidden.line, key, show(hidden.unknown)))
    variables = {
        key: word for key, word in command.environment.items() if not config_entries.OF_THE_LAUNCH.fullmatch(key)
    }
    if own_variables := {key: Entry(word.text, word.line) for key, word in variables.items() if not word.unknown}:
        keys[config_entries.ENVIRONMENT] = Entry(dict(own_variables), entry.line)
    for key, word in variables.items():
        if word.unknown:
            said = f"{key}: {show(word.unknown)} is known to a shell only; a trial does without it"
            notes.append(str(config_entries.problem(name, word.line, said)))
    notes += folder_notes(name, command.folder)
    return Script(keys, launch, tuple(_unread(launch, text, name)), tuple(notes), asked, command.folder)


def _training(text: str, name: str, own: str) -> tuple[Command, int]:
    """Returns the only training command and the index of its program in ``words``; raises if several differ."""
    every = list(
        {
            tuple(word.text for word in pair[0].words): pair for pair in training_script.training_commands(text, name)
        }.values()
    )
    by_name = [(command, at) for command, at in every if _NAMES.search(command.words[at].text)]
    by_option = [pair for pair in every if any(word.text.startswith(_OPTIONS) for word in pair[0].words)]
    likely = by_option or by_name or every
    if len(likely) == 1:
        return likely[0]
    if not likely:
        training_script.refer(text, name, own)
    said = "expected one command that trains (`accelerate launch grpo.py --model_name_or_path ...`, `trl grpo ...`)"
    line, count = (likely[1][0].words[0].line, len(likely)) if likely else (0, "none")
    raise config_entries.problem(name, line, f"{said}, found {count}; give a script with one of them")


def _plain(entry: Entry) -> object:
    """Converts an option's words to the value that a YAML file would have."""
    if not isinstance(entry.value, list):
        return entry.plain
    texts = [str(item.value) for item in entry.value]
    words = [{"true": True, "false": False}.get(text.lower(), text) for text in texts]
    return True if not words else words[0] if len(words) == 1 else words


def _unread(launch: Launch, text: str, name: str) -> Iterator[ConfigError]:
    for option, word in sharding_of(launch):
        if option == "config_file":
            file = described(word, text, name)
            said = f"--config_file: it says how the run is sharded; give it with --accelerate {file}"
        elif "megatron" in option:
            said = f"--{option}: Megatron is not supported: a trial shards with DeepSpeed or FSDP; remove it"
        else:
            said = f"--{option}: a trial reads it from an accelerate file only; write one and give it with --accelerate"
        yield config_entries.problem(name, word.line, said)


FILES = ("deepspeed", "fsdp_config")
"""Keys that take a mapping, or the path of a JSON file with a mapping."""
_NO_FILES: Mapping[str, str] = {}
NO_LAUNCH = AccelerateFile()
"""A launch with an unknown number of processes."""
_RENAMED: Mapping[str, str] = {"offload_params": "cpu_offload"}
"""accelerate's key without ``fsdp_`` -> the key of ``fsdp_config``."""


def named_files(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Returns key -> (path, line) of the files that the config names. Raises ConfigError like ``read_keys``."""
    config = Config(text, name)
    found: dict[str, tuple[str, int]] = {}
    for key, entry in config.entries.items():
        word, own_file = config.plain(key), key in SHARDED
        is_path = own_file or (key in FILES and isinstance(word, str) and word.strip()[:1] not in ("", "{"))
        if is_path and isinstance(word, str) and not (own_file and (word in PRESETS or {*"/."}.isdisjoint(word))):
            found[key] = (in_folder(word, config.script.folder) if config.script else word, entry.line)
    return found


def read_keys(text: str, name: str, files: Mapping[str, str] = _NO_FILES) -> dict[str, Any]:
    """Returns the file's keys as plain YAML values, for the child's ``describe``, without keys that are always refused.

    Args:
        text: the file, at most 64 KiB; undecodable bytes as surrogates are refused with their line.
        files: key -> text of the file it names (``named_files``), which replaces the path.

    Raises:
        ConfigError: the file is not a mapping of plain values.
    """
    config = Config(text, name, files)
    return {key: config.plain(key) for key in config.entries if key not in (PROCESSES, *SHARDED)}


def import_config(
    text: str,
    name: str,
    fields: Mapping[str, Field],
    processes: int = 1,
    files: Mapping[str, str] = _NO_FILES,
    accelerate: AccelerateFile = NO_LAUNCH,
    *,
    server: str = "",
    server_name: str = "the script of the rollout server",
) -> Imported:
    """Reads the file's keys into knobs, inputs and ``passthrough``.

    Args:
        fields: the installed TRL's keys.
        processes: training processes, for ``generation_batch_size``, if the launch sets no number.
        accelerate: accelerate's file of the launch.
        server: a shell script that starts the rollout server; its options win. Empty without one.

    Raises:
        ConfigError: with file, line, key, and the expected value or a remedy.
    """
    config = Config(text, name, files)
    script, faults = config.script, config.faults
    own_launch = config.launch()
    accelerate = own_launch if accelerate is NO_LAUNCH else accelerate
    values = config.values = config.typed(fields)
    launched = own_launch.processes or _launched(script, accelerate, server, server_name, faults)
    beside = keys_beside(values, accelerate)
    whole = {**values, **beside}
    knobs = config.knobs(whole, fields, launched or processes, accelerate)
    environment = faults.of(config.environment, _NO_FILES)
    rewards = faults.of(lambda: config.rewards(values.get("reward_funcs")), tuple[str, ...]())
    served = faults.of(lambda: config.server_of(text, knobs, server, server_name), server_script.NO_SERVER)
    faults.raise_collected()
    own = {**({"env": dict(environment)} if "env" in config.entries else {}), **served.keys}
    return Imported(
        knobs={**knobs, **served.knobs},
        passthrough={**{key: value for key, value in rest(whole).items() if key not in INPUTS}, **own},
        model=values.get("model_name_or_path"),
        dataset={key: values[key] for key in values if fields[key].group == "dataset" or key.startswith("dataset_")},
        rewards=rewards,
        max_completion_length=config.length("max_completion_length", nullable=False),
        lines=config.lines,
        text=text,
        notes=(*config.notes(), *_beside_notes(beside, accelerate), *served.notes),
        asked=script.asked if script else {},
        processes=launched,
    )


class Config(Reading):
    """State of reading a configuration of TRL's trainer: a file, or a script that starts TRL."""

    FRAMEWORK: ClassVar[Framework] = TRL
    KIND: ClassVar[tuple[str, str]] = ("config", "TRL's keys")
    """Names of the file and of its keys in messages."""
    OTHERS: ClassVar[Mapping[str, str]] = OTHERS
    INSIDE: ClassVar[Mapping[tuple[str, str], str]] = REFUSED_INSIDE
    refusal = staticmethod(refusal)

    def __init__(self, text: str, name: str, files: Mapping[str, str] = _NO_FILES) -> None:
        super().__init__(name)
        self.files = files
        is_script = training_script.is_script(text, name)
        self.script = read_script(text, name, self.faults, self.FRAMEWORK) if is_script else None
        keys = self.script.keys if self.script else config_entries.read_mapping(text, name, *self.KIND)
        for key in (key for key in self.OTHERS if key in keys):
            said = f"{key} is not TRL's; read the file with --framework {self.OTHERS[key]}"
            raise config_entries.problem(name, keys[key].line, said)
        self.entries: dict[str, Entry] = {}
        """Keys in file order, without keys that are always refused; a named file's content replaces its path."""
        for key, entry in keys.items():
            with self.faults.caught():
                config_entries.check_storable(key, entry, name)
                why = self.refusal(key, _plain(entry) if self.script else entry.plain)
                if why is not None:
                    raise config_entries.problem(name, entry.line, f"{key}: {why}")
                named = key in FILES and key in files
                self.entries[key] = _from_file(key, entry, files[key], name) if named else entry
        self.lines = config_entries.lines_of(self.entries)

    def plain(self, key: str) -> object:
        """Returns the value of ``key`` as a YAML file has it."""
        return _plain(self.entries[key]) if self.script else self.entries[key].plain

    def launch(self) -> AccelerateFile:
        """Returns the launch that the file sets for ``trl grpo``, and removes its keys."""
        lines = self.lines
        said = {key: str(_plain(self.entries[key])) for key in (PROCESSES, *SHARDED) if key in self.entries}
        self.entries = {key: entry for key, entry in self.entries.items() if key not in said}
        self.lines = config_entries.lines_of(self.entries)
        found = NO_LAUNCH
        for key in (key for key in SHARDED if key in said):
            preset = PRESETS.get(said[key])
            if preset is None and key not in self.files:
                text = f"{key}: {show(said[key])} is no file, and TRL has {', '.join(PRESETS)} by that key"
                self.faults.add(config_entries.problem(self.name, lines[key], text))
                continue
            with self.faults.caught():
                found = read_file(preset or self.files[key], said[key], _NO_FILES)
            if preset:
                of = f"{self.name}, line {lines[key]}: {key} {said[key]}"
                found = replace(found, name=of, lines=dict.fromkeys(found.lines, 0))
        count = whole_number(said[PROCESSES]) if PROCESSES in said else found.processes
        if PROCESSES in said and not count:
            text = f"{PROCESSES}: expected a whole number of at least 1"
            self.faults.add(config_entries.problem(self.name, lines[PROCESSES], text))
        return replace(found, processes=count) if count else found

    def typed(self, fields: Mapping[str, Field], keys: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns key -> value by type, for ``keys`` (default: all); collects and omits values of the wrong type."""
        values: dict[str, Any] = {}
        for key in self.entries if keys is None else keys:
            with self.faults.caught():
                if key != config_entries.ENVIRONMENT:
                    values[key] = self._value(key, self.entries[key], fields)
        return values

    def _value(self, key: str, entry: Entry, fields: Mapping[str, Field]) -> Any:
        if key not in fields:
            section = "write its keys at the top level, without it" if isinstance(entry.value, dict) else ""
            advice = section or config_entries.closest(key, [*fields, config_entries.ENVIRONMENT])
            raise config_entries.problem(self.name, entry.line, f"TRL's GRPO script has no key {show(key)}; {advice}")
        words = entry.value if self.script and key not in self.files and isinstance(entry.value, list) else None
        try:
            own = fields[key]
            value = own.typed(entry.plain) if words is None else typed(own, [str(item.value) for item in words])
        except FieldError as error:
            raise self.problem(key, str(error)) from None
        inside = self._inside(key, entry, value)
        for inner in inside:
            if (key, inner) in self.INSIDE:
                line = inside[inner].line or entry.line
                raise config_entries.problem(self.name, line, f"{key}.{inner}: {self.INSIDE[key, inner]}")
        return value

    def _inside(self, key: str, entry: Entry, value: Any) -> Mapping[str, Entry]:
        """Returns the entries of a mapping, written as YAML or, as TRL also accepts, as JSON text."""
        if isinstance(entry.value, dict) or not isinstance(value, dict):
            return entry.value if isinstance(entry.value, dict) else {}
        try:
            found = plain(value, self.name)
        except SpaceError:
            raise self.problem(key, "it is nested too deep") from None
        config_entries.check_storable(key, Entry(found.value, entry.line), self.name)
        return found.value if isinstance(found.value, dict) else {}

    def knobs(
        self, whole: Mapping[str, Any], fields: Mapping[str, Field], processes: int, accelerate: AccelerateFile
    ) -> dict[str, KnobValue]:
        """Returns the knobs of the configuration and its launch; reports each fault with the file that has it."""

        def report_error(error: KnobKeyError) -> None:
            key, _, place = error.key.partition(".")
            if key in self.values or key not in whole:
                self.report(error)
            elif key == "deepspeed":
                self.faults.add(accelerate.problem(place, error.text))
            else:
                said, line = place_of(error.key, accelerate)
                self.faults.add(config_entries.problem(accelerate.name, line, f"{said}: {error.text}"))

        knobs = all_knobs(lambda keys: from_keys(keys, processes), whole, report_error)
        # DeepSpeed's precision is compared with the configuration's own keys, not with the launcher's.
        half = {key: self.values[key] for key in ("bf16", "fp16") if isinstance(self.values.get(key), bool)}
        own = from_keys({} if half.get("bf16") and half.get("fp16") else half)
        precision = own.get("precision", defaults("trl")["precision"])
        computing = {key: precision == key or self.values.get(f"{key}_full_eval") is True for key in ("bf16", "fp16")}
        unset = {key: field.default for key, field in fields.items()}
        for place, text in said_otherwise(whole.get("deepspeed"), {**self.values, **computing}, unset, processes):
            report_error(KnobKeyError(f"deepspeed.{place}", text))
        return knobs

    def environment(self, *, any_name: bool = False) -> Mapping[str, str]:
        """Returns the user's own variables (``config_entries.environment_of``)."""
        entry = self.entries.get(config_entries.ENVIRONMENT)
        return {} if entry is None else config_entries.environment_of(entry, self.name, any_name=any_name)

    def server_of(self, text: str, knobs: dict[str, KnobValue], server: str, server_name: str) -> Served:
        """Reads the script that starts the rollout server, which may be the training's own script ``text``.

        Removes a colocated engine's settings from ``knobs`` and lines, with a note.
        """
        itself = text if self.script and starts_server(text, self.name, knobs) else ""
        script = server_script.paired(self.name, server, server_name, itself=itself)
        if not script.text:
            return server_script.NO_SERVER
        if not wants_server(knobs):
            mode = "vllm_mode: server" if script.training == self.name else "--use_vllm --vllm_mode server"
            raise server_script.unused(script.name, script.training, mode)
        found = server_script.read_server(script.text, script.name, PROGRAM)
        server_script.check_pair(found, script.name, script.training, self.values)
        for knob in server_script.OF_COLOCATED.values():
            knobs.pop(knob, None)
        notes = [
            str(self.problem(key, server_script.NOT_OF_SERVER))
            for key in server_script.OF_COLOCATED
            if key in self.entries
        ]
        self.lines = {key: line for key, line in self.lines.items() if key not in server_script.OF_COLOCATED}
        other = server_script.other_model(found, script.name, self.values.get("model_name_or_path"))
        unread = server_script.unread_options(script.text, script.name, self.name) if script.name != self.name else []
        return replace(found, notes=(*notes, *other, *unread, *found.notes))

    def notes(self) -> Iterator[str]:
        """Yields notes on the script, and on keys with an unexpected handling."""
        yield from self.script.notes if self.script else ()
        said = ((key, note(key, self.values)) for key in self.values)
        yield from (str(self.problem(key, text)) for key, text in said if text is not None)


def _launched(script: Script | None, accelerate: AccelerateFile, server: str, server_name: str, faults: Faults) -> int:
    """Returns the number of training processes that a launch starts; 0 if unknown."""
    for error in script.unread if script and accelerate is NO_LAUNCH else ():
        faults.add(error)
    counted = (
        script.launch.processes
        if script
        else faults.of(lambda: server_script.training_processes(server, server_name), 0)
    )
    return counted or accelerate.processes or 0


def _beside_notes(trainer_keys: Mapping[str, Any], accelerate: AccelerateFile) -> Iterator[str]:
    stage = at(trainer_keys.get("deepspeed"), (ZERO, "stage"))
    if "deepspeed" in trainer_keys and not stage:
        text = "deepspeed_config: at stage 0 a trial trains without DeepSpeed, by DDP"
        yield str(config_entries.problem(accelerate.name, accelerate.line("deepspeed_config"), text))


def _from_file(key: str, entry: Entry, text: str, name: str) -> Entry:
    """Returns the mapping in a JSON file, at the line that names the file."""
    try:
        found = json.loads(text)
        mapping = plain(found, name) if isinstance(found, dict) else None
    except (ValueError, RecursionError, SpaceError) as error:
        raise config_entries.problem(name, entry.line, f"{key}: {show(entry.value)} is not JSON ({error})") from None
    if mapping is None or not isinstance(mapping.value, dict):
        raise config_entries.problem(name, entry.line, f"{key}: {show(entry.value)} holds no JSON object")
    placed = config_entries.at_line(mapping.plain, entry.line)
    config_entries.check_storable(key, placed, name)
    return placed


def keys_beside(values: Mapping[str, Any], file: AccelerateFile) -> dict[str, Any]:
    """Returns the keys that ``file`` sets and the configuration's ``values`` do not.

    transformers takes DeepSpeed and FSDP from the launcher's variables if its own keys set neither
    (``training_args.py:1655-1690`` of 5.17); a key of the configuration takes precedence.
    """
    found: dict[str, Any] = {}
    if file.deepspeed is not None and not values.get("deepspeed"):
        found["deepspeed"] = file.deepspeed
    if file.fsdp is not None and not values.get("fsdp"):
        own = {name.removeprefix("fsdp_"): value for name, value in file.fsdp.items()}
        renamed = {_RENAMED.get(name, name): value for name, value in own.items()}
        found.update(fsdp=True, fsdp_config={"version": 1, **renamed})  # of a file that sets none
    off = values.get("bf16") is False and not values.get("fp16")
    if off and file.deepspeed is None and file.precision in ("bf16", "fp16"):
        found[file.precision] = True  # TRL itself sets bf16 where it is not said
    return found


def place_of(key: str, file: AccelerateFile) -> tuple[str, int]:
    """Returns (accelerate's name, line) of TRL's ``key`` in ``fsdp_config``."""
    inner = key.partition(".")[2]
    names = {name: old for old, name in _RENAMED.items()}
    told = f"{FSDP}.fsdp_{names.get(inner, inner)}"
    return (told, file.lines[told]) if told in file.lines else (FSDP, file.line(FSDP))
