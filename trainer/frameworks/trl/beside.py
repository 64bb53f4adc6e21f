"""The accelerate file that a TRL run is launched with, as TRL's own keys. Pure.

transformers takes DeepSpeed and FSDP from the launcher's variables where its own keys say neither
(``training_args.py:1655-1690`` of 5.17); a key of the configuration goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.frameworks.common.accelerate_file import FSDP, AccelerateFile

_RENAMED: Mapping[str, str] = {"offload_params": "cpu_offload"}
"""accelerate's key without ``fsdp_`` -> the key of ``fsdp_config``."""
_FIRST = 1
"""FSDP's version where accelerate's file does not say it."""


def keys_beside(values: Mapping[str, Any], file: AccelerateFile) -> dict[str, Any]:
    """The keys that ``file`` says, of those that ``values`` of the configuration leave open."""
    found: dict[str, Any] = {}
    if file.deepspeed is not None and not values.get("deepspeed"):
        found["deepspeed"] = file.deepspeed
    if file.fsdp is not None and not values.get("fsdp"):
        own = {name.removeprefix("fsdp_"): value for name, value in file.fsdp.items()}
        renamed = {_RENAMED.get(name, name): value for name, value in own.items()}
        found.update(fsdp=True, fsdp_config={"version": _FIRST, **renamed})
    off = values.get("bf16") is False and not values.get("fp16")
    if off and file.deepspeed is None and file.precision in ("bf16", "fp16"):
        found[file.precision] = True  # TRL itself sets bf16 where it is not said
    return found


def place_of(key: str, file: AccelerateFile) -> tuple[str, int]:
    """(Key as the accelerate file has it, its line) of TRL's ``key`` in ``fsdp_config``."""
    inner = key.partition(".")[2]
    names = {name: old for old, name in _RENAMED.items()}
    told = f"{FSDP}.fsdp_{names.get(inner, inner)}"
    return (told, file.lines[told]) if told in file.lines else (FSDP, file.line(FSDP))
