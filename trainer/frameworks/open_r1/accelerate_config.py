"""The accelerate file beside a recipe: how many processes, and what DeepSpeed shares out. Pure.

``deepspeed_config`` has short keys for the ZeRO stage and the offloads. For the rest it names a DeepSpeed file, and
accelerate 1.4 then refuses the short keys and ``mixed_precision`` beside it (``utils/dataclasses.py:1371``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces import yaml_edit
from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs.model import show
from search_spaces.yaml_text import read
from trainer.frameworks.common.config_entries import lines_of
from trainer.frameworks.common.deepspeed import deepspeed_config
from trainer.frameworks.common.deepspeed_places import PLACES, said, whole
from trainer.frameworks.common.exported import DEEPSPEED
from trainer.frameworks.common.values import KnobKeyError, parsed
from trainer.frameworks.open_r1.key_tables import SHORT_ZERO
from trainer.frameworks.open_r1.keys import acting

FILE_KEY = "deepspeed_config_file"
_MIXED = {"bf16": "bf16", "fp16": "fp16"}


@dataclass(frozen=True)
class Accelerate:
    """An accelerate file, understood."""

    knobs: Mapping[str, KnobValue]
    processes: int | None = None
    """``num_processes``; ``None`` if the file does not say."""
    lines: Mapping[str, int] = field(default_factory=dict)


def needs_file(configuration: Mapping[str, KnobValue]) -> bool:
    """A knob acts that has no short key."""
    acts = acting(configuration)
    return bool(acts.get("zero_stage")) and any(knob in acts for knob in PLACES if knob not in SHORT_ZERO)


def deepspeed_text(configuration: Mapping[str, KnobValue], device: str) -> str:
    """The DeepSpeed file; empty where the short keys say it all."""
    if not needs_file(configuration):
        return ""
    return json.dumps(deepspeed_config(acting(configuration), device), indent=2) + "\n"


def accelerate_values(configuration: Mapping[str, KnobValue], processes: int, device: str) -> dict[str, Any]:
    """Every key of the file, as Open-R1's own have them."""
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


def written(configuration: Mapping[str, KnobValue], processes: int, device: str, head: str) -> str:
    """The whole file under the comment ``head``."""
    lines = [f"# {head}"]
    for key, value in accelerate_values(configuration, processes, device).items():
        if isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {inner}: {yaml_edit.scalar(item)}" for inner, item in value.items())]
        else:
            lines.append(f"{key}: {yaml_edit.scalar(value)}")
    return "\n".join(lines) + "\n"


def edited(text: str, configuration: Mapping[str, KnobValue], processes: int, device: str) -> str:
    """The user's own file, with what the configuration says of processes, precision and DeepSpeed.

    Raises:
        YamlEditError: it cannot be changed in place.
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
    elif zero:
        changes[("deepspeed_config",)] = zero
    return yaml_edit.edited(text, changes)


def read_accelerate(text: str, name: str, files: Mapping[str, str] | None = None) -> Accelerate:
    """The knobs of an accelerate file.

    Args:
        text: the file.
        name: what messages call it.
        files: text of the DeepSpeed file it names, by ``deepspeed_config_file``.

    Raises:
        SpaceError: it is no mapping of plain values.
        KnobKeyError: a value no trial has (FSDP, another machine), naming the key.
    """
    document = read(text.encode("utf-8", "surrogatepass"), name, kind="accelerate file", exact=True)
    if not isinstance(document.value, dict):
        raise SpaceError(f"{name}: expected a mapping of accelerate's keys, got {document.described}.")
    values = {key: entry.plain for key, entry in document.value.items()}
    _check(values)
    zero = values.get("deepspeed_config") if values.get("distributed_type") == "DEEPSPEED" else None
    knobs: dict[str, KnobValue] = {"zero_stage": 0}
    if isinstance(zero, Mapping):
        knobs = _from_file(zero, files or {}) if zero.get(FILE_KEY) else _from_short(zero)
    return Accelerate(knobs, values.get("num_processes"), lines_of(document.value))


def _check(values: Mapping[str, Any]) -> None:
    if values.get("distributed_type") == "FSDP":
        raise KnobKeyError("distributed_type", "an Open-R1 trial shards with DeepSpeed, not with FSDP; use zero3")
    processes = values.get("num_processes", 1)
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise KnobKeyError("num_processes", f"expected a whole number of at least 1, got {show(processes)}")
    zero = values.get("deepspeed_config")
    if zero is not None and not isinstance(zero, Mapping):
        raise KnobKeyError("deepspeed_config", f"expected a mapping, got {show(zero)}")


def _from_short(zero: Mapping[str, Any]) -> dict[str, KnobValue]:
    found: dict[str, KnobValue] = {"zero_stage": parsed("zero_stage", "deepspeed_config.zero_stage", _stage(zero))}
    for knob, key in SHORT_ZERO.items():
        if knob != "zero_stage" and zero.get(key) is not None:
            found[knob] = parsed(knob, f"deepspeed_config.{key}", zero[key])
    return acting(found)


def _stage(zero: Mapping[str, Any]) -> Any:
    return 2 if zero.get("zero_stage") is None else zero["zero_stage"]  # accelerate's own default


def _from_file(zero: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, KnobValue]:
    path = zero[FILE_KEY]
    try:
        settings = json.loads(files[FILE_KEY])
    except KeyError:
        raise KnobKeyError(f"deepspeed_config.{FILE_KEY}", f"{show(path)} was not given") from None
    except ValueError as error:
        raise KnobKeyError(f"deepspeed_config.{FILE_KEY}", f"{show(path)} is not JSON ({error})") from None
    found: dict[str, KnobValue] = {"zero_stage": 0}
    for knob, value in said(settings).items():
        found[knob] = parsed(knob, ".".join((FILE_KEY, *PLACES[knob])), whole(value))
    return acting(found)
