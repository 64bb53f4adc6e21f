"""Reads a user's ``swift rlhf`` or ``megatron rlhf`` from a script or file, as arguments with lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from search_spaces.knobs.model import show
from search_spaces.yaml_text import Entry
from trainer.frameworks.common.config_entries import Faults, asked_for, closest, problem, read_mapping, unknown
from trainer.frameworks.common.exported import VISIBLE
from trainer.frameworks.common.fields import Field, FieldError, as_words, typed
from trainer.frameworks.common.launcher import Launch, described, launch_of
from trainer.frameworks.common.script_folder import finds_itself
from trainer.frameworks.common.server_script import PORT, Served, with_gpus, without
from trainer.frameworks.common.shell import CALLERS, Command, Word
from trainer.frameworks.common.training_script import commands_of, options_of, own_program, refer, training_commands
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.ms_swift.key_handling import NOT_NEEDED, refusal
from trainer.frameworks.ms_swift.keys import NATIVE, SERVED, STEPS, from_keys
from trainer.frameworks.ms_swift.megatron import MARKS

ENVIRONMENT = "ENV"
"""Key of a file whose mapping holds environment variables."""
_FILES = (".yaml", ".yml", ".json")
_ENTRY = re.compile(r"(?:^|[/.])swift[/.]cli[/.](rlhf|rollout|main)(?:\.py)?$")
_MEGATRON = re.compile(r"(?:^|/)megatron$|swift[/.]cli[/.]_megatron[/.](?:(rlhf)|main)(?:\.py)?$")
_ASKED: Mapping[str, str] = {
    "model": "model",
    "reward_funcs": "rewards",
    "max_completion_length": "max_completion_length",
}
SERVERS_OWN = frozenset(
    {"model", "model_revision", "host", "port", "torch_dtype", "model_type", "template", "log_level"}
)
"""Arguments of ``swift rollout`` that a trial's server gets from the trial."""
ALONE = "one process"
"""Option name that stands for a launch without a launcher: Python runs one of ms-swift's files as one process."""


@dataclass(frozen=True)
class Argument:
    """Words of an argument, with their places in the text."""

    words: tuple[str, ...]
    line: int
    inner: dict[str, int] = field(default_factory=dict)
    """Key of a mapping -> its line."""
    spans: tuple[tuple[int, int], ...] = ()
    """(First byte, byte after the last) of the argument's own word and of its values in a script."""
    unknown: str = ""
    """Part of the words that needs a shell to evaluate, as written; only for arguments that a trial does not need."""


@dataclass(frozen=True)
class Given:
    """Command, arguments and environment of the run in a text."""

    arguments: dict[str, Argument]
    environment: dict[str, Argument]
    serves: bool = False
    """Whether the script also starts its rollout server, with ``swift rollout``."""
    served: frozenset[str] = frozenset()
    """Arguments of the script's ``swift rollout``."""
    end: int = 0
    """Index of the byte after the last word of ``swift rlhf`` in a script."""
    forwards: bool = False
    """Whether a script passes its own arguments on to the command."""
    launch: Launch = field(default_factory=Launch)
    """Options of the launcher before the command, in a script."""
    hidden: Mapping[str, Argument] = field(default_factory=dict)
    """Variables of a script whose value needs a shell to evaluate."""
    in_place: bool = True
    """Whether every word is written in the command itself, so that an edit changes nothing else."""
    megatron: bool = False
    """Whether the run is ``megatron rlhf``, which has other arguments."""
    engine: Mapping[str, Argument] = field(default_factory=dict)
    """Arguments of a rollout engine in the training command, which a server does not get."""
    folder: str | None = ""
    """Working directory of the training in a script (``Command.folder``)."""


def is_file(name: str) -> bool:
    """Tells whether ``name`` is the name of a YAML or JSON file; any other name is a script's."""
    return PurePosixPath(name).suffix.lower() in _FILES


def read_given(text: str, name: str) -> Given:
    """Reads the arguments that the file or script called ``name`` sets.

    Raises ConfigError without exactly one such run, or for values that need a shell to evaluate.
    """
    return _of_file(text, name) if is_file(name) else _of_script(text, name)


def _of_file(text: str, name: str) -> Given:
    entries = dict(read_mapping(text, name, "config", "ms-swift's arguments"))
    variables = entries.pop(ENVIRONMENT, Entry({}, 0))
    if not isinstance(variables.value, dict):
        raise problem(name, variables.line, f"{ENVIRONMENT}: expected a mapping, got {variables.described}")
    return Given(
        {key: _of_entry(key, entry, name) for key, entry in entries.items()},
        {key: _of_entry(key, entry, name) for key, entry in variables.value.items()},
        megatron=not MARKS.isdisjoint(entries),
        engine={key: _of_entry(key, entry, name) for key, entry in entries.items() if key in SERVED},
    )


def _of_entry(key: str, entry: Entry, name: str) -> Argument:
    if entry.value is None:
        raise problem(name, entry.line, f"{key}: it has no value, and ms-swift would read the word None; remove it")
    inner = {inner: item.line for inner, item in entry.value.items()} if isinstance(entry.value, dict) else {}
    return Argument(tuple(as_words(entry.plain)), entry.line, inner)


def _of_script(text: str, name: str) -> Given:
    found = list(_swift_commands(commands_of(text, name)))
    if not found:
        refer(text, name, "swift")
        for command, at in training_commands(text, name):
            raise own_program(command.words[at], name, "`swift rlhf`")
    kind, command, words = _training(found, name)
    serves = any(kind == "rollout" for kind, _, _ in found)
    arguments = _arguments(words, text, name, advice=f"with --server {name}" if serves else "")
    rollouts = [_arguments(words, text, name, of_server=True) for kind, _, words in found if kind == "rollout"]
    served = {key: value for rollout in rollouts for key, value in rollout.items() if key in SERVED}
    own = [word for word in words if word.text not in CALLERS]
    before = command.words[: len(command.words) - len(words)]
    return Given(
        {**arguments, **served},
        {key: _variable(word) for key, word in command.environment.items() if not word.unknown},
        serves,
        frozenset(served),
        own[-1].end if own else command.words[-1].end,
        any(word.text in CALLERS for word in words),
        _launch(before),
        {key: _variable(word) for key, word in command.environment.items() if word.unknown},
        all(word.end for word in command.words) and not finds_itself(text),
        kind == "megatron",
        engine={key: own for key, own in arguments.items() if key in SERVED},
        folder=command.folder,
    )


def _launch(before: Sequence[Word]) -> Launch:
    """Returns the launch; Python alone with one of ms-swift's files is one process."""
    found, entry = launch_of(before), before[-1]
    alone = _ENTRY.search(entry.text) or _MEGATRON.search(entry.text)
    return Launch(1, {ALONE: entry}) if found.options is None and alone else found


def rollout_given(text: str, name: str) -> tuple[Command, dict[str, Argument], int]:
    """Returns the ``swift rollout`` of a script, its arguments, and the number of calls with these words and GPUs.

    Raises ConfigError for no such command, several different ones, or values that need a shell to evaluate.
    """
    every = _swift_commands(commands_of(text, name))
    found = [(command, words) for kind, command, words in every if kind == "rollout"]
    if not found:
        raise problem(name, 0, "expected one command `swift rollout ...`, found none")
    command, words = found[0]
    other = next((other for other, behind in found if _started(other, behind) != _started(command, words)), None)
    if other is not None:
        said = f"expected one command `swift rollout ...`, found {len(found)}; a trial starts one server, so write one"
        raise problem(name, other.words[0].line, f"{said} with --vllm_data_parallel_size for its replicas")
    return command, _arguments(words, text, name, of_server=True), len(found)


def _started(command: Command, words: Sequence[Word]) -> tuple[str, ...]:
    """Returns a server command's words and visible GPUs, which identify it."""
    shown = command.environment.get(VISIBLE)
    return (*(word.text for word in words), shown.text if shown else "")


def _variable(word: Word) -> Argument:
    return Argument((word.text,), word.line, spans=((word.start, word.end),), unknown=word.unknown)


def _training(runs: Sequence[tuple[str, Command, Sequence[Word]]], name: str) -> tuple[str, Command, Sequence[Word]]:
    """Returns the one ``swift rlhf`` or ``megatron rlhf``; of equal ones (a command for each machine) the first."""
    training = [each for each in runs if each[0] in ("rlhf", "megatron")]
    if not training:
        raise problem(name, 0, "expected one command `swift rlhf --rlhf_type grpo ...`, found none")
    if len({tuple(word.text for word in words) for _, _, words in training}) > 1:
        text = f"expected one command `swift rlhf --rlhf_type grpo ...`, found {len(training)}"
        raise problem(name, training[1][1].words[0].line, f"{text}; give a script with one of them")
    return training[0]


def _swift_commands(commands: Sequence[Command]) -> Iterator[tuple[str, Command, Sequence[Word]]]:
    """Yields (``rlhf``, ``rollout`` or ``megatron`` for ``megatron rlhf``; the command; the words after it)."""
    for command in commands:
        for at, word in enumerate(command.words):
            entry = _ENTRY.search(word.text)
            named = entry is None and PurePosixPath(word.text).name == "swift"
            following = command.words[at + 1].text if at + 1 < len(command.words) else ""
            if entry is not None and entry[1] != "main":
                yield entry[1], command, command.words[at + 1 :]
            elif (named or entry is not None) and following in ("rlhf", "rollout"):
                yield following, command, command.words[at + 2 :]
            elif (megatron := _MEGATRON.search(word.text)) and (megatron[1] or following == "rlhf"):
                yield "megatron", command, command.words[at + (1 if megatron[1] else 2) :]
            else:
                continue
            break


def asked_of(key: str, arguments: Mapping[str, Argument]) -> str:
    """Returns the field of a request, or ``KNOB`` and a knob, that can set ``key``; empty if none (``asked_for``)."""
    rollout = "generation_batch_size" in arguments  # it is counted in micro-batches
    return "" if rollout and key == NATIVE["micro_batch_size"] else asked_for(key, _ASKED, {**NATIVE, **STEPS})


def _arguments(
    words: Sequence[Word], text: str, name: str, *, of_server: bool = False, advice: str = ""
) -> dict[str, Argument]:
    """Parses words into arguments by name.

    Args:
        of_server: whether the words are of ``swift rollout``.
        advice: advice on giving a file of arguments, if the script is needed as well.
    """
    found: dict[str, Argument] = {}
    if words and is_file(words[0].text):
        give = "write them into the script" if of_server else f"give that file {advice or 'instead'}"
        raise problem(name, words[0].line, f"the arguments are in {described(words[0], text, name)}; {give}")
    faults = Faults()
    for key, own, values in options_of(words, name, faults):
        hidden = next((word for word in values if word.unknown), None)
        places = values if "=" in own.text else [own, *values]
        spans = tuple((word.start, word.end) for word in places)
        texts = tuple(word.text for word in values)
        found[key] = Argument(texts, own.line, spans=spans, unknown=hidden.unknown if hidden else "")
        free = key in SERVERS_OWN if of_server else key in NOT_NEEDED or asked_of(key, found)
        if hidden is not None and not (free and hidden is values[0]):  # a later word may stand for other arguments
            raise unknown(name, hidden.line, key, show(hidden.unknown))
    faults.raise_collected()
    return found


def server_knobs(text: str, name: str, fields: Mapping[str, Field]) -> Served:
    """Reads the knobs of the server's command.

    Args:
        text: a shell script with ``swift rollout``.
        fields: the arguments of ``swift rlhf``, which include the server's.

    Raises:
        ConfigError: with file, line, argument, and the expected value or a remedy.
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
            raise problem(name, own.line, f"`swift rollout` has no argument {show(key)}; {closest(key, SERVED, 0.75)}")
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
