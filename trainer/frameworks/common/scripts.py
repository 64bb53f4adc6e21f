"""Writes the files of an export: shell scripts, which run from any folder, YAML, templates, and a diff. Pure.

The training script and the rollout server's script see the same GPUs: the first train, the last are the server's.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from search_spaces import yaml_edit
from trainer.frameworks.common.exported import Command, ExportRequest
from trainer.frameworks.common.serving import split

HERE = "{here}"
"""Placeholder of the script's folder in a word."""
_OURS = re.compile(r"\A([^/]*='?|)" + re.escape(HERE))
"""The placeholder where an export writes it: before any path, which may hold the same letters."""
FIND_HERE = 'here=$(cd "$(dirname "$0")" && pwd) || exit 1'
VISIBLE = "CUDA_VISIBLE_DEVICES"


def comment(text: str) -> str:
    """Returns ``text`` safe to follow a ``#``."""
    return "".join(c if c.isprintable() else "?" for c in text)


def quoted(word: str) -> str:
    """Escapes a word for the shell; ``{here}`` becomes the script's own folder."""
    parts = [shlex.quote(part) if part else "" for part in _OURS.split(word)]
    return '"$here"'.join(parts[-2:]) or "''"


def with_folder(word: str, folder: str) -> str:
    """Returns a word with ``folder`` where ``{here}`` stands for it."""
    return folder.join(_OURS.split(word)[-2:])


def gpus_of(request: ExportRequest) -> list[str]:
    """Returns the GPUs of one machine: first the training GPUs, then the rollout server's."""
    held = request.world_size + int(request.configuration.get("rollout_gpus", 0))
    return [str(i) for i in range(held // request.nodes)]


def visible(request: ExportRequest, *, beside_server: bool) -> dict[str, str]:
    """Returns the variable that limits the training to its GPUs, if it may see others.

    Args:
        beside_server: beside a rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    if beside_server:
        return {VISIBLE: ",".join(split(gpus_of(request), request.configuration)[0])}
    alone = request.device == "cuda" and request.world_size == 1
    return {VISIBLE: "0"} if alone else {}  # of several, a process by itself would use all


def run_script(request: ExportRequest, command: Command, remark: str, *, beside_server: bool) -> str:
    """Returns the script ``RUN``, which starts the command from any folder.

    Args:
        remark: a sentence on further arguments.
        beside_server: beside a rollout server.
    """
    lines = ["#!/bin/sh", f"# {comment(request.title)}", f"# {remark}", FIND_HERE]
    for name, value in command.environment.items():
        if name == "PYTHONPATH":
            lines.append(f"PYTHONPATH={quoted(value)}${{PYTHONPATH:+:$PYTHONPATH}}")
        elif name == VISIBLE and beside_server:
            lines.append(_gpus_line(request, serving=False))
        else:
            lines.append(f': "${{{name}:={value}}}"')
        lines.append(f"export {name}")
    if command.folder:
        lines.append(f"cd {quoted(command.folder)} || exit 1")
    lines.append("exec " + " ".join(quoted(word) for word in command.argv) + ' "$@"')
    return "\n".join(lines) + "\n"


def server_script(request: ExportRequest, argv: Sequence[str], environment: Mapping[str, str], note: str = "") -> str:
    """Returns the script that starts the rollout server by ``argv``.

    Args:
        environment: variables of the server besides its GPUs.
        note: a comment for the reader.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    lines = ["#!/bin/sh", f"# {comment(request.title)}", "# The rollout server; start it before run.sh."]
    lines += [f"# {note}"] if note else []
    lines += [_gpus_line(request, serving=True), f"export {VISIBLE}"]
    lines += [f"{name}={shlex.quote(value)}; export {name}" for name, value in environment.items()]
    return "\n".join([*lines, "exec " + shlex.join(argv) + ' "$@"']) + "\n"


def _gpus_line(request: ExportRequest, *, serving: bool) -> str:
    """Returns the line that gives one side its GPUs, out of those visible to the caller."""
    gpus = gpus_of(request)
    training = len(split(gpus, request.configuration)[0])
    places = f"{training + 1}-{len(gpus)}" if serving else f"1-{training}"
    held = f'"${{{VISIBLE}:-{",".join(gpus)}}}"'
    return f'{VISIBLE}=$(printf "%s\\n" {held} | cut -s -d, -f{places})'


def whole_text(
    title: str, inputs: Mapping[str, Any], tuned: Mapping[str, Any], run: Mapping[str, Any], others: str = ""
) -> str:
    """Formats a whole YAML file: inputs, knobs, and the keys of ``run`` that are in neither under ``others``."""
    left = {key: value for key, value in run.items() if key not in inputs and key not in tuned}
    lines = [f"# {comment(title)}"]
    heads = {"model, data and reward": inputs, "what was tuned": tuned, others or "everything else": left}
    for head, keys in heads.items():
        lines += ["", f"# {head}"]
        lines += [f"{yaml_edit.scalar(key)}: {yaml_edit.scalar(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def difference(own: str, new: str, name: str, called: str = "your configuration") -> str:
    """Returns the diff from the user's ``own`` text to ``new``; empty without an own text.

    ``called`` is the name of the user's text in the diff.
    """
    if not own:
        return ""
    return "\n".join(difflib.unified_diff(own.splitlines(), new.splitlines(), called, name, lineterm=""))


def same_model(own: Any, used: str) -> bool:
    """Tells whether the user's file names the model of the study, perhaps by a relative path."""
    if not isinstance(own, str):
        return False
    tail = "/".join(part for part in own.split("/") if part not in ("", ".", "..", "~"))
    return own == used or (bool(tail) and f"/{used.rstrip('/')}".endswith(f"/{tail}"))


def fill(module: str, template: str, /, **values: str) -> str:
    """Reads ``templates/*.txt`` next to the module file ``module`` and replaces every ``$name``."""
    return Template((Path(module).parent / "templates" / f"{template}.txt").read_text(encoding="utf-8")).substitute(
        values
    )
