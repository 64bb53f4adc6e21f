"""A configuration as files that TRL's own GRPO script trains from, and the command that does. Pure.

The user's own configuration is edited in place where there is one; else the whole of it is written. Knobs TRL
has no key for go through a launcher that sets them and runs the same script.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from search_spaces import yaml_edit
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.native import seam_values
from trainer.child import contract
from trainer.child.contract import RewardSpec
from trainer.frameworks.trl.keys import NATIVE
from trainer.frameworks.trl.render import settings
from trainer.frameworks.trl.reward_module import Rewards, rewards_of
from trainer.frameworks.trl.templates import fill

CONFIG = "grpo.yaml"
ACCELERATE = "accelerate.yaml"
RUN = "run.sh"
LAUNCHER = "launch.py"
SEAMS = "autotune_seams.py"
PROMPTS = "prompts"
"""Folder of the prompts, as ``datasets`` takes one: its only file is the ``train`` split."""
_OWN_CHOICE = {"tf32": "tf32", "pad_to_multiple": "pad_to_multiple_of", "empty_cache_steps": "torch_empty_cache_steps"}
"""Knobs that TRL leaves to torch when nobody sets them, and their keys."""
DEFAULT_COMPLETION = 512
"""``max_completion_length`` of TRL when nobody sets it."""


@dataclass(frozen=True)
class Wanted:
    """What is to be exported."""

    title: str
    """One line for the heads of the files."""
    configuration: Mapping[str, KnobValue]
    python: str
    """Training interpreter."""
    model: str
    """Folder or hub id."""
    rewards: tuple[RewardSpec, ...]
    rows_per_update: int
    max_completion_length: int
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    revision: str = ""
    """Commit of a hub id."""
    device: str = "cpu"
    world_size: int = 1
    seed: int = 0
    threads: int = 1
    """CPU threads of a training process: the launcher would choose its own."""
    user_config: str = ""
    """Text of the user's own configuration; empty writes one."""
    own_data: bool = False
    """The prompts are those the user's configuration names, so they are not exported."""
    folder: str = ""
    """The user's working directory, which a configuration of their own speaks of."""


@dataclass(frozen=True)
class Command:
    """The command that trains. ``{here}`` in a word stands for the exported folder."""

    argv: tuple[str, ...]
    folder: str
    """Where it runs: ``{here}``, a path, or empty for wherever it is started."""
    environment: Mapping[str, str]
    """Set unless the caller has set it; ``PYTHONPATH`` is put in front of the caller's."""


@dataclass(frozen=True)
class Export:
    """Everything but the prompts, which are copied."""

    files: Mapping[str, str]
    command: Command
    seams: Mapping[str, KnobValue]
    """Knobs that go through the launcher."""
    prompts: bool
    """Whether ``prompts/train.jsonl`` belongs to it."""
    diff: str = ""
    """Against the user's own configuration; empty without one."""


def export(wanted: Wanted) -> Export:
    """The files and the command.

    Raises:
        ValueError: TRL cannot be given the configuration, or the user's own file cannot be changed in place.
    """
    rewards = rewards_of(wanted.rewards)
    seams = seam_values(wanted.configuration, "trl")
    prompts = not (wanted.user_config and wanted.own_data)
    text = _edited(wanted, rewards, prompts) if wanted.user_config else _written(wanted, rewards)
    command = _command(wanted, rewards, bool(seams))
    files = {CONFIG: text, ACCELERATE: _accelerate(wanted), RUN: _script(wanted, command), **rewards.files}
    if seams:
        own = Path(contract.__file__).parent.parent / "frameworks" / "trl" / "seams.py"
        files[SEAMS] = own.read_text(encoding="utf-8")
        files[LAUNCHER] = fill("launch", seams=repr(seams))
    return Export(files, command, seams, prompts, _diff(wanted, text))


def knob_keys(wanted: Wanted) -> dict[str, Any]:
    """What the configuration sets, by the keys of TRL's script.

    Raises:
        ValueError: TRL cannot be given the configuration.
    """
    training, model, _ = settings(wanted.configuration, wanted.rows_per_update, wanted.world_size)
    keys = {**training, **model}
    if "rollout_engine" in wanted.configuration:
        keys["use_vllm"] = wanted.configuration["rollout_engine"] == "vllm"
    return keys


def _written(wanted: Wanted, rewards: Rewards) -> str:
    """A whole configuration, every knob explicit: what is left out would be TRL's default of another day."""
    unset = {knob: value for knob, value in defaults("trl").items() if knob in NATIVE}
    tuned = knob_keys(replace(wanted, configuration={**unset, **wanted.configuration}))
    tuned.update({key: None for knob, key in _OWN_CHOICE.items() if knob not in wanted.configuration})
    run = {
        "output_dir": "output",
        "num_train_epochs": 1,
        "logging_steps": 1,
        "report_to": "none",
        "seed": wanted.seed,
        "use_cpu": wanted.device == "cpu",
        **wanted.passthrough,
    }
    sections = {
        "model, data and reward": {
            "model_name_or_path": wanted.model,
            **({"model_revision": wanted.revision} if wanted.revision else {}),
            "dataset_name": PROMPTS,
            "dataset_train_split": "train",
            "reward_funcs": list(rewards.names),
            "max_completion_length": wanted.max_completion_length,
        },
        "what was tuned": tuned,
        "everything else": run,
    }
    lines = [f"# {_comment(wanted.title)}"]
    for head, keys in sections.items():
        lines += ["", f"# {head}"]
        lines += [f"{yaml_edit.scalar(key)}: {yaml_edit.scalar(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def _edited(wanted: Wanted, rewards: Rewards, prompts: bool) -> str:
    """The user's own file with the knobs of the configuration, and what the command line put in place of its own."""
    document = yaml_edit.located(wanted.user_config)
    changes: dict[yaml_edit.Path, Any] = {}
    for key, value in knob_keys(wanted).items():
        nested = ("model_init_kwargs", key)
        changes[nested if nested in document.values else (key,)] = value
    _keep_generation_size(document, changes, wanted)
    if changes.get(("torch_compile",)) is False:  # either of these alone turns it on
        compiling = [("torch_compile_mode",), ("torch_compile_backend",)]
        changes.update({path: None for path in compiling if path in document.values})
    if wanted.device == "cpu" and yaml_edit.lookup(document, ("use_cpu",)) is not True:
        changes[("use_cpu",)] = True
    if not _same_model(yaml_edit.lookup(document, ("model_name_or_path",)), wanted.model):
        changes[("model_name_or_path",)] = wanted.model
        if wanted.revision or ("model_revision",) in document.values:
            changes[("model_revision",)] = wanted.revision or "main"
    if rewards.files or ("reward_funcs",) not in document.values:
        changes[("reward_funcs",)] = list(rewards.names)
    if prompts:
        changes.update({("dataset_name",): PROMPTS, ("dataset_train_split",): "train"})
        nothing: dict[str, Any] = {"dataset_config": None, "datasets": []}
        changes.update({(key,): value for key, value in nothing.items() if (key,) in document.values})
    own = yaml_edit.lookup(document, ("max_completion_length",))
    if (DEFAULT_COMPLETION if own is None else own) != wanted.max_completion_length:
        changes[("max_completion_length",)] = wanted.max_completion_length
    return yaml_edit.edited(wanted.user_config, changes)


def _keep_generation_size(document: yaml_edit.Document, changes: dict[yaml_edit.Path, Any], wanted: Wanted) -> None:
    """Who states rows per generation keeps that key: TRL refuses both."""
    steps = changes.get(("steps_per_generation",))
    micro = changes.get(("per_device_train_batch_size",))
    if yaml_edit.lookup(document, ("generation_batch_size",)) is None or steps is None or micro is None:
        return
    del changes[("steps_per_generation",)]
    changes[("generation_batch_size",)] = steps * micro * wanted.world_size


def _same_model(own: Any, used: str) -> bool:
    """Whether the user's file names the model the study ran, perhaps by a relative path."""
    if not isinstance(own, str):
        return False
    tail = "/".join(part for part in own.split("/") if part not in ("", ".", "..", "~"))
    return own == used or (bool(tail) and f"/{used.rstrip('/')}".endswith(f"/{tail}"))


def _accelerate(wanted: Wanted) -> str:
    precision = str(wanted.configuration.get("precision", "fp32"))
    several = wanted.world_size > 1
    values = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": ("MULTI_CPU" if wanted.device == "cpu" else "MULTI_GPU") if several else "NO",
        "mixed_precision": precision if precision in ("bf16", "fp16") else "no",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": wanted.world_size,
        "use_cpu": wanted.device == "cpu",
        "main_training_function": "main",
        "enable_cpu_affinity": False,
        "debug": False,
    }
    return "".join(f"{key}: {yaml_edit.scalar(value)}\n" for key, value in values.items())


def _command(wanted: Wanted, rewards: Rewards, launcher: bool) -> Command:
    script = ("{here}/" + LAUNCHER,) if launcher else ("-m", "trl.scripts.grpo")
    threads = ("--num_cpu_threads_per_process", str(wanted.threads))
    accelerate = (wanted.python, "-m", "accelerate.commands.launch", "--config_file", "{here}/" + ACCELERATE)
    own_folder = bool(wanted.user_config)
    environment: dict[str, str] = {}
    if own_folder and rewards.files:
        environment["PYTHONPATH"] = "{here}"
    if wanted.device == "cuda" and wanted.world_size == 1:
        environment["CUDA_VISIBLE_DEVICES"] = "0"  # of several, TRL would use all
    return Command(
        argv=(*accelerate, *threads, *script, "--config", "{here}/" + CONFIG, *_data(wanted)),
        folder=rewards.folder or wanted.folder if own_folder else "{here}",
        environment=environment,
    )


def _data(wanted: Wanted) -> tuple[str, ...]:
    """Exported prompts by their whole path, where the command runs in the user's folder."""
    if wanted.user_config and not wanted.own_data:
        return ("--dataset_name", "{here}/" + PROMPTS)
    return ()


def _script(wanted: Wanted, command: Command) -> str:
    lines = [
        "#!/bin/sh",
        f"# {_comment(wanted.title)}",
        f"# Options of TRL's script may follow; they win over {CONFIG}.",
        'here=$(cd "$(dirname "$0")" && pwd) || exit 1',
    ]
    for name, value in command.environment.items():
        if name == "PYTHONPATH":
            lines.append(f"PYTHONPATH={_quoted(value)}${{PYTHONPATH:+:$PYTHONPATH}}")
        else:
            lines.append(f': "${{{name}:={value}}}"')
        lines.append(f"export {name}")
    if command.folder:
        lines.append(f"cd {_quoted(command.folder)} || exit 1")
    lines.append("exec " + " ".join(_quoted(word) for word in command.argv) + ' "$@"')
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """A word for the shell, ``{here}`` being the script's own folder."""
    before, sign, after = word.partition("{here}")
    if not sign:
        return shlex.quote(word)
    return (shlex.quote(before) if before else "") + '"$here"' + (shlex.quote(after) if after else "")


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _diff(wanted: Wanted, text: str) -> str:
    if not wanted.user_config:
        return ""
    old, new = wanted.user_config.splitlines(), text.splitlines()
    return "\n".join(difflib.unified_diff(old, new, "your configuration", CONFIG, lineterm=""))
