"""A framework that this repository does not know, as another package brings one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Unpack

from autotune.frameworks import ExportNames, Integration
from autotune.frameworks.environments import Environment, Needed
from search_spaces.configuration import KnobValue
from search_spaces.frameworks import Facts
from search_spaces.knobs import add_framework, plain_keys
from search_spaces.knobs.build import native
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.config_entries import read_mapping
from trainer.frameworks.common.exported import RUN, Command, Export, ExportRequest
from trainer.frameworks.common.failures import diagnose, suggest
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.common.trial_arguments import TrialArguments

NAME, CHILD = "made_up", Path(__file__).parents[1] / "made_up_child"
SETTINGS = {
    "micro_batch_size": native("rows", 4),
    "gradient_accumulation_steps": native("steps", 1),
    "steps_per_generation": native("micro_batches", follows="gradient_accumulation_steps"),
    "num_generations": native("group", 4),
    "rollout_engine": native("engine", "transformers"),
    "gradient_checkpointing": native("checkpointing", False),
}
add_framework(NAME, "Made Up", Facts(generates_with=("transformers",)), SETTINGS)
KEYS = plain_keys(NAME, frozenset())
"""Knob -> key."""


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    return [f"a Made Up trial cannot set {name}" for name in configuration if name not in KEYS]


def keys_of(configuration: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    return {KEYS[name]: value for name, value in configuration.items()}


def render(
    *, configuration: Mapping[str, KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[TrialArguments]
) -> TrialSpec:
    empty: dict[str, Any] = {"model_settings": {}, "seams": {}, "child": str(CHILD)}
    return TrialSpec(framework=NAME, settings=keys_of(configuration), passthrough=passthrough, **empty, **trial)


def export(request: ExportRequest) -> Export:
    text = "".join(f"{key}: {value}\n" for key, value in keys_of(request.configuration).items())
    command = Command((request.python, "-m", NAME, "{here}/run.yaml"), "", {})
    return Export({"run.yaml": text, RUN: "#!/bin/sh\n"}, command, {}, (), prompts=False)


def read_keys(text: str, name: str) -> dict[str, Any]:
    return {key: entry.plain for key, entry in read_mapping(text, name, "run", "Made Up's keys").items()}


def import_config(
    text: str, name: str, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
) -> Imported:
    keys = read_keys(text, name)
    knobs = {knob: keys.pop(key) for knob, key in KEYS.items() if key in keys}
    return Imported(knobs, keys, None, {}, (), None, {}, text)


class MadeUp(Integration):
    name, own_script, describes = NAME, "Made Up's own program", False
    package: Any = SimpleNamespace(
        NATIVE=KEYS, SUPPORTED=frozenset(KEYS), unsupported=unsupported, render=render, export=export,
        diagnose=partial(diagnose, signs=(), suggestions={}), suggest=suggest,
    )  # fmt: skip
    reader: Any = SimpleNamespace(read_keys=read_keys, import_config=import_config)
    names = ExportNames(config="run.yaml", run=RUN, prompts="prompts")
    environment = Environment((Needed("json"),))  # type: ignore[assignment]
