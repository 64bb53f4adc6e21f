"""TRL's keys as our knobs. Pure; ``keys`` is the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.deepspeed import at, zero_knobs, zero_rest
from trainer.frameworks.common.trainer_keys import cache_steps, half_precision, trainer_knobs
from trainer.frameworks.common.values import parsed
from trainer.frameworks.trl.key_tables import FRAMEWORK, KEYS, NATIVE, NESTED
from trainer.frameworks.trl.sharding import fsdp_knobs, fsdp_rest

_NULL_IS_UNSET = frozenset(
    {
        *("steps_per_generation", "generation_batch_size", "tf32", "pad_to_multiple_of", "bf16", "attn_implementation"),
        *("torch_compile_mode", "ddp_bucket_cap_mb", "vllm_max_model_length"),
    }
)
_NO_PADDING = ("auto", "none", "null")


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` of TRL's script set; keys that are no knobs are ignored.

    Args:
        keys: values as TRL's parser would have them; ``deepspeed`` and ``fsdp_config`` as mappings, not as paths.
        processes: training processes, for ``generation_batch_size``.

    Raises:
        KnobKeyError: naming the key and what was expected.
    """
    keys = {key: value for key, value in keys.items() if _is_set(key, value)}
    native = {knob: _native(knob, key, keys[key]) for knob, key in NATIVE.items() if key in keys}
    found = {**trainer_knobs(keys, native, FRAMEWORK, "dtype", processes), **_precision(keys), **_inside(keys)}
    if "attn_implementation" in keys:
        found["attn_implementation"] = parsed("attn_implementation", "attn_implementation", keys["attn_implementation"])
    if "vllm_enable_sleep_mode" in keys:
        found["sleep_level"] = 2 if keys["vllm_enable_sleep_mode"] else 0
    return {**found, **zero_knobs(keys), **fsdp_knobs(keys)}


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs; a mapping with knobs keeps its other entries."""
    inside = {(key, inner) for key, inner in NESTED.values()}
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(value, Mapping) and key == "deepspeed":
            left = zero_rest(value)
        elif isinstance(value, Mapping) and key == "fsdp_config":
            left = fsdp_rest(value)
        elif isinstance(value, Mapping) and key in {key for key, _ in inside}:
            left = {name: item for name, item in value.items() if (key, name) not in inside}
        elif key in KEYS:
            continue
        else:
            found[key] = value
            continue
        if left or (not value and key not in KEYS):
            found[key] = left
    return found


def _is_set(key: str, value: Any) -> bool:
    unset = value is None and key in _NULL_IS_UNSET
    return not unset and not (key == "pad_to_multiple_of" and str(value).lower() in _NO_PADDING)


def _native(knob: str, key: str, value: Any) -> KnobValue:
    if key == "torch_empty_cache_steps":
        value = cache_steps(key, value)
    if key == "pad_to_multiple_of" and isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else value
    return parsed(knob, key, value)


def _inside(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    found = {}
    for knob, place in NESTED.items():
        value = at(keys, place)
        if value is not None:
            found[knob] = parsed(knob, ".".join(place), value)
    return found


def _precision(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns ``precision``; ``bf16`` is true by default unless ``fp16`` is true, as in TRL."""
    bf16, fp16 = half_precision(keys)
    if bf16 is None and fp16 is None:
        return {}
    mixed = not fp16 if bf16 is None else bf16
    return {"precision": "fp16" if fp16 else "bf16" if mixed else "fp32"}
