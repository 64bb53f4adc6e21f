"""Input and result of an export, its texts, and the modules of its rewards; shared by all frameworks."""

from __future__ import annotations

import difflib
import hashlib
import keyword
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from search_spaces import yaml_edit
from search_spaces.configuration import KnobValue
from trainer.child import contract
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.serving import split

ACCELERATE = "accelerate.yaml"
DEEPSPEED = "deepspeed.json"
RUN = "run.sh"
SERVER = "server.sh"
LAUNCHER = "launch.py"
PROMPTS = "prompts"
"""Folder of the prompts, in the form of ``datasets``: its only file is the ``train`` split."""


@dataclass(frozen=True)
class ExportRequest:
    """Input of an export: a configuration with its workload, interpreter and machine."""

    title: str
    """Title line of the files."""
    configuration: Mapping[str, KnobValue]
    python: str
    """Training interpreter."""
    model: str
    """Model folder or hub id."""
    rewards: tuple[RewardSpec, ...]
    rows_per_update: int
    max_completion_length: int
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    revision: str = ""
    """Commit of a hub id."""
    max_prompt_length: int | None = None
    """Maximum in tokens; vLLM is sized for prompt and completion together."""
    device: str = "cpu"
    world_size: int = 1
    """Number of training processes."""
    nodes: int = 1
    """Machines with equal numbers of GPUs; on several, the user's own script starts the processes."""
    seed: int = 0
    threads: int = 1
    """CPU threads of a training process, set because the launcher would choose its own number."""
    cores: int = 0
    """CPU cores of the measured machine; 0 if unknown."""
    user_config: str = ""
    """Text of the user's own configuration; if empty, a new configuration is written."""
    own_data: bool = False
    """Whether the user's configuration names the prompts, so that they are not exported."""
    folder: str = ""
    """The user's working directory, to which paths of the user's configuration are relative."""
    accelerate: str = ""
    """Text of the user's own accelerate file, for Open-R1; if empty, a new file is written."""
    checkout: str = ""
    """Folder of the user's Open-R1, whose ``grpo.py`` trains."""
    vllm: str = ""
    """Version of the vLLM that was measured; empty if it is not known."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that an ms-swift trial added to load this model and read these prompts (its fact ``arguments``), such
    as ``model_type``; the user's own override them."""

    @property
    def longest(self) -> int | None:
        """Tokens of the longest prompt with the longest completion; ``None`` if the prompts' lengths are unknown."""
        return None if self.max_prompt_length is None else self.max_prompt_length + self.max_completion_length

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments for ``settings``, as ``values.sizes`` returns."""
        return {name: getattr(self, name) for name in ("rows_per_update", "world_size", "device", "longest")}


@dataclass(frozen=True)
class Command:
    """The command that trains. ``{here}`` in a word stands for the exported folder."""

    argv: tuple[str, ...]
    folder: str
    """Working directory: ``{here}``, a path, or empty for the caller's."""
    environment: Mapping[str, str]
    """Variables set unless the caller sets them; ``PYTHONPATH`` is put in front of the caller's."""


@dataclass(frozen=True)
class Export:
    """All files of an export except the prompts, which are copied."""

    files: Mapping[str, str]
    command: Command
    seams: Mapping[str, KnobValue]
    """Knob -> value, for knobs without a key in the framework and not at its default; the launcher sets them."""
    parts: tuple[str, ...]
    """Further tasks of the launcher, a sentence each (``Part.why``)."""
    prompts: bool
    """Whether ``prompts/train.jsonl`` belongs to the export."""
    diff: str = ""
    """Diff against the user's own configuration; empty without one."""
    health: str = ""
    """URL that answers once the rollout server (script ``SERVER``) is ready; empty without a server."""

    @property
    def server(self) -> bool:
        """True if a rollout server has to be started first."""
        return bool(self.health)


HERE = "{here}"
"""Placeholder for the script's folder in a word."""
_OURS = re.compile(r"\A([^/]*='?|)" + re.escape(HERE))
"""Matches the placeholder as an export writes it: in front of a path, which may contain the same letters."""
FIND_HERE = 'here=$(cd "$(dirname "$0")" && pwd) || exit 1'
VISIBLE = "CUDA_VISIBLE_DEVICES"


def comment(text: str) -> str:
    """Returns ``text`` in a form that can follow a ``#``."""
    return "".join(c if c.isprintable() else "?" for c in text)


def quoted(word: str) -> str:
    """Escapes a word for the shell; ``{here}`` becomes the script's own folder."""
    parts = [shlex.quote(part) if part else "" for part in _OURS.split(word)]
    return '"$here"'.join(parts[-2:]) or "''"


def with_folder(word: str, folder: str) -> str:
    """Returns ``word`` with ``folder`` in place of ``{here}``."""
    return folder.join(_OURS.split(word)[-2:])


def gpus_of(request: ExportRequest) -> list[str]:
    """Returns the GPUs of one machine: first the training GPUs, then the rollout server's."""
    held = request.world_size + int(request.configuration.get("rollout_gpus", 0))
    return [str(i) for i in range(held // request.nodes)]


def visible(request: ExportRequest, *, beside_server: bool) -> dict[str, str]:
    """Returns the variable that limits the training to its GPUs, next to a server or with one process; else empty.

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

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    lines = ["#!/bin/sh", f"# {comment(request.title)}", "# The rollout server; start it before run.sh."]
    lines += [f"# {note}"] if note else []
    lines += [_gpus_line(request, serving=True), f"export {VISIBLE}"]
    lines += [f"{name}={shlex.quote(value)}; export {name}" for name, value in environment.items()]
    return "\n".join([*lines, "exec " + shlex.join(argv) + ' "$@"']) + "\n"


def _gpus_line(request: ExportRequest, *, serving: bool) -> str:
    """Returns the shell line that selects the training's or the server's GPUs among those visible to the caller."""
    gpus = gpus_of(request)
    training = len(split(gpus, request.configuration)[0])
    places = f"{training + 1}-{len(gpus)}" if serving else f"1-{training}"
    held = f'"${{{VISIBLE}:-{",".join(gpus)}}}"'
    return f'{VISIBLE}=$(printf "%s\\n" {held} | cut -s -d, -f{places})'


def whole_text(
    title: str, inputs: Mapping[str, Any], tuned: Mapping[str, Any], run: Mapping[str, Any], others: str = ""
) -> str:
    """Formats a whole YAML file: inputs, knobs, and other keys of ``run`` under the heading ``others``."""
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


MODULE = "autotune_reward"
VERIFIER = "autotune_math_verifier.py"
COMPLETION_S = 5.0
"""Seconds for one completion, the same as in a trial."""

_STANDARD = ("contextlib", "functools", "importlib.util", "inspect", "json", "os", "sys")
_FOR_MATH = ("atexit", "select", "subprocess", "time")


@dataclass(frozen=True)
class Rewards:
    """Names of rewards for ``reward_funcs``, and the files that define them."""

    names: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Name in the exported folder -> text; empty if TRL and the user's own modules define all rewards."""
    folder: str = ""
    """Working directory of the user's dotted paths; empty if no reward has one."""


def rewards_of(specs: Sequence[RewardSpec]) -> Rewards:
    """Returns every reward under a name that TRL's script can load. Raises ValueError for an unknown kind of reward."""
    names: list[str] = []
    parts: list[str] = []
    files: dict[str, str] = {}
    folder = ""
    for number, spec in enumerate(specs):
        if spec.kind in ("trl", "import"):
            names.append(spec.name)
            folder = folder or (spec.path if spec.kind == "import" else "")
            continue
        name = _free_name(spec, number, names)
        names.append(f"{MODULE}.{name}")
        parts.append(_part(spec, name))
        if spec.kind == "math_verify":
            files[VERIFIER] = (Path(contract.__file__).parent.parent / "math_verifier.py").read_text(encoding="utf-8")
    if parts:
        imports = "\n".join(f"import {module}" for module in _modules(specs))
        imports = imports.replace("\nimport reasoning_gym", "\n\nimport reasoning_gym")
        files[f"{MODULE}.py"] = (
            fill(__file__, "reward_module", imports=imports, rewards="\n\n".join(parts).rstrip("\n")) + "\n"
        )
    return Rewards(tuple(names), files, folder)


def _modules(specs: Sequence[RewardSpec]) -> list[str]:
    kinds = {spec.kind for spec in specs}
    modules = sorted((*_STANDARD, *(_FOR_MATH if "math_verify" in kinds else ())))
    return [*modules, *(["reasoning_gym"] if "reasoning_gym" in kinds else [])]


def _part(spec: RewardSpec, name: str) -> str:
    if spec.kind == "reasoning_gym":
        return fill(__file__, "reasoning_gym", name=name, task=repr(spec.name), options=repr(dict(spec.options)))
    if spec.kind == "file":
        private = "autotune_reward_file_" + hashlib.sha256(spec.path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        words = {"path": repr(spec.path), "function": repr(spec.name), "folder": repr(spec.folder)}
        return fill(__file__, "file_reward", name=name, module=repr(private), **words)
    if spec.kind == "math_verify":
        return fill(__file__, "math_verify", name=name, seconds=repr(COMPLETION_S))
    raise ValueError(f"a reward of kind {spec.kind!r} cannot be exported")


def _free_name(spec: RewardSpec, number: int, names: Sequence[str]) -> str:
    """Returns a free Python name for the reward, its own if possible."""
    usable = spec.name.isidentifier() and not keyword.iskeyword(spec.name) and not spec.name.startswith("_")
    name = spec.name if usable else "reward"
    reserved = {*_STANDARD, *_FOR_MATH, "reasoning_gym", "importlib"}
    return name if f"{MODULE}.{name}" not in names and name not in reserved else f"{name}_{number}"
