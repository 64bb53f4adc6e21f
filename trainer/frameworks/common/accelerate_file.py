"""Reads the file of ``accelerate launch``: keys that affect a trial, and keys that a study sets itself. Pure.

Keys of accelerate 1.4 to 1.10 (``commands/config/config_args.py``, ``BaseConfig`` and ``ClusterConfig``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.knobs.model import show
from search_spaces.yaml_text import Entry
from trainer.frameworks.common.config_entries import ConfigError, Faults, closest, lines_of, problem, read_mapping
from trainer.frameworks.common.deepspeed import PLACES, ZERO

FILE_KEY = "deepspeed_config_file"
DEEPSPEED, FSDP = "deepspeed_config", "fsdp_config"
_SETS = frozenset({"distributed_type", "num_processes", "mixed_precision", DEEPSPEED, FSDP})
_LAUNCH = frozenset(
    {
        *("compute_environment", "debug", "downcast_bf16", "machine_rank", "main_training_function", "num_machines"),
        *("rdzv_backend", "same_network", "use_cpu", "main_process_ip", "main_process_port", "gpu_ids"),
        *("enable_cpu_affinity", "command_file", "commands", "mpirun_config"),
        *("tpu_env", "tpu_name", "tpu_zone", "tpu_vm", "tpu_use_cluster", "tpu_use_sudo"),
    }
)
"""Keys on where and how the processes run, which a study sets itself."""
_REFUSED: Mapping[str, str] = {
    "dynamo_config": "a trial compiles by torch_compile; write that key in the configuration and remove this one",
    "dynamo_backend": "a trial compiles by torch_compile; write that key in the configuration and remove this one",
    "fp8_config": "a trial computes in FP8 by the knob precision; remove it",
    "ipex_config": "a trial does not use Intel's extension; remove it",
    "megatron_lm_config": "a trial does not run Megatron-LM; use DeepSpeed",
    "parallelism_config": "a trial splits no sequences and no tensors over ranks for GRPO; remove it",
    "tp_config": "a trial splits no tensors over training ranks; remove it",
}
_TYPES = ("NO", "MULTI_GPU", "MULTI_CPU", "DEEPSPEED", "FSDP")
_ZERO_LAUNCH = frozenset(
    {
        *("deepspeed_multinode_launcher", "deepspeed_hostfile", "deepspeed_exclusion_filter"),
        *("deepspeed_inclusion_filter", "zero3_init_flag", "zero3_save_16bit_model"),
        *("offload_optimizer_nvme_path", "offload_param_nvme_path"),
    }
)
"""Keys on DeepSpeed's start, loading and saving, which a study sets itself."""
SHORT_ZERO: Mapping[str, str] = {
    "zero_stage": "zero_stage",
    "offload_optimizer": "offload_optimizer_device",
    "offload_parameters": "offload_param_device",
}
"""Knob -> key of ``deepspeed_config``."""
_ZERO_SETS = frozenset(SHORT_ZERO.values())
_SHORT = {".".join(PLACES[knob]): key for knob, key in SHORT_ZERO.items()}
"""Dotted path in DeepSpeed's configuration -> short key."""
SAID_TWICE = ("gradient_accumulation_steps", "gradient_clipping")
"""Keys of ``deepspeed_config`` that the trainer's own keys set as well."""
_NOT_BESIDE = _ZERO_SETS | {"zero3_save_16bit_model", *SAID_TWICE}
_PRECISIONS = ("no", "bf16", "fp16")


@dataclass(frozen=True)
class AccelerateFile:
    """An accelerate file, understood."""

    deepspeed: Mapping[str, Any] | None = None
    """DeepSpeed's configuration; ``None`` without DeepSpeed."""
    fsdp: Mapping[str, Any] | None = None
    """``fsdp_config`` as written; ``None`` without FSDP."""
    precision: str | None = None
    """``no``, ``bf16`` or ``fp16``; ``None`` if the file sets none."""
    processes: int | None = None
    """Processes on all machines; ``None`` if the file sets no number."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Key, and key.inner key -> line."""
    name: str = ""

    def line(self, key: str) -> int:
        """Returns the line of a key, or of its mapping; 0 if both are absent."""
        return self.lines.get(key) or self.lines.get(key.partition(".")[0], 0)

    def problem(self, place: str, text: str) -> ConfigError:
        """Builds the error for DeepSpeed's value at dotted path ``place``, named by this file's key for the path."""
        inner, file = f"{DEEPSPEED}.{_SHORT.get(place, place)}", f"{DEEPSPEED}.{FILE_KEY}"
        key = inner if inner in self.lines else f"{file}: {place}" if file in self.lines else DEEPSPEED
        return problem(self.name, self.line(key.partition(":")[0]), f"{key}: {text}")


def named_file(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Returns ``FILE_KEY`` -> (path as written, line), empty without it. Raises ``ConfigError`` if no mapping."""
    zero = _entries(text, name).get(DEEPSPEED)
    path = zero.value.get(FILE_KEY) if zero is not None and isinstance(zero.value, dict) else None
    return {} if path is None or path.value in (None, "none") else {FILE_KEY: (str(path.plain), path.line)}


def read_file(text: str, name: str, files: Mapping[str, str]) -> AccelerateFile:
    """Reads the file.

    Args:
        files: ``FILE_KEY`` -> text of the DeepSpeed file that the file names.

    Raises:
        ConfigError: lists every key that trials do not support, or accelerate does not know, with its line.
    """
    entries, faults = _entries(text, name), Faults()
    for key, entry in entries.items():
        with faults.caught():
            _check(key, entry, name)
    for error in _beside_a_file(entries, name):
        faults.add(error)
    faults.raise_collected()
    values = {key: entry.plain for key, entry in entries.items()}
    kind, zero = values.get("distributed_type"), values.get(DEEPSPEED) or {}
    return AccelerateFile(
        deepspeed=_zero(zero, entries[DEEPSPEED] if zero else None, name, files) if kind == "DEEPSPEED" else None,
        fsdp=values.get(FSDP) or {} if kind == "FSDP" else None,
        precision=str(_as_text(values["mixed_precision"])) if "mixed_precision" in values else None,
        processes=values.get("num_processes"),
        lines=lines_of(entries),
        name=name,
    )


def _entries(text: str, name: str) -> Mapping[str, Entry]:
    return read_mapping(text, name, "accelerate file", "accelerate's keys")


def _check(key: str, entry: Entry, name: str) -> None:
    value = entry.plain
    if key in _REFUSED and value not in (None, {}, "NO", "no", {"dynamo_backend": "NO"}):
        raise problem(name, entry.line, f"{key}: {_REFUSED[key]}")
    if key == "num_processes" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise problem(name, entry.line, f"{key}: expected a whole number of at least 1, got {show(value)}")
    if key == "distributed_type" and value not in _TYPES:
        raise problem(name, entry.line, f"{key}: a trial runs {', '.join(_TYPES)}, got {show(value)}")
    if key == "mixed_precision" and str(_as_text(value)) not in _PRECISIONS:
        raise problem(name, entry.line, f"{key}: a trial computes in {', '.join(_PRECISIONS)}, got {show(value)}")
    if key in (DEEPSPEED, FSDP) and not isinstance(value, dict | None):
        raise problem(name, entry.line, f"{key}: expected a mapping, got {show(value)}")
    if key == DEEPSPEED and isinstance(entry.value, dict):
        known = _ZERO_LAUNCH | _ZERO_SETS | {FILE_KEY, *SAID_TWICE}
        for inner, item in entry.value.items():
            if inner not in known and item.value not in (None, "", "none", False):
                raise problem(name, item.line, f"{key}.{inner}: a trial's DeepSpeed is not told it; remove it")
    if key not in _SETS | _LAUNCH | set(_REFUSED):
        raise problem(name, entry.line, f"accelerate has no key {show(key)}; {closest(key, [*_SETS, *_LAUNCH], 0.6)}")


def _beside_a_file(entries: Mapping[str, Entry], name: str) -> Iterator[ConfigError]:
    """Yields an error for each key that accelerate 1.4 refuses next to such a file (``utils/dataclasses.py:1371``)."""
    zero = entries[DEEPSPEED].value if DEEPSPEED in entries else None
    if not isinstance(zero, dict) or FILE_KEY not in zero or zero[FILE_KEY].value in (None, "none"):
        return
    beside = {f"{DEEPSPEED}.{key}": zero[key] for key in zero if key in _NOT_BESIDE}
    if "mixed_precision" in entries and entries["mixed_precision"].value is not None:
        beside["mixed_precision"] = entries["mixed_precision"]
    for key, entry in beside.items():
        text = f"{key}: accelerate refuses it beside {FILE_KEY}; say it in that file and remove it here"
        yield problem(name, entry.line, text)


def _as_text(value: Any) -> str | None:
    """Returns ``no`` for null and false, as which YAML reads ``no``; any other value unchanged."""
    return "no" if value in (None, False) else value


def _zero(zero: Mapping[str, Any], entry: Entry | None, name: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Builds DeepSpeed's configuration from accelerate's short keys, or from the file that they name."""
    if zero.get(FILE_KEY) not in (None, "none"):
        return _of_file(zero[FILE_KEY], entry.line if entry is not None else 0, name, files)
    stage = zero.get("zero_stage")
    places = {"offload_optimizer": "offload_optimizer_device", "offload_param": "offload_param_device"}
    offloads = {place: {"device": str(zero[key])} for place, key in places.items() if zero.get(key) is not None}
    twice = {key: zero[key] for key in SAID_TWICE if zero.get(key) is not None}
    return {**twice, ZERO: {"stage": 2 if stage is None else stage, **offloads}}  # 2 is accelerate's own


def _of_file(path: Any, line: int, name: str, files: Mapping[str, str]) -> dict[str, Any]:
    key = f"{DEEPSPEED}.{FILE_KEY}"
    if FILE_KEY not in files:
        raise problem(name, line, f"{key}: {show(path)} was not given")
    try:
        found = json.loads(files[FILE_KEY])
    except (ValueError, RecursionError) as error:
        raise problem(name, line, f"{key}: {show(path)} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise problem(name, line, f"{key}: {show(path)} holds no JSON object")
    return found
