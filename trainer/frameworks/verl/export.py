"""Exports a configuration as a script that runs verl's own entry point with every value explicit. Pure.

The script sets all keys, including the user's own if there are any: Hydra has no file that could be edited.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainer.child.contract import RewardSpec
from trainer.frameworks.common import exported
from trainer.frameworks.verl import key_handling as handling
from trainer.frameworks.verl import megatron
from trainer.frameworks.verl.hydra import override, quoted
from trainer.frameworks.verl.keys import added
from trainer.frameworks.verl.ray import ENVIRONMENT, LOG_VARIABLE, cpus, variables
from trainer.frameworks.verl.reading import read_given
from trainer.frameworks.verl.render import OBJECTIVE, settings, workload

MODULE = "verl.trainer.main_ppo"
DATA = "autotune_verl_data.py"
"""Module of the dataset class by which verl reads the exported prompts."""
REWARD = "autotune_verl_reward.py"
"""Module of the function by which verl scores a completion."""
FUNCTION = "compute_score"


_PATHS = (handling.TRAIN_FILES, handling.VALIDATION_FILES, handling.DATASET_PATH, handling.REWARD_PATH)
_RUN: Mapping[str, Any] = {
    "trainer.project_name": "autotune",
    "trainer.experiment_name": "run",
    "trainer.logger": ["console", "file"],
    "trainer.total_epochs": 1,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.val_before_train": False,
    "trainer.resume_mode": "disable",
    "trainer.default_local_dir": f"{exported.HERE}/output",
    "hydra.run.dir": f"{exported.HERE}/hydra",
}
"""Output settings of a run, which the user's own keys override."""


def export(request: exported.ExportRequest) -> exported.Export:
    """Returns the files and the command; includes ``prompts/train.jsonl`` unless the prompts are the user's own.

    Raises ValueError for a configuration, device or reward that verl cannot take.
    """
    text = request.user_config
    own = read_given(text, "your configuration", request.folder or ".").values if text else {}
    theirs = {key: _from_folder(own[key], request.folder) if key in _PATHS else own[key] for key in own}
    prompts = not (own and request.own_data)
    files = {DATA: exported.fill(__file__, "data")} if prompts else {}
    file = f"{exported.HERE}/{exported.PROMPTS}/train.jsonl"  # verl needs a validation file even without validation
    data: dict[str, Any] = {key: theirs[key] for key in sorted(handling.DATASET) if key in theirs}
    if prompts:
        data = {handling.TRAIN_FILES: file, handling.VALIDATION_FILES: file}
        data |= {handling.DATASET_PATH: f"{exported.HERE}/{DATA}", handling.DATASET_NAME: "Prompts"}
        data[handling.PROMPT_KEY] = "prompt"
    reward = {key: theirs[key] for key in (handling.REWARD_PATH, handling.REWARD_NAME) if key in theirs}
    if request.rewards:
        files.update(scoring_of(request.rewards).files)
        reward = {handling.REWARD_PATH: f"{exported.HERE}/{REWARD}", handling.REWARD_NAME: FUNCTION}
    command = _command(request, {**data, **reward})
    commit = f"{request.model} was at commit {request.revision}; verl takes no commit, only what the name stands for."
    script = _script(request.title, command, *([commit] if request.revision else []))
    diff = exported.difference(text, script, exported.RUN)
    return exported.Export({exported.RUN: script, **files}, command, {}, (), prompts, diff)


def _from_folder(value: Any, folder: str) -> Any:
    """Returns the user's own path, or list of paths, resolved from the user's folder."""
    if isinstance(value, list):
        return [_from_folder(item, folder) for item in value]
    local = isinstance(value, str) and folder and "://" not in value and not value.startswith(("~", "pkg"))
    return os.path.join(folder, value) if local else value


def _command(request: exported.ExportRequest, inputs: Mapping[str, Any]) -> exported.Command:
    tuned = settings(request.configuration, **request.sizes)
    fixed = workload(
        model=request.model,
        max_prompt_length=request.max_prompt_length,
        max_completion_length=request.max_completion_length,
        world_size=request.world_size,
        seed=request.seed,
        nodes=request.nodes,
    )
    cores = request.cores if request.nodes == 1 else 0  # Ray of several nodes is there before verl
    ours = {**fixed, **inputs, **tuned, **cpus(request.passthrough, request.world_size, cores)}
    other = megatron.chosen(tuned)
    ours = megatron.renamed(ours) if other else ours
    theirs = {key: value for key, value in request.passthrough.items() if key not in ours and key != ENVIRONMENT}
    words = [_word(key, value, new=added(key)) for key, value in ours.items()]
    objective = megatron.renamed(OBJECTIVE) if other else OBJECTIVE
    words += [_word(key, value, new=False) for key, value in objective.items() if key not in theirs]
    words += [_word(key, value, new=False) for key, value in _RUN.items() if key not in theirs]
    words += [_word(key, value, new=not key.startswith("hydra.")) for key, value in theirs.items()]
    environment = {
        **{name: str(value) for name, value in (request.passthrough.get(ENVIRONMENT) or {}).items()},
        **variables(request.configuration),
    }
    environment.setdefault(LOG_VARIABLE, f"{exported.HERE}/metrics.jsonl")
    folder = request.folder if request.user_config and request.folder else exported.HERE
    return exported.Command((request.python, "-m", MODULE, *words), folder, environment)


def _word(key: str, value: Any, *, new: bool) -> str:
    """Formats an override; a path in the exported folder is quoted, because the folder may have any name."""
    if isinstance(value, str) and value.startswith(exported.HERE):
        return f"{key}={quoted(value)}"
    return override(key, value, new)


def _script(title: str, command: exported.Command, *remarks: str) -> str:
    """Returns the script that runs the command from any folder; the caller's variables take precedence."""
    lines = ["#!/bin/sh", *(f"# {exported.comment(line)}" for line in (title, *remarks))]
    lines += ["# Overrides may follow; they win over those here.", exported.FIND_HERE]
    for name, value in command.environment.items():
        lines.append(f'[ -n "${{{name}+set}}" ] || {name}={exported.quoted(value)}')
        lines.append(f"export {name}")
    words = [exported.quoted(word) for word in command.argv]
    place = command.argv.index(MODULE) + 1
    call = " \\\n  ".join(["exec " + " ".join(words[:place]), *words[place:], '"$@"'])
    return "\n".join([*lines, f"cd {exported.quoted(command.folder)} || exit 1", call]) + "\n"


def scoring_of(specs: Sequence[RewardSpec]) -> exported.Rewards:
    """Returns the module with ``compute_score``, and the modules it calls.

    Raises ValueError for a reward of TRL's own, which verl's environment lacks, or an unknown kind.
    """
    own = [spec.name for spec in specs if spec.kind == "trl"]
    if own:
        raise ValueError(f"{own[0]} is a reward of TRL's own, which verl does not have; name a file or a task instead")
    rewards = exported.rewards_of(specs)
    imports, names = [], []
    for number, dotted in enumerate(rewards.names):
        module, _, function = dotted.rpartition(".")
        imports.append(f"from {module} import {function} as reward_{number}")
        names.append(f"reward_{number}")
    folders = [rewards.folder] if rewards.folder else []
    text = exported.fill(__file__, "reward", folders=repr(folders), imports="\n".join(imports), names=", ".join(names))
    files = {**rewards.files, REWARD: text}
    module = f"{exported.MODULE}.py"
    if module in files:  # TRL's export says in its first line what its module needs
        said = '"""The reward of this run; needs nothing but the training environment."""'
        files[module] = "\n".join([said, files[module].partition("\n")[2]])
    return replace(rewards, files=files)
