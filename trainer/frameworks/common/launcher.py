"""Finds the number of training processes that a script's launcher (torchrun, accelerate, deepspeed) starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from search_spaces.knobs.model import show, whole_number
from trainer.frameworks.common.config_entries import problem
from trainer.frameworks.common.shell import Word, commands

_OPTION = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_MODULES: Mapping[str, str] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
"""Module after ``python -m`` -> its command."""
_COUNTS: Mapping[str, tuple[str, ...]] = {
    "torchrun": ("nproc_per_node", "nnodes"),
    "accelerate": ("num_processes",),
    "deepspeed": ("num_gpus", "num_nodes"),
}
"""Command -> options whose product is the number of processes on all machines (accelerate's option is that number)."""

_SHARDING = frozenset(
    {
        *("config_file", "use_deepspeed", "zero_stage", "use_fsdp", "use_megatron_lm", "mixed_precision"),
        *("gradient_accumulation_steps", "gradient_clipping", "dynamo_backend"),
    }
)


@dataclass(frozen=True)
class Launch:
    """Options of a launcher, and the number of processes it starts."""

    processes: int = 0
    """Processes on all machines; 0 if unset, or if the number needs a shell to evaluate."""
    options: Mapping[str, Word] | None = None
    """The launcher's options by name, with ``_`` for ``-``; ``None`` without a launcher."""
    unknown: tuple[str, Word] | None = None
    """Option and word that leave the number of processes unknown."""


def launch_of(words: Sequence[Word]) -> Launch:
    """Reads the launcher and its options from the words before the training file."""
    for at, word in enumerate(words):
        command = _MODULES.get(word.text) or PurePosixPath(word.text).name
        if command in _COUNTS:
            return _counted(command, _options(words[at + 1 :]))
    return Launch()


def sharding_of(launch: Launch) -> Iterator[tuple[str, Word]]:
    """Yields (option, word) of the launcher's options on sharding and precision."""
    for name, word in (launch.options or {}).items():
        if name in _SHARDING or name.startswith(("fsdp_", "deepspeed_config", "offload_", "zero3_", "parallelism_")):
            yield name, word


def uncounted(launch: Launch, name: str) -> Iterator[str]:
    """Yields a note on an option of script ``name`` that leaves the number of training processes unknown."""
    if launch.unknown is not None:
        option, word = launch.unknown
        yield uncounted_by(option, word.line, word.unknown or word.text, name)


def uncounted_by(key: str, line: int, text: str, name: str) -> str:
    """Builds a note that ``key``'s value ``text``, the number of training processes, needs a shell to evaluate."""
    said = f"{key}: {show(text)} is no number that can be read here; rows per update are counted for the GPUs held"
    return str(problem(name, line, f"{said}, --effective-batch N says otherwise"))


def described(file: Word, text: str, name: str) -> str:
    """Returns a file's name for messages, with the line of script ``name`` that writes it, or its unknown part."""
    line = next((c.words[0].line for c in commands(text, name) if [w.text for w in c.words] == [">", file.text]), 0)
    said = f"which line {line} of the script writes; keep it as a file, or run that part first" if line else ""
    part = "which" if file.unknown == file.text else f"of which {show(file.unknown)}"
    said = f"{part} is known to a shell only" if file.unknown else said
    return f"{show(file.text)} ({said})" if said else show(file.text)


def _options(words: Sequence[Word]) -> dict[str, Word]:
    found: dict[str, Word] = {}
    key = ""
    for word in words:
        option = _OPTION.fullmatch(word.text)
        if option is None:
            if key:
                found[key], key = word, ""
            continue
        key = option[1].replace("-", "_")
        found[key] = Word(option[2] or "", word.line, word.start, word.end, word.unknown)
        key = "" if option[2] is not None else key
    return found


def _counted(command: str, options: Mapping[str, Word]) -> Launch:
    given = [name for name in _COUNTS[command] if name in options]
    if command != "torchrun" and _COUNTS[command][0] not in given:
        return Launch(0, options)  # every GPU there is, or what accelerate's file says
    processes = 1  # torchrun's own, of a machine and of machines
    for name in given:
        word = options[name]
        count = None if word.unknown else whole_number(word.text)
        if not count:
            return Launch(0, options, (name, word))
        processes *= count
    return Launch(processes, options)
