"""Converts knobs to arguments of ``swift rlhf`` and ``swift rollout`` (ms-swift 4.6), to variables, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Reach, defaults, key_of, keys_of, places_in, plain_keys
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from search_spaces.knobs.model import whole_number
from search_spaces.legality.swift_rules import DEFAULT_BUCKET_MIB
from search_spaces.native import acting as acting_in
from trainer.frameworks.common import values
from trainer.frameworks.common.deepspeed import PLACES, at, rest_of, zero_places
from trainer.frameworks.common.trainer_keys import DTYPES, compiles, micro_batches, unsettable, weights_held
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.common.values import variables as allocators
from trainer.frameworks.ms_swift.sharding import deepspeed_argument, fsdp_argument, fsdp_of, zero_of

FRAMEWORK = "ms_swift"
OF_MEGATRON = tuple(name for name, knob in KNOBS.items() if ENGINE_KNOB in knob.needs)
"""Knobs with an effect under Megatron only (``megatron``), with which no trial runs."""
STEPS = {name: key_of(name, FRAMEWORK) for name in ("gradient_accumulation_steps", "steps_per_generation")}
"""Knob -> argument that ms-swift multiplies by ``sequence_parallel_size``."""
TRANSLATED = frozenset({"precision", "master_weights", "optimizer", "rollout_engine", "custom_all_reduce"})
"""Knobs whose arguments have other values than the knob."""
NATIVE = {
    **plain_keys(FRAMEWORK, {*STEPS, *TRANSLATED, *OF_MEGATRON, "fsdp"}),
    # The catalogue names the command too: only ``swift rollout`` reads it.
    "rollout_data_parallel_size": "vllm_data_parallel_size",
}
"""Knob -> argument with the same value (except 0 in ``empty_cache_steps``)."""

ENGINE_KEY = "vllm_engine_kwargs"
ENGINE = {knob: place for knob, place in places_in(FRAMEWORK, ENGINE_KEY).items() if knob not in values.SPECULATIVE}
"""Knob -> path in ``vllm_engine_kwargs``, the JSON of vLLM's own engine arguments."""
SERVERS_GUESSES = "vllm_speculative_config"
"""Argument of ``swift rollout`` for ``speculative_config``; a colocated engine does not get it
(``swift/rlhf_trainers/rollout_mixin.py:507``)."""
ALL_REDUCE = "vllm_disable_custom_all_reduce"
"""Argument that negates the knob ``custom_all_reduce``; a colocated engine does not get it."""

CHECKPOINTING = ("gradient_checkpointing_kwargs", "use_reentrant")

ZERO = frozenset(PLACES) - {"zero_prefetch_bucket"}
"""Knobs in DeepSpeed's configuration; ms-swift never prefetches for GRPO."""
FSDP = frozenset({"fsdp", *places_in(FRAMEWORK, "fsdp")})
SERVER = frozenset({"rollout_gpus", "training_gpus"})
"""Knobs of the launch: the number of GPUs of all replicas of the server, and of the training."""

BUCKET_VARIABLE = "SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE"
ENVIRONMENT = frozenset({*keys_of(FRAMEWORK, Reach.ENVIRONMENT), "weight_sync_bucket_mib"})
"""Knobs set by environment variables of the process."""

SEAMS = frozenset({"logprob_rows"})
"""Knobs without an argument, which a plugin patches (child: ``seams.py``)."""

PRECISIONS = ("fp32", "bf16", "fp16")
SUPPORTED = frozenset(
    {
        *(*NATIVE, *STEPS, *TRANSLATED, *ENGINE, *values.SPECULATIVE, *ZERO, *FSDP, *SERVER, *ENVIRONMENT, *SEAMS),
        "checkpointing_reentrant",
    }
)
"""Knobs an ms-swift trial can set."""

KEYS = frozenset(
    {
        *NATIVE.values(),
        *STEPS.values(),
        *("generation_batch_size", "optim", "bf16", "fp16", "torch_dtype", "use_vllm", ALL_REDUCE, "deepspeed", "fsdp"),
    }
)
"""Arguments that hold knobs; an exported file sets them only as ``own_keys`` gives them."""

SERVED = (
    *("vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_data_parallel_size", "vllm_max_model_len"),
    *("vllm_max_num_seqs", "vllm_enforce_eager", "vllm_enable_prefix_caching", ALL_REDUCE, ENGINE_KEY),
    SERVERS_GUESSES,
)
"""Arguments of ``swift rollout`` that ``swift rlhf`` also accepts, without an effect in server mode."""
_FLASH = "flash_attn"
"""Older name of ``flash_attention_2``."""

acting = partial(acting_in, framework=FRAMEWORK)
"""Returns the knobs with an effect: knobs whose needs hold, an unset knob having ms-swift's default."""


def unwritable(acts: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that ``swift rlhf`` has no argument for."""
    known = SUPPORTED | {ENGINE_KNOB}
    said = [f"ms-swift has no setting for {name}" for name in sorted(acts) if name not in known]
    said += unsettable(acts, FRAMEWORK, "ms-swift", "an ms-swift trial", PRECISIONS)
    return said + [sentence for sentence in (_steps(acts), _colocated(acts), _offloaded(acts)) if sentence]


def _steps(acts: Mapping[str, KnobValue]) -> str | None:
    size = int(acts.get("sequence_parallel_size", 1))
    for name in STEPS:
        value = acts.get(name)
        if isinstance(value, int) and value % size:
            return f"{name} {value}: ms-swift multiplies it by sequence_parallel_size {size}, which does not divide it"
    return None


def _colocated(acts: Mapping[str, KnobValue]) -> str | None:
    unset = defaults(FRAMEWORK)
    if acts.get("rollout_mode", unset["rollout_mode"]) == "server":
        return None
    if acts.get("custom_all_reduce") is True:
        return "custom_all_reduce true: ms-swift builds a colocated engine without it"
    size = acts.get("weight_sync_bucket_mib", DEFAULT_BUCKET_MIB)
    if size != DEFAULT_BUCKET_MIB:
        return f"weight_sync_bucket_mib {size}: ms-swift sends weights in buckets to a server only"
    return None


def _offloaded(acts: Mapping[str, KnobValue]) -> str | None:
    if acts.get("activation_offload") is not True or acts.get("fsdp") == "fsdp2":
        return None
    return "activation_offload true: ms-swift offloads activations with fsdp fsdp2 only"


def swift_keys(acts: Mapping[str, KnobValue], longest: int | None, device: str) -> dict[str, Any]:
    """Returns the arguments of ``swift rlhf`` for the knobs with an effect, except patches and variables."""
    found: dict[str, Any] = {key: acts[knob] for knob, key in NATIVE.items() if knob in acts}
    if found.get("torch_empty_cache_steps") == 0:
        del found["torch_empty_cache_steps"]  # transformers refuses 0; left out it is never
    size = int(acts.get("sequence_parallel_size", 1))
    # The word that means the accumulation is ms-swift's own default.
    counted = {key: acts[knob] for knob, key in STEPS.items() if not isinstance(acts.get(knob, ""), str)}
    found.update({key: int(steps) // size for key, steps in counted.items()})
    sharding = {"deepspeed": deepspeed_argument(acts, device), "fsdp": fsdp_argument(acts)}
    sharded = {key: argument for key, argument in sharding.items() if argument}
    return {**found, **_numerics(acts), **rollout_keys(acts, longest), **sharded}


def _numerics(acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "precision" in acts:
        found["bf16"], found["fp16"] = acts["precision"] == "bf16", acts["precision"] == "fp16"
    if "master_weights" in acts:
        found["torch_dtype"] = DTYPES[str(acts["master_weights"])]
    if "optimizer" in acts:
        found["optimizer" if acts["optimizer"] == "muon" else "optim"] = acts["optimizer"]
    if "checkpointing_reentrant" in acts:
        key, inner = CHECKPOINTING
        found[key] = {inner: acts["checkpointing_reentrant"]}
    return found


def rollout_keys(acts: Mapping[str, KnobValue], longest: int | None) -> dict[str, Any]:
    """Returns the arguments of the rollout engine; in server mode they have no effect and only document the server."""
    found: dict[str, Any] = {}
    if "rollout_engine" in acts:
        found["use_vllm"] = acts["rollout_engine"] == "vllm"
    if not found.get("use_vllm"):
        return found
    found["vllm_mode"] = acts.get("rollout_mode", defaults(FRAMEWORK)["rollout_mode"])  # there is no default
    if longest is not None and "max_model_len" not in acts:
        found["vllm_max_model_len"] = longest
    if "custom_all_reduce" in acts:
        found[ALL_REDUCE] = not acts["custom_all_reduce"]
    engine = engine_arguments(acts)
    return {**found, ENGINE_KEY: engine} if engine else found


def engine_arguments(acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns vLLM's own arguments for knobs without an ms-swift argument."""
    found: dict[str, Any] = {}
    for knob, path in ENGINE.items():
        if knob not in acts or (knob == "rollout_quantization" and acts[knob] == "none"):
            continue
        place = found
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = str(acts[knob]).upper() if knob == "vllm_compile_mode" else acts[knob]
    speculative = values.speculative_config(acts)
    return {**found, values.ARGUMENT: speculative} if speculative else found


def seams(configuration: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Returns knob -> value, for knobs set by patches that have an effect and are not at ms-swift's own value."""
    acts = acting(configuration)
    rows, micro = acts.get("logprob_rows"), acts.get("micro_batch_size", defaults(FRAMEWORK)["micro_batch_size"])
    return {} if rows is None or int(rows) >= int(micro) else {"logprob_rows": rows}


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` set, as TRL's ``from_keys``; ``deepspeed`` and ``fsdp`` are mappings."""
    given = {key: value for key, value in keys.items() if value is not None}
    found = {knob: _native(knob, key, given[key]) for knob, key in NATIVE.items() if key in given}
    size = int(found.get("sequence_parallel_size", 1))
    found.update(
        {knob: size * int(values.parsed(knob, key, given[key])) for knob, key in STEPS.items() if key in given}
    )
    if "generation_batch_size" in given:
        found["steps_per_generation"] = _rollout_steps(given, found, processes)
    if compiles(given):
        found["torch_compile"] = True
    found.update(_read_numerics(given))
    found.update(engine_of(given))
    if "deepspeed" in given:
        found.update(zero_of(given["deepspeed"]))
    if given.get("fsdp"):
        found.update(fsdp_of(given["fsdp"]))
    return found


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs; a mapping with knobs keeps its other entries."""
    places = {CHECKPOINTING, *zero_places(keys), *((ENGINE_KEY, *path) for path in ENGINE.values())}
    if values.speculative_knobs(at(keys, (ENGINE_KEY, values.ARGUMENT)), values.ARGUMENT):
        places.add((ENGINE_KEY, values.ARGUMENT))
    known = KEYS if keys.get("vllm_mode") == "colocate" else KEYS | {SERVERS_GUESSES}
    return rest_of(keys, known | {"optimizer"} if keys.get("optimizer") == "muon" else known, places)


def _native(knob: str, key: str, value: Any) -> KnobValue:
    if knob == "attn_implementation" and value == _FLASH:
        value = "flash_attention_2"
    return values.parsed(knob, key, value)


def _rollout_steps(keys: Mapping[str, Any], knobs: Mapping[str, KnobValue], processes: int) -> int:
    """Converts ``generation_batch_size`` to micro-batches, by ms-swift's own rule (S1, S2)."""
    key, rows = "generation_batch_size", keys["generation_batch_size"]
    micro = int(knobs.get("micro_batch_size", defaults("ms_swift")["micro_batch_size"]))
    size = int(knobs.get("sequence_parallel_size", 1))
    each, steps = micro * processes, micro_batches(rows, micro, processes) * size
    if knobs.get("steps_per_generation", steps) != steps:
        own = int(knobs["steps_per_generation"]) // size
        raise KnobKeyError(key, f"expected {each * own} ({each} x steps_per_generation {own}), got {rows}")
    return steps


def _read_numerics(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    found: dict[str, KnobValue] = {}
    if keys.get("optimizer") == "muon":
        found["optimizer"] = "muon"
    elif "optim" in keys:
        found["optimizer"] = values.parsed("optimizer", "optim", keys["optim"])
    reentrant = at(keys, CHECKPOINTING)
    if reentrant is not None:
        found["checkpointing_reentrant"] = values.parsed("checkpointing_reentrant", ".".join(CHECKPOINTING), reentrant)
    dtype = keys.get("torch_dtype")
    if dtype is not None:
        found["master_weights"] = weights_held("torch_dtype", dtype, DTYPES)
    return {**found, **precision_of(keys, dtype)}


def precision_of(keys: Mapping[str, Any], dtype: Any) -> dict[str, KnobValue]:
    """Returns ``precision``; unset keys follow from ``torch_dtype``: bfloat16 computes in bf16, float32 in fp16."""
    if "bf16" not in keys and "fp16" not in keys and dtype is None:
        return {}
    bf16 = keys.get("bf16", dtype in (None, "bfloat16"))
    fp16 = keys.get("fp16", dtype == "float32")
    if bf16 and fp16:
        if "bf16" in keys and "fp16" in keys:
            raise KnobKeyError("fp16", "bf16 and fp16 cannot both be true; remove one of them")
        key, said = ("fp16", "bf16") if "bf16" in keys else ("bf16", "fp16")
        said = said if dtype is None else "torch_dtype"
        raise KnobKeyError(said, f"without {key} false it makes ms-swift set both bf16 and fp16; add it")
    return {"precision": "bf16" if bf16 else "fp16" if fp16 else "fp32"}


def engine_of(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs of the rollout engine and inside vLLM's own arguments.

    Raises KnobKeyError with the argument and the expected value.
    """
    engine = keys.get(ENGINE_KEY)
    found = _servers_guesses(keys)
    if "use_vllm" in keys:
        found["rollout_engine"] = "vllm" if keys["use_vllm"] else "transformers"
    if ALL_REDUCE in keys:
        found["custom_all_reduce"] = not keys[ALL_REDUCE]
    if not isinstance(engine, Mapping):
        return found
    found.update(values.speculative_knobs(engine.get(values.ARGUMENT), f"{ENGINE_KEY}.{values.ARGUMENT}"))
    for knob, path in ENGINE.items():
        value = at(engine, path)
        if value is not None:
            value = value.lower() if knob == "vllm_compile_mode" and isinstance(value, str) else value
            found[knob] = values.parsed(knob, ".".join((ENGINE_KEY, *path)), value)
    return found


def _servers_guesses(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the speculation knobs of ``swift rollout``; with a colocated engine the argument has no effect."""
    value = keys.get(SERVERS_GUESSES)
    if value is None or keys.get("vllm_mode") == "colocate":
        return {}
    found = values.speculative_knobs(value, SERVERS_GUESSES)
    if not found:
        expected = "a trial's rollout server guesses by method ngram with num_speculative_tokens, or not at all"
        raise KnobKeyError(SERVERS_GUESSES, f"{expected}; remove it")
    return found


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Returns the environment variables that the knobs of ``configuration`` add to a training process."""
    acts, found = acting(configuration), allocators(configuration)
    if acts.get("rollout_mode") == "server" and "weight_sync_bucket_mib" in acts:
        found[BUCKET_VARIABLE] = str(acts["weight_sync_bucket_mib"])
    return found


def knobs_of(environment: Mapping[str, str]) -> tuple[dict[str, KnobValue], dict[str, str]]:
    """Returns (the knobs that ``environment`` sets, the other variables).

    Raises KnobKeyError for a bucket size that is not a number.
    """
    found: dict[str, KnobValue] = {}
    rest = dict(environment)
    if rest.get(values.ALLOCATOR, "").replace(" ", "") == values.SEGMENTS:
        del rest[values.ALLOCATOR]
        found["expandable_segments"] = True
    for word, text in values.HEAPS.items():
        if rest.get(values.TUNABLES) == text:
            del rest[values.TUNABLES]
            found["host_allocator"] = word
    if BUCKET_VARIABLE in rest:
        text = rest.pop(BUCKET_VARIABLE)
        size = whole_number(text)
        if size is None:
            raise KnobKeyError(BUCKET_VARIABLE, f"expected a whole number of MiB, got {text[:60]}")
        found["weight_sync_bucket_mib"] = values.parsed("weight_sync_bucket_mib", BUCKET_VARIABLE, size)
    return found, rest
