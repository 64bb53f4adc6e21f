"""Recognises a shell script that starts a Python script with options, and finds its training command. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from search_spaces.knobs.model import show
from trainer.frameworks.common.config_entries import ConfigError, Faults, problem
from trainer.frameworks.common.launcher import Launch, described
from trainer.frameworks.common.shell import CALLERS, Command, Word, commands
from trainer.frameworks.common.shell_tree import ShellError

SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".zsh")
_OPTION = re.compile(r"--([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_KEYS = re.compile(r"(?:\s|#[^\n]*\n)*(?:[-{\"']|[\w.]+\s*:(?:\s|$))")
"""Matches the beginning of a file of keys."""
_LAUNCHERS = re.compile(r"accelerate|deepspeed|pdb|pip|torch\.|trl\.cli|vllm")
"""Matches modules that do not train by themselves."""
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_MODULE = re.compile(r"(?:^|[/.])(?:trl[/.])?scripts[/.](?:grpo)(?:\.py)?$")


def is_script(text: str, name: str = "") -> bool:
    """Tells whether the text is a shell script rather than a mapping of TRL's keys."""
    if PurePosixPath(name).suffix.lower() in (".yaml", ".yml", ".json"):
        return False
    named = PurePosixPath(name).suffix.lower() in SUFFIXES
    return named or (text.strip() != "" and _KEYS.match(text) is None)


def commands_of(text: str, name: str) -> tuple[Command, ...]:
    """Returns every command of the script ``name``. Raises ConfigError for a text that is not a shell script."""
    try:
        return commands(text, os.path.abspath(name))
    except ShellError as error:
        raise problem(name, error.line, error.text) from None


def training_commands(text: str, name: str) -> list[tuple[Command, int]]:
    """Returns every command that may start a training script, with the script's index among the words.

    Raises ConfigError for a text that is not a shell script.
    """
    return [(command, at) for command in commands_of(text, name) if (at := _entry(command)) is not None]


_STARTED: Mapping[str, str] = {
    "openr1": r"open_r1[./]grpo\b",
    "trl": r"\btrl\s+grpo\b|\btrl[./]scripts[./]grpo\b",
    "swift": r"\b(?:swift|megatron)\s+rlhf\b|\bswift[./]cli\b",
    "verl": r"\bmain_ppo\b",
}
"""Framework -> pattern of the command that starts its training."""


def refer(text: str, name: str, own: str = "", line: int = 1) -> None:
    """Raises ``ConfigError`` if a script, from ``line`` on, starts another framework than ``own``."""
    for other, sign in _STARTED.items():
        if other != own and (found := re.search(sign, text)) is not None:
            line += text.count("\n", 0, found.start())
            raise problem(name, line, f"this starts another framework; read it with --framework {other}")


def own_program(program: Word, name: str, trials: str, own: str = "") -> ConfigError:
    """Builds the error on a user's own program, whose code no trial can run.

    Args:
        trials: name of the program that a trial runs.
        own: framework that the error does not suggest.
    """
    refer(program.text, name, own, program.line)
    said = f"{show(program.text)} is a program of your own, and a trial runs {trials}; write what it gives its trainer"
    return problem(name, program.line, f"{said} into a YAML file, a key a line, and name --model, --data and --reward")


def _entry(command: Command) -> int | None:
    """Returns the index of the training script among the words; ``None`` if the command trains nothing."""
    texts = [word.text for word in command.words]
    for at, text in enumerate(texts):
        if PurePosixPath(text).name == "trl" and texts[at + 1 : at + 2] == ["grpo"]:
            return at + 1
        launched = bool(at == 1 and command.words[0].unknown and "".join(texts[2:3]).startswith("--"))
        module = texts[at - 1 : at] == ["-m"] or (launched and _DOTTED.fullmatch(text) is not None)
        module = module and not (command.words[at].unknown or _LAUNCHERS.match(text))
        if _MODULE.search(text) or ((module or text.endswith(".py")) and (launched or _is_started(texts[:at]))):
            return at
    return None


def _is_started(before: Sequence[str]) -> bool:
    names = [PurePosixPath(text).name for text in before]
    started = any(name.startswith("python") or name in ("torchrun", "deepspeed", "uv") for name in names)
    return started or ("accelerate" in names and "launch" in names)


def refuse_config(words: Sequence[Word], launch: Launch, text: str, name: str, *, serves: bool = False) -> None:
    """Raises ``ConfigError`` if the keys are in a file; names the file, and the options to write into it.

    Args:
        serves: whether the script ``name`` also starts the rollout server.
    """
    texts = [word.text for word in words]
    at = next((at for at, text in enumerate(texts) if text == "--config" or text.startswith("--config=")), None)
    if at is None:
        return
    joined = texts[at].partition("=")[2]
    file = replace(words[at], text=joined) if joined else words[min(at + 1, len(words) - 1)]
    beside = (launch.options or {}).get("config_file")
    options = [text.partition("=")[0] for text in texts if text.startswith("--") and not text.startswith("--config")]
    said = f"the keys are in {described(file, text, name)}; give that file"
    given = [f"--accelerate {described(beside, text, name)}"] if beside is not None else []
    given += [f"--server {name}"] if serves else []
    said += f", with {' and '.join(given)}" if given else ""
    said += f", and write {', '.join(options)} into it" if options else ""
    raise problem(name, words[at].line, said)


def options_of(words: Sequence[Word], name: str, faults: Faults) -> Iterator[tuple[str, Word, list[Word]]]:
    """Yields (option with ``_`` for ``-``, its own word, the words after it) of a command's ``words``.

    Collects in ``faults`` every word that belongs to no option.
    """
    key, first, own = "", None, list[Word]()
    for word in words:
        if word.text in CALLERS:
            continue
        option = _OPTION.fullmatch(word.text)
        if option is not None:
            if first is not None:
                yield key, first, own
            key, first, own = option[1].replace("-", "_"), word, []
            if option[2] is not None:
                own = [Word(option[2], word.line, word.start, word.end, word.unknown)]
        elif word.text.startswith("--") and word.text != "--" and " " not in word.text:  # with a wrong space sign, say
            said = "expected an option (--name), and behind it a plain space and its value"
            faults.add(problem(name, word.line, f"{show(word.text)}: {said}"))
        elif first is not None:
            own.append(word)
        else:
            faults.add(problem(name, word.line, f"expected an option (--name), got {show(word.text)}"))
    if first is not None:
        yield key, first, own
