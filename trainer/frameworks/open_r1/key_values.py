"""The keys of an Open-R1 recipe as our knobs. Pure; ``keys`` is the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.common.beyond import DTYPES
from trainer.frameworks.common.trainer_keys import cache_steps, compiles, half_precision, inside, steps_of, weights_held
from trainer.frameworks.common.values import parsed
from trainer.frameworks.open_r1.key_tables import CHECKPOINTING, KEYS, NATIVE, NULL_IS_UNSET


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """The knobs that ``keys`` of a recipe set; keys that are no knobs are left alone.

    Args:
        keys: values as TRL's parser would have them.
        processes: training processes, for ``generation_batch_size``.

    Raises:
        KnobKeyError: naming the key and what was expected.
    """
    found = {knob: _native(knob, key, keys[key]) for knob, key in NATIVE.items() if _is_set(keys, key)}
    if _is_set(keys, "generation_batch_size"):
        unset = int(defaults(FRAMEWORK)["micro_batch_size"])
        found["steps_per_generation"] = steps_of(keys, found, unset, processes)  # TRL 0.18 rounds down without a word
    if compiles(keys):
        found["torch_compile"] = True
    found.update(_precision(keys))
    if _is_set(keys, "torch_dtype"):
        found["master_weights"] = weights_held("torch_dtype", keys["torch_dtype"], DTYPES)
    reentrant = inside(keys, CHECKPOINTING)
    if reentrant is not None:
        found["checkpointing_reentrant"] = parsed("checkpointing_reentrant", ".".join(CHECKPOINTING), reentrant)
    if "use_vllm" in keys:
        found["rollout_engine"] = "vllm" if keys["use_vllm"] else "transformers"
    return found


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``keys`` is no knob; of the mapping with a knob inside, what is beside it."""
    found = {key: value for key, value in keys.items() if key not in KEYS}
    key, inner = CHECKPOINTING
    if isinstance(found.get(key), Mapping):
        left = {name: item for name, item in found.pop(key).items() if name != inner}
        if left:
            found[key] = left
    return found


def _is_set(keys: Mapping[str, Any], key: str) -> bool:
    return key in keys and not (keys[key] is None and key in NULL_IS_UNSET)


def _native(knob: str, key: str, value: Any) -> KnobValue:
    return parsed(knob, key, cache_steps(key, value) if key == "torch_empty_cache_steps" else value)


def _precision(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Without either key it is fp32, which is what TrainingArguments of transformers 4.52 leave it at."""
    bf16, fp16 = half_precision(keys)
    if bf16 is None and fp16 is None:
        return {}
    return {"precision": "bf16" if bf16 else "fp16" if fp16 else "fp32"}
