"""The keys of an Open-R1 recipe as our knobs. Pure; ``keys`` is the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.open_r1.key_tables import CHECKPOINTING, DTYPES, KEYS, NATIVE, NULL_IS_UNSET
from trainer.frameworks.trl.values import KnobKeyError, parsed


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
        found["steps_per_generation"] = _steps(keys, found, processes)
    if any(keys.get(key) is not None for key in ("torch_compile_mode", "torch_compile_backend")):
        found["torch_compile"] = True  # as TrainingArguments does
    found.update(_precision(keys))
    if _is_set(keys, "torch_dtype"):
        found["master_weights"] = _master_weights(keys["torch_dtype"])
    key, inner = CHECKPOINTING
    mapping = keys.get(key)
    if isinstance(mapping, Mapping) and mapping.get(inner) is not None:
        found["checkpointing_reentrant"] = parsed("checkpointing_reentrant", f"{key}.{inner}", mapping[inner])
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
    if key == "torch_empty_cache_steps" and value is None:
        return 0
    if key == "torch_empty_cache_steps" and value == 0:
        raise KnobKeyError(key, "expected a whole number of at least 1, or null, got 0")
    return parsed(knob, key, value)


def _steps(keys: Mapping[str, Any], found: Mapping[str, KnobValue], processes: int) -> int:
    """``generation_batch_size`` in micro-batches. TRL 0.18 rounds one that does not divide down without a word."""
    key, rows = "generation_batch_size", keys["generation_batch_size"]
    if "steps_per_generation" in found:
        raise KnobKeyError(key, "it cannot be set beside steps_per_generation; remove one of them")
    micro = found.get("micro_batch_size", defaults(FRAMEWORK)["micro_batch_size"])
    each = int(micro) * processes
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1 or rows % each:
        size = f"per_device_train_batch_size {micro}" + (f" x {processes} processes" if processes > 1 else "")
        raise KnobKeyError(key, f"expected a multiple of {each} ({size}), got {show(rows)}")
    return rows // each


def _precision(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Without either key it is fp32, which is what TrainingArguments of transformers 4.52 leave it at."""
    bf16, fp16 = keys.get("bf16"), keys.get("fp16")
    for key, value in (("bf16", bf16), ("fp16", fp16)):
        if value is not None and not isinstance(value, bool):
            raise KnobKeyError(key, f"expected true or false, got {show(value)}")
    if bf16 and fp16:
        raise KnobKeyError("fp16", "bf16 and fp16 cannot both be true; remove one of them")
    if bf16 is None and fp16 is None:
        return {}
    return {"precision": "bf16" if bf16 else "fp16" if fp16 else "fp32"}


def _master_weights(dtype: Any) -> str:
    for precision, name in DTYPES.items():
        if dtype == name:
            return precision
    raise KnobKeyError("torch_dtype", f"a trial holds weights in {' or '.join(DTYPES.values())}, got {show(dtype)}")
