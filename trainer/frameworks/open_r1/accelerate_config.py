"""The accelerate file of a recipe: number of processes, DeepSpeed, and values that the recipe repeats. Pure.

``deepspeed_config`` has short keys for the ZeRO stage and the offloads. For the rest it names a DeepSpeed file, and
accelerate 1.4 then refuses the short keys and ``mixed_precision`` beside it (``utils/dataclasses.py:1371``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces import yaml_edit
from search_spaces.configuration import KnobValue
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.common.accelerate_file import FILE_KEY, SAID_TWICE, SHORT_ZERO, AccelerateFile, read_file
from trainer.frameworks.common.config_entries import ConfigError, problem
from trainer.frameworks.common.deepspeed import (
    AUTO,
    PLACES,
    ZERO,
    at,
    batch_unset,
    deepspeed_config,
    leaves,
    said_otherwise,
    zero_knobs,
    zero_rest,
)
from trainer.frameworks.common.exported import DEEPSPEED
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.open_r1.keys import acting
from trainer.frameworks.open_r1.render import OBJECTIVE

_MIXED = {"bf16": "bf16", "fp16": "fp16"}
_SAID_ELSEWHERE = frozenset({"gradient_clipping", "fp16", "bf16", "scheduler"})
"""Keys that the recipe also sets, and that are compared with it."""
_OF_THE_RUN = frozenset(
    {
        *(("steps_per_print",), ("wall_clock_breakdown",), ("zero_allow_untested_optimizer",)),
        (ZERO, "stage3_gather_16bit_weights_on_model_save"),
    }
)
"""Keys on output and saving, without an effect on figures."""


_HALF = ("bf16", "fp16")


@dataclass(frozen=True)
class Accelerate:
    """An accelerate file, understood."""

    knobs: Mapping[str, KnobValue]
    file: AccelerateFile = field(default_factory=AccelerateFile)


def needs_file(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether a knob with an effect has no short key."""
    acts = acting(configuration)
    return bool(acts.get("zero_stage")) and any(knob in acts for knob in PLACES if knob not in SHORT_ZERO)


def deepspeed_text(configuration: Mapping[str, KnobValue], device: str) -> str:
    """Returns the text of the DeepSpeed file; empty if the short keys suffice."""
    if not needs_file(configuration):
        return ""
    return json.dumps(deepspeed_config(acting(configuration), device), indent=2) + "\n"


def accelerate_values(configuration: Mapping[str, KnobValue], processes: int, device: str) -> dict[str, Any]:
    """Returns every key of the file, in the form of Open-R1's own files."""
    acts, several = acting(configuration), processes > 1
    values: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "debug": False}
    if acts.get("zero_stage"):
        values.update(deepspeed_config=_deepspeed(configuration), distributed_type="DEEPSPEED")
    else:
        values["distributed_type"] = "MULTI_GPU" if several and device == "cuda" else "NO"
    if not needs_file(configuration):
        values["mixed_precision"] = _MIXED.get(str(acts.get("precision", "fp32")), "no")
    return {
        **values,
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": 1,
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": device == "cpu",
    }


def _deepspeed(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    acts = acting(configuration)
    stage = int(acts["zero_stage"])
    if needs_file(configuration):
        return {FILE_KEY: DEEPSPEED, "zero3_init_flag": stage == 3}
    found: dict[str, Any] = {
        "deepspeed_multinode_launcher": "standard",
        "offload_optimizer_device": acts.get("offload_optimizer", "none"),
        "offload_param_device": acts.get("offload_parameters", "none"),
        "zero3_init_flag": stage == 3,
        "zero_stage": stage,
    }
    return {**found, "zero3_save_16bit_model": True} if stage == 3 else found


def whole_file(configuration: Mapping[str, KnobValue], processes: int, device: str, head: str) -> str:
    """Writes the whole file under the comment ``head``."""
    lines = [f"# {head}"]
    for key, value in accelerate_values(configuration, processes, device).items():
        if isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {inner}: {yaml_edit.scalar(item)}" for inner, item in value.items())]
        else:
            lines.append(f"{key}: {yaml_edit.scalar(value)}")
    return "\n".join(lines) + "\n"


def edited(text: str, configuration: Mapping[str, KnobValue], processes: int, device: str) -> str:
    """Rewrites the user's own file: sets processes, precision and DeepSpeed of the configuration.

    Raises YamlEditError if the file cannot be edited in place.
    """
    document = yaml_edit.located(text)
    ours = accelerate_values(configuration, processes, device)
    zero, own_type = ours.get("deepspeed_config"), yaml_edit.lookup(document, ("distributed_type",))
    changes: dict[yaml_edit.Path, Any] = {("num_processes",): processes}
    if (own_type == "DEEPSPEED") != bool(zero) or own_type is None:
        changes[("distributed_type",)] = ours["distributed_type"]
    if "mixed_precision" in ours or ("mixed_precision",) in document.values:
        changes[("mixed_precision",)] = ours.get("mixed_precision")
    if (yaml_edit.lookup(document, ("use_cpu",)) is True) != ours["use_cpu"]:
        changes[("use_cpu",)] = ours["use_cpu"]
    short = isinstance(document.values.get(("deepspeed_config",)), yaml_edit.MAPPING)
    if zero and short and FILE_KEY not in zero and ("deepspeed_config", FILE_KEY) not in document.values:
        changes.update({("deepspeed_config", key): zero[key] for key in zero if key != "deepspeed_multinode_launcher"})
        twice = [("deepspeed_config", key) for key in SAID_TWICE if ("deepspeed_config", key) in document.values]
        changes.update(dict.fromkeys(twice, AUTO))  # transformers refuses another value than the recipe's
    elif zero:
        changes[("deepspeed_config",)] = zero
    return yaml_edit.edited(text, changes)


def read_accelerate(text: str, name: str, files: Mapping[str, str] | None = None) -> Accelerate:
    """Reads the knobs of an accelerate file.

    Args:
        text: the file; empty without one.
        files: text of the DeepSpeed file it names, by ``deepspeed_config_file``.

    Raises:
        ConfigError: a key or a value no trial has, by its line.
    """
    if not text:
        return Accelerate({})
    found = read_file(text, name, files or {})
    if found.fsdp is not None:
        line, why = found.line("distributed_type"), "an Open-R1 trial shards with DeepSpeed, not with FSDP; use zero3"
        raise problem(name, line, f"distributed_type: {why}")
    try:
        knobs = zero_knobs({"deepspeed": found.deepspeed})
    except KnobKeyError as error:
        raise found.problem(error.key.removeprefix("deepspeed."), error.text) from None
    for place in _without_knob(found.deepspeed or {}, knobs):
        raise found.problem(place, "an Open-R1 trial's DeepSpeed is not told it; remove it")
    return Accelerate(acting(knobs), found)


def _without_knob(settings: Mapping[str, Any], knobs: Mapping[str, KnobValue]) -> Iterator[str]:
    """Yields places of DeepSpeed's configuration that no knob can set to the user's value."""
    ours = deepspeed_config(knobs, "cuda")
    for place, value in leaves(zero_rest(settings)):
        if place[0] not in _SAID_ELSEWHERE and place not in _OF_THE_RUN and value not in (AUTO, at(ours, place)):
            yield ".".join(place)


def precision_beside(recipe: Mapping[str, Any], accelerate: Accelerate) -> dict[str, KnobValue]:
    """Returns ``mixed_precision`` if the recipe turns neither precision on (transformers 4.52)."""
    if accelerate.file.precision not in _HALF or any(recipe.get(key) is True for key in _HALF):
        return {}
    return {"precision": accelerate.file.precision}


def differing(recipe: Mapping[str, Any], accelerate: Accelerate, processes: int) -> Iterator[ConfigError]:
    """Yields an error for each value of DeepSpeed that contradicts the recipe, with its line in the accelerate file."""
    file, half = accelerate.file, str(precision_beside(recipe, accelerate).get("precision", ""))
    computing = {key: recipe.get(key) is True or half == key for key in _HALF}
    unset = {**OBJECTIVE, **batch_unset(FRAMEWORK)}
    for place, text in said_otherwise(file.deepspeed, {**recipe, **computing}, unset, processes):
        yield file.problem(place, text)
    if file.deepspeed is not None and half and recipe.get(half) is False:
        text = f"mixed_precision: {half} here and {half} false in the recipe differ, which transformers refuses beside"
        yield problem(file.name, file.line("mixed_precision"), f"{text} DeepSpeed; write one of them")


def notes_beside(recipe: Mapping[str, Any], accelerate: Accelerate) -> Iterator[str]:
    """Yields notes on unexpected combinations of the two files."""
    file, half = accelerate.file, str(precision_beside(recipe, accelerate).get("precision", ""))
    if half and file.deepspeed is not None and recipe.get(half) is None:
        text = f"mixed_precision: a trial computes in {half}; transformers refuses it beside DeepSpeed until the recipe"
        yield str(problem(file.name, file.line("mixed_precision"), f"{text} says {half}: true too"))
