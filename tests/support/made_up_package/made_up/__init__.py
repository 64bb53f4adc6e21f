"""A framework that this repository does not know, as another package brings one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Unpack

from autotune import extension as kit

NAME, CHILD = "made_up", Path(__file__).parents[1] / "made_up_child"
SETTINGS = {
    "micro_batch_size": kit.native("rows", 4),
    "gradient_accumulation_steps": kit.native("steps", 1),
    "steps_per_generation": kit.native("micro_batches", follows="gradient_accumulation_steps"),
    "num_generations": kit.native("group", 4),
    "rollout_engine": kit.native("engine", "transformers"),
    "gradient_checkpointing": kit.native("checkpointing", False),
}
kit.add_framework(NAME, "Made Up", kit.Facts(generates_with=("transformers",)), SETTINGS)
KEYS = kit.plain_keys(NAME, frozenset())
"""Knob -> key."""


def unsupported(configuration: Mapping[str, kit.KnobValue]) -> list[str]:
    return [f"a Made Up trial cannot set {name}" for name in configuration if name not in KEYS]


def keys_of(configuration: Mapping[str, kit.KnobValue]) -> dict[str, kit.KnobValue]:
    return {KEYS[name]: value for name, value in configuration.items()}


def render(
    *, configuration: Mapping[str, kit.KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[kit.TrialArguments]
) -> kit.TrialSpec:
    empty: dict[str, Any] = {"model_settings": {}, "seams": {}, "child": str(CHILD)}
    return kit.TrialSpec(framework=NAME, settings=keys_of(configuration), passthrough=passthrough, **empty, **trial)


def export(request: kit.ExportRequest) -> kit.Export:
    text = "".join(f"{key}: {value}\n" for key, value in keys_of(request.configuration).items())
    command = kit.Command((request.python, "-m", NAME, "{here}/run.yaml"), "", {})
    return kit.Export({"run.yaml": text, kit.RUN: "#!/bin/sh\n"}, command, {}, (), prompts=False)


def read_keys(text: str, name: str) -> dict[str, Any]:
    return {key: entry.plain for key, entry in kit.read_mapping(text, name, "run", "Made Up's keys").items()}


def import_config(
    text: str, name: str, fields: Mapping[str, kit.Field], processes: int, files: Mapping[str, str]
) -> kit.Imported:
    keys = read_keys(text, name)
    knobs = {knob: keys.pop(key) for knob, key in KEYS.items() if key in keys}
    return kit.Imported(knobs, keys, None, {}, (), None, {}, text)


class MadeUp(kit.Integration):
    name, own_script, describes = NAME, "Made Up's own program", False
    package: Any = SimpleNamespace(
        NATIVE=KEYS, SUPPORTED=frozenset(KEYS), unsupported=unsupported, render=render, export=export,
        diagnose=partial(kit.diagnose, signs=(), suggestions={}), suggest=kit.suggest,
    )  # fmt: skip
    reader: Any = SimpleNamespace(read_keys=read_keys, import_config=import_config)
    names = kit.ExportNames(config="run.yaml", run=kit.RUN, prompts="prompts")
    environment = kit.Environment((kit.Needed("json"),))  # type: ignore[assignment]
