"""TRL's keys and our knobs, both ways. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.model import show

NATIVE: Mapping[str, str] = {
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "num_generations": "num_generations",
    "steps_per_generation": "steps_per_generation",
    "gradient_checkpointing": "gradient_checkpointing",
    "optimizer": "optim",
    "torch_compile": "torch_compile",
    "tf32": "tf32",
    "pad_to_multiple": "pad_to_multiple_of",
    "empty_cache_steps": "torch_empty_cache_steps",
    "dataloader_workers": "dataloader_num_workers",
}
"""Knob -> ``GRPOConfig`` key, where the value goes over as it is (but for 0 in ``empty_cache_steps``)."""
SEAMS = frozenset({"logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk"})
PRECISIONS = ("fp32", "bf16", "fp16")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
SUPPORTED = frozenset(NATIVE) | SEAMS | {"precision", "master_weights", "attn_implementation", "rollout_engine"}
"""Knobs a TRL trial can set."""

KEYS: Mapping[str, str] = MappingProxyType(
    {
        **{key: knob for knob, key in NATIVE.items()},
        "generation_batch_size": "steps_per_generation",
        "bf16": "precision",
        "fp16": "precision",
        "dtype": "master_weights",
        "attn_implementation": "attn_implementation",
        "use_vllm": "rollout_engine",
    }
)
"""TRL key -> knob. Of these keys an exported file holds what ``to_keys`` gives and no other."""

_NULL_IS_UNSET = frozenset(
    {"steps_per_generation", "generation_batch_size", "tf32", "pad_to_multiple_of", "bf16", "attn_implementation"}
)
_NO_PADDING = ("auto", "none", "null")
_COMPILING = ("torch_compile_mode", "torch_compile_backend")


class KnobKeyError(ValueError):
    """A key that cannot become a knob's value, and why; neither begins with a capital nor ends with a stop."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key, self.text = key, text


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """A sentence for each knob or value a TRL trial cannot set; empty if it can be run."""
    said = [f"a TRL trial cannot set {name}" for name in sorted(configuration) if name not in SUPPORTED]
    if configuration.get("rollout_engine", "transformers") != "transformers":
        said.append(f"rollout_engine {configuration['rollout_engine']}: a TRL trial generates with transformers")
    precision = configuration.get("precision", "bf16")
    if precision not in PRECISIONS:
        said.append(f"precision {precision}: a TRL trial computes in {', '.join(PRECISIONS)}")
    master = configuration.get("master_weights", "fp32")
    if master not in DTYPES:
        said.append(f"master_weights {master}: TRL holds weights in {' or '.join(DTYPES)}")
    if master == "bf16" and precision != "bf16":
        said.append(f"precision {precision} with master_weights bf16: weights would be rounded below what is computed")
    return said


def training_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """``GRPOConfig`` arguments of the knobs that are set."""
    found: dict[str, Any] = {key: configuration[knob] for knob, key in NATIVE.items() if knob in configuration}
    if "empty_cache_steps" in configuration:
        found["torch_empty_cache_steps"] = configuration["empty_cache_steps"] or None  # TRL refuses 0
    if "precision" in configuration:
        found["bf16"] = configuration["precision"] == "bf16"
        found["fp16"] = configuration["precision"] == "fp16"
    return found


def model_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """``ModelConfig`` arguments of the knobs that are set."""
    found: dict[str, Any] = {}
    if "master_weights" in configuration:
        found["dtype"] = DTYPES[str(configuration["master_weights"])]
    if "attn_implementation" in configuration:
        found["attn_implementation"] = configuration["attn_implementation"]
    return found


def to_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """The keys of TRL's script for every knob that is set; seams have none.

    Raises:
        ValueError: a knob or value TRL cannot be given (``unsupported``).
    """
    refused = unsupported(configuration)
    if refused:
        raise ValueError("; ".join(refused))
    engine = {"use_vllm": False} if "rollout_engine" in configuration else {}
    return {**training_keys(configuration), **model_keys(configuration), **engine}


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """The knobs that ``keys`` of TRL's script set; keys that are no knobs are left alone.

    Args:
        keys: values as TRL's parser would have them.
        processes: training processes, for ``generation_batch_size``.

    Raises:
        KnobKeyError: naming the key and what was expected.
    """
    found = {knob: _native(knob, key, keys[key]) for knob, key in NATIVE.items() if _is_set(keys, key)}
    if _is_set(keys, "generation_batch_size"):
        found["steps_per_generation"] = _steps(keys, found, processes)
    if any(keys.get(key) is not None for key in _COMPILING):
        found["torch_compile"] = True  # as TrainingArguments does
    found.update(_precision(keys))
    if "dtype" in keys:
        found["master_weights"] = _master_weights(keys["dtype"])
    if _is_set(keys, "attn_implementation"):
        found["attn_implementation"] = _parsed("attn_implementation", "attn_implementation", keys)
    if "use_vllm" in keys:
        if keys["use_vllm"]:
            raise KnobKeyError("use_vllm", "a trial generates with transformers so far; set it to false")
        found["rollout_engine"] = "transformers"
    return found


def _is_set(keys: Mapping[str, Any], key: str) -> bool:
    if key not in keys or (keys[key] is None and key in _NULL_IS_UNSET):
        return False
    return key != "pad_to_multiple_of" or str(keys[key]).lower() not in _NO_PADDING


def _native(knob: str, key: str, value: Any) -> KnobValue:
    if key == "torch_empty_cache_steps":
        if value is None:
            return 0
        if value == 0:
            raise KnobKeyError(key, "expected a whole number of at least 1, or null, got 0")
    if key == "pad_to_multiple_of" and isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else value
    return _parsed(knob, key, {key: value})


def _parsed(knob: str, key: str, keys: Mapping[str, Any]) -> KnobValue:
    try:
        return KNOBS[knob].parse(keys[key])
    except SpaceError as error:
        raise KnobKeyError(key, str(error)) from None


def _steps(keys: Mapping[str, Any], found: Mapping[str, KnobValue], processes: int) -> int:
    """``generation_batch_size`` in micro-batches, by TRL's own rule."""
    key, rows = "generation_batch_size", keys["generation_batch_size"]
    if "steps_per_generation" in found:
        raise KnobKeyError(key, "it cannot be set beside steps_per_generation; remove one of them")
    micro = found.get("micro_batch_size", defaults("trl")["micro_batch_size"])
    each = int(micro) * processes
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1 or rows % each:
        size = f"per_device_train_batch_size {micro}" + (f" x {processes} processes" if processes > 1 else "")
        raise KnobKeyError(key, f"expected a multiple of {each} ({size}), got {show(rows)}")
    return rows // each


def _precision(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """``bf16`` counts as true unless it is given or ``fp16`` is true, as in TRL."""
    bf16, fp16 = keys.get("bf16"), keys.get("fp16")
    for key, value in (("bf16", bf16), ("fp16", fp16)):
        if value is not None and not isinstance(value, bool):
            raise KnobKeyError(key, f"expected true or false, got {show(value)}")
    if bf16 and fp16:
        raise KnobKeyError("fp16", "bf16 and fp16 cannot both be true; remove one of them")
    if bf16 is None and fp16 is None:
        return {}
    mixed = not fp16 if bf16 is None else bf16
    return {"precision": "fp16" if fp16 else "bf16" if mixed else "fp32"}


def _master_weights(dtype: Any) -> str:
    for precision, name in DTYPES.items():
        if dtype == name:
            return precision
    raise KnobKeyError("dtype", f"a trial holds weights in {' or '.join(DTYPES.values())}, got {show(dtype)}")
