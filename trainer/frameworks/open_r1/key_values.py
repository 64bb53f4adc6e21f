"""The keys of an Open-R1 recipe as our knobs. Pure; ``keys`` is the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.common.deepspeed import at
from trainer.frameworks.common.trainer_keys import cache_steps, half_precision, trainer_knobs
from trainer.frameworks.common.values import parsed
from trainer.frameworks.open_r1.key_tables import CHECKPOINTING, KEYS, NATIVE, NULL_IS_UNSET


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` of a recipe set; keys that are no knobs are ignored.

    Args:
        keys: values as TRL's parser would have them.
        processes: training processes, for ``generation_batch_size``.

    Raises:
        KnobKeyError: naming the key and what was expected.
    """
    keys = {key: value for key, value in keys.items() if value is not None or key not in NULL_IS_UNSET}
    native = {knob: _native(knob, key, keys[key]) for knob, key in NATIVE.items() if key in keys}
    found = {**trainer_knobs(keys, native, FRAMEWORK, "torch_dtype", processes), **_precision(keys)}
    reentrant = at(keys, CHECKPOINTING)
    if reentrant is not None:
        found["checkpointing_reentrant"] = parsed("checkpointing_reentrant", ".".join(CHECKPOINTING), reentrant)
    return found


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs; a mapping with a knob keeps its other entries."""
    found = {key: value for key, value in keys.items() if key not in KEYS}
    key, inner = CHECKPOINTING
    if isinstance(found.get(key), Mapping):
        left = {name: item for name, item in found.pop(key).items() if name != inner}
        if left:
            found[key] = left
    return found


def _native(knob: str, key: str, value: Any) -> KnobValue:
    return parsed(knob, key, cache_steps(key, value) if key == "torch_empty_cache_steps" else value)


def _precision(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns ``precision``; fp32 if both keys are false, nothing if neither is set (transformers 4.52)."""
    bf16, fp16 = half_precision(keys)
    if bf16 is None and fp16 is None:
        return {}
    return {"precision": "bf16" if bf16 else "fp16" if fp16 else "fp32"}
