"""Reads the overrides of a user's own file: a script that starts verl, a list, or a YAML configuration. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from search_spaces.errors import SpaceError
from search_spaces.knobs.model import show
from search_spaces.yaml_text import MAX_BYTES, Entry, read
from trainer.frameworks.common.config_entries import ConfigError, problem
from trainer.frameworks.common.shell import CALLERS, Command, Word, assigned, commands
from trainer.frameworks.common.shell_tree import ShellError
from trainer.frameworks.common.trainer_keys import KeyHandling
from trainer.frameworks.common.training_script import SUFFIXES, own_program, refer, training_commands
from trainer.frameworks.verl.hydra import HydraError, split
from trainer.frameworks.verl.key_handling import files_refusal, handling_of
from trainer.frameworks.verl.key_tables import MODEL_ENGINE, WHOLE
from trainer.frameworks.verl.megatron import WORD

PROGRAM = "main_ppo"
_VERLS_OWN = re.compile(r"(\./)?((.*[./])?verl[./]trainer[./])?main_ppo(\.py)?")
_VERLS_KEYS = re.compile(r"\+{0,2}(?:actor_rollout_ref|algorithm|trainer)(?:\.\w+)+=")
_ANOTHER = "a trial runs verl.trainer.main_ppo, and another program trains in its own way; give that one your overrides"
_NAMES = ("--config-name", "-cn")
_OPTIONS_WITH_VALUE = (*_NAMES, "--config-path", "-cp", "--config-dir", "-cd")
_CONFIG, _OF_MEGATRON = "ppo_trainer", "ppo_megatron_trainer"
"""Names of verl's own files; the second is the first with ``model_engine`` megatron."""
_STARTS_FROM = f"a trial starts from verl's own {_CONFIG}; write what those files set as overrides instead"
_FOLLOWS = re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)*)\}")
"""Matches a value that refers to another key's value."""
_WORKED_OUT = re.compile(r"\$\{\s*(?!oc\.select\b)[\w.]+\s*:")
"""Matches a value that Hydra computes at run time; ``oc.select`` names another key, as in verl's own files."""
_DEFAULTS = "defaults"
"""Key of Hydra's base files in a YAML file."""


@dataclass(frozen=True)
class Given:
    """Overrides that a file sets."""

    values: dict[str, Any] = field(default_factory=dict)
    """Dotted key -> value; for a repeated key, the last value."""
    lines: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that the script sets for verl."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Key, or ``env.`` and a variable -> part of its value that needs a shell to evaluate; ``values`` lacks the key."""
    unset: list[tuple[str, int]] = field(default_factory=list)
    """(Word, line) of words that are only a variable, which the script does not set."""
    added: set[str] = field(default_factory=set)
    """Keys that were written with ``+``, whether or not verl's files have them."""
    script: bool = False
    """Whether the text is a shell script."""
    folder: str | None = ""
    """Working directory of the training (``Command.folder``)."""
    others: tuple[int, ...] = ()
    """Lines of further calls of verl in the script, with other words."""


def read_given(text: str, name: str, folder: str = ".") -> Given:
    """Reads the overrides that ``text`` sets.

    Args:
        text: a shell script that runs ``verl.trainer.main_ppo``; a YAML mapping, nested or with dotted keys; a YAML
            list of overrides (Hydra's own ``overrides.yaml``); or one override a line.

    Raises:
        ConfigError: the text is none of these, or an override cannot be read; naming the line.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise problem(name, 0, f"a script of more than {MAX_BYTES} bytes is not read")
    if any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in text):
        raise problem(name, 0, "it holds a character that is none (a surrogate or NUL)")
    try:
        is_call = PROGRAM in text and not name.endswith((".yaml", ".yml"))
        calls = calls_of(text, os.path.join(folder, os.path.basename(name))) if is_call else []
    except ShellError as error:
        _refuse_engine_named(text, name)
        raise problem(name, error.line, error.text) from None
    if calls:
        return _resolved(replace(_of_call(calls[-1], name), others=_others(calls)))
    if text.startswith("#!") or name.endswith(SUFFIXES):
        refer(text, name, "verl")
        found = training_commands(text, name)
        with_keys = [pair for pair in found if any(_VERLS_KEYS.match(word.text) for word in pair[0].words)]
        for command, at in with_keys or found:
            program = command.words[at]
            if program.text.startswith(("recipe", "verl")):
                raise problem(name, program.line, f"{program.text}: {_ANOTHER}")
            raise own_program(program, name, "verl.trainer.main_ppo")
        raise problem(name, 0, "expected a script with a command that runs verl.trainer.main_ppo, found none")
    return _resolved(_of_yaml(text, name) if _is_yaml(text) else _of_lines(text, name))


def _others(calls: Sequence[Command]) -> tuple[int, ...]:
    """Returns the lines of the calls whose words differ from the last call's."""
    said = [[word.text for word in call.words] for call in calls]
    return tuple(call.words[0].line for call, words in zip(calls, said, strict=True) if words != said[-1])


def _resolved(run: Given) -> Given:
    """Resolves the values that a study needs; moves values that Hydra computes at run time to ``unknown``."""
    needed = [key for key in run.values if handling_of(key) in (KeyHandling.KNOB, KeyHandling.INPUT)]
    for key in needed:
        value = _followed(key, run.values)
        if isinstance(value, str) and _WORKED_OUT.search(value):
            del run.values[key]
            run.unknown[key] = value
        else:
            run.values[key] = value
    return run


def _followed(key: str, values: Mapping[str, Any]) -> Any:
    """Returns the value of ``key``, with a reference to another key resolved if that key is set."""
    seen = {key}
    value = values[key]
    while isinstance(value, str) and (other := _FOLLOWS.fullmatch(value)) and other[1] not in seen:
        seen.add(other[1])
        value = values.get(other[1], value)
    return value


def _refuse_engine_named(text: str, name: str) -> None:
    """Raises ``ConfigError`` for a script that cannot be read, if it names an engine that trials do not support."""
    named = re.search(r"--config-name[= ]['\"]?([\w.-]+)", text)
    why = files_refusal(named[1]) if named is not None else None
    if named is not None and why is not None:
        raise problem(name, text.count("\n", 0, named.start()) + 1, f"--config-name {named[1]}: {why}")


def calls_of(text: str, script: str = "./script") -> list[Command]:
    """Returns the commands of ``text`` that run ``PROGRAM``.

    The script's own arguments are omitted. A word that is a command (``bash -c "..."``) is read as one. ``$HOME`` is
    the current user's.

    Raises ShellError for a quote, bracket or statement that is not closed.
    """
    found = []
    for command in commands(text, script, {"HOME": os.path.expanduser("~")}):
        words = tuple(word for word in command.words if word.text not in CALLERS)
        place = next((place for place, word in enumerate(words) if PROGRAM in word.text), None)
        if place is None or re.search(r"\s", words[place].text):  # a script of its own, whose commands come behind
            continue
        before = {name: value for name, value in map(assigned, words[:place]) if name}  # of env, say
        found.append(replace(command, words=words, environment={**command.environment, **before}))
    return found


def _is_yaml(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith(("- ", "{", "[", "---")) or "=" not in first


def _of_call(call: Command, name: str) -> Given:
    place = max(number for number, word in enumerate(call.words) if PROGRAM in word.text)
    if not _VERLS_OWN.fullmatch(call.words[place].text):
        raise problem(name, call.words[place].line, f"{call.words[place].text}: {_ANOTHER}")
    words = list(call.words[place + 1 :])
    _check_engine(words, name)
    found = Given(script=True, folder=call.folder)
    while words:
        word = words.pop(0)
        option, sign, value = word.text.partition("=")
        if option in _OPTIONS_WITH_VALUE:
            value = value if sign else (words.pop(0).text if words else "")
            if option in _NAMES and value.removesuffix(".yaml") == _OF_MEGATRON:
                found.values[MODEL_ENGINE], found.lines[MODEL_ENGINE] = WORD, word.line
            elif not _is_verls(option, value):
                raise problem(name, word.line, f"{option} {value}: {_STARTS_FROM}")
            continue
        if word.text.startswith("-"):
            raise problem(name, word.line, f"{word.text}: an option of Hydra's that a trial does without; remove it")
        _set(found, word, name)
    for variable, word in call.environment.items():
        found.lines.setdefault(f"env.{variable}", word.line)
        if word.unknown:
            found.unknown[f"env.{variable}"] = word.unknown
        else:
            found.environment[variable] = word.text
    return found


def _is_verls(option: str, value: str) -> bool:
    """Tells whether the option names verl's own configuration folder, or its own configuration."""
    if option in ("--config-path", "-cp"):
        return value.removeprefix("./").rstrip("/") == "config"
    return option in _NAMES and value.removesuffix(".yaml") == _CONFIG


def _check_engine(words: Sequence[Word], name: str) -> None:
    """Raises ``ConfigError`` if the words name a configuration of verl's for an engine that trials do not support."""
    for place, word in enumerate(words):
        option, _, value = word.text.partition("=")
        value = value or "".join(each.text for each in words[place + 1 : place + 2])
        why = files_refusal(value) if option in _OPTIONS_WITH_VALUE else None
        if why is not None:
            raise problem(name, word.line, f"{option} {value}: {why}")


def _set(run: Given, word: Word, name: str) -> None:
    key, sign, _ = word.text.partition("=")
    key = _current(key.strip().lstrip("+"))
    if word.unknown and not sign and word.unknown == word.text:
        run.unset.append((word.text, word.line))
        return
    if word.unknown and sign and word.unknown not in key:
        run.values.pop(key, None)
        run.unknown[key], run.lines[key] = word.unknown, word.line
        return
    if word.unknown:
        raise problem(name, word.line, f"{word.unknown} is known to a shell only; write the override itself")
    try:
        key, value = split(word.text)
    except HydraError as error:
        raise problem(name, word.line, str(error)) from None
    key = _current(key)
    if word.text.lstrip().startswith("+"):
        run.added.add(key)
    run.unknown.pop(key, None)
    run.values[key], run.lines[key] = value, word.line


def _current(key: str) -> str:
    """Returns the new name of an old key; verl prefers the old key (``experimental/reward_loop/reward_loop.py:59``)."""
    return f"reward.{key}" if key.startswith("custom_reward_function.") else key


def _of_lines(text: str, name: str) -> Given:
    found = Given()
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.strip().removesuffix("\\").strip()
        if written and not written.startswith("#"):
            _set(found, Word(written, number), name)
    return found


def _of_yaml(text: str, name: str) -> Given:
    try:
        document = read(text.encode("utf-8"), name, kind="config")
    except SpaceError as error:
        raise ConfigError(str(error)) from None
    found = Given()
    if isinstance(document.value, list):
        for item in document.value:
            if not isinstance(item.value, str):
                raise problem(name, item.line, f"expected an override key=value, got {item.described}")
            _set(found, Word(item.value, item.line), name)
        return found
    if not isinstance(document.value, dict):
        raise problem(name, document.line, f"expected verl's overrides or its configuration, got {document.described}")
    _check_defaults(document.value.get(_DEFAULTS), name)
    for written, entry in _leaves(document.value):
        key = _current(written)
        if key == _DEFAULTS:
            continue
        found.values[key] = entry.plain
        found.lines[key] = entry.line
    return found


def _check_defaults(entry: Entry | None, name: str) -> None:
    """Raises ``ConfigError`` for a Hydra configuration whose base is not verl's own."""
    parts = [] if entry is None else entry.plain if isinstance(entry.value, list) else [entry.plain]
    for part in parts:
        if part not in ("_self_", _CONFIG):
            raise problem(name, entry.line if entry else 0, f"{_DEFAULTS}: {show(part)}: {_STARTS_FROM}")


def _leaves(entries: Mapping[str, Entry], before: str = "") -> Iterator[tuple[str, Entry]]:
    """Yields (dotted key, entry); mappings are split, except mappings that are knobs as a whole."""
    for name, entry in entries.items():
        key = f"{before}{name}"
        if isinstance(entry.value, dict) and entry.value and key not in WHOLE:
            yield from _leaves(entry.value, f"{key}.")
        else:
            yield key, entry
