"""ms-swift's arguments as our knobs. Pure; ``keys`` is the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from trainer.frameworks.common.deepspeed import at, zero_rest
from trainer.frameworks.common.speculation import ARGUMENT, speculative_knobs
from trainer.frameworks.common.trainer_keys import DTYPES, compiles, micro_batches, weights_held
from trainer.frameworks.common.values import KnobKeyError, parsed
from trainer.frameworks.ms_swift.key_tables import (
    ALL_REDUCE,
    CHECKPOINTING,
    ENGINE,
    ENGINE_KEY,
    KEYS,
    NATIVE,
    SERVERS_GUESSES,
    STEPS,
)
from trainer.frameworks.ms_swift.sharding import fsdp_of, zero_of

_FLASH = "flash_attn"
"""An older name of ``flash_attention_2``."""


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` set; arguments that are no knobs are ignored.

    Args:
        keys: values by their types; ``deepspeed`` and ``fsdp`` as mappings, not as names or paths.
        processes: training processes, for ``generation_batch_size``.

    Raises:
        KnobKeyError: naming the argument and what was expected.
    """
    given = {key: value for key, value in keys.items() if value is not None}
    found = {knob: _native(knob, key, given[key]) for knob, key in NATIVE.items() if key in given}
    size = int(found.get("sequence_parallel_size", 1))
    found.update({knob: size * int(parsed(knob, key, given[key])) for knob, key in STEPS.items() if key in given})
    if "generation_batch_size" in given:
        found["steps_per_generation"] = _steps(given, found, processes)
    if compiles(given):
        found["torch_compile"] = True
    found.update(_numerics(given))
    found.update(engine_of(given))
    if "deepspeed" in given:
        found.update(zero_of(given["deepspeed"]))
    if given.get("fsdp"):
        found.update(fsdp_of(given["fsdp"]))
    return found


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs; a mapping with knobs keeps its other entries."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if key == "deepspeed" and isinstance(value, Mapping):
            if left := zero_rest(value):
                found[key] = left
        elif key == CHECKPOINTING[0] and isinstance(value, Mapping):
            if left := {name: item for name, item in value.items() if name != CHECKPOINTING[1]}:
                found[key] = left
        elif key == ENGINE_KEY and isinstance(value, Mapping):
            if left := _without_knobs(value):
                found[key] = left
        elif key == SERVERS_GUESSES and keys.get("vllm_mode") != "colocate":
            continue
        elif key not in KEYS and not (key == "optimizer" and value == "muon"):
            found[key] = value
    return found


def _native(knob: str, key: str, value: Any) -> KnobValue:
    if knob == "attn_implementation" and value == _FLASH:
        value = "flash_attention_2"
    return parsed(knob, key, value)


def _steps(given: Mapping[str, Any], found: Mapping[str, KnobValue], processes: int) -> int:
    """Converts ``generation_batch_size`` to micro-batches, by ms-swift's own rule (S1, S2)."""
    key, rows = "generation_batch_size", given["generation_batch_size"]
    micro = int(found.get("micro_batch_size", defaults("ms_swift")["micro_batch_size"]))
    size = int(found.get("sequence_parallel_size", 1))
    each, steps = micro * processes, micro_batches(rows, micro, processes) * size
    if found.get("steps_per_generation", steps) != steps:
        own = int(found["steps_per_generation"]) // size
        raise KnobKeyError(key, f"expected {each * own} ({each} x steps_per_generation {own}), got {rows}")
    return steps


def _numerics(given: Mapping[str, Any]) -> dict[str, KnobValue]:
    found: dict[str, KnobValue] = {}
    if given.get("optimizer") == "muon":
        found["optimizer"] = "muon"
    elif "optim" in given:
        found["optimizer"] = parsed("optimizer", "optim", given["optim"])
    reentrant = at(given, CHECKPOINTING)
    if reentrant is not None:
        found["checkpointing_reentrant"] = parsed("checkpointing_reentrant", ".".join(CHECKPOINTING), reentrant)
    dtype = given.get("torch_dtype")
    if dtype is not None:
        found["master_weights"] = weights_held("torch_dtype", dtype, DTYPES)
    return {**found, **precision_of(given, dtype)}


def precision_of(given: Mapping[str, Any], dtype: Any) -> dict[str, KnobValue]:
    """Returns ``precision``; unset keys follow from ``torch_dtype``: bfloat16 computes in bf16, float32 in fp16."""
    if "bf16" not in given and "fp16" not in given and dtype is None:
        return {}
    bf16 = given.get("bf16", dtype in (None, "bfloat16"))
    fp16 = given.get("fp16", dtype == "float32")
    if bf16 and fp16:
        if "bf16" in given and "fp16" in given:
            raise KnobKeyError("fp16", "bf16 and fp16 cannot both be true; remove one of them")
        key, said = ("fp16", "bf16") if "bf16" in given else ("bf16", "fp16")
        said = said if dtype is None else "torch_dtype"
        raise KnobKeyError(said, f"without {key} false it makes ms-swift set both bf16 and fp16; add it")
    return {"precision": "bf16" if bf16 else "fp16" if fp16 else "fp32"}


def engine_of(given: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs of the rollout engine and inside vLLM's own arguments.

    Raises KnobKeyError with the argument and the expected value.
    """
    engine = given.get(ENGINE_KEY)
    found = _servers_guesses(given)
    if "use_vllm" in given:
        found["rollout_engine"] = "vllm" if given["use_vllm"] else "transformers"
    if ALL_REDUCE in given:
        found["custom_all_reduce"] = not given[ALL_REDUCE]
    if not isinstance(engine, Mapping):
        return found
    found.update(speculative_knobs(engine.get(ARGUMENT), f"{ENGINE_KEY}.{ARGUMENT}"))
    for knob, path in ENGINE.items():
        value = at(engine, path)
        if value is not None:
            value = value.lower() if knob == "vllm_compile_mode" and isinstance(value, str) else value
            found[knob] = parsed(knob, ".".join((ENGINE_KEY, *path)), value)
    return found


def _servers_guesses(given: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the speculation knobs of ``swift rollout``; with a colocated engine the argument has no effect."""
    value = given.get(SERVERS_GUESSES)
    if value is None or given.get("vllm_mode") == "colocate":
        return {}
    found = speculative_knobs(value, SERVERS_GUESSES)
    if not found:
        expected = "a trial's rollout server guesses by method ngram with num_speculative_tokens, or not at all"
        raise KnobKeyError(SERVERS_GUESSES, f"{expected}; remove it")
    return found


def _without_knobs(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Returns vLLM's own arguments that are no knobs."""
    found = {key: value for key, value in engine.items() if key != ARGUMENT or not speculative_knobs(value, ARGUMENT)}
    for path in ENGINE.values():
        if len(path) == 1:
            found.pop(path[0], None)
        elif isinstance(found.get(path[0]), Mapping):
            left = {name: value for name, value in found[path[0]].items() if name != path[1]}
            found = {**found, path[0]: left} if left else {k: v for k, v in found.items() if k != path[0]}
    return found
