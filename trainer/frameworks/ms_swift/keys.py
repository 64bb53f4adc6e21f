"""Our knobs as ms-swift's arguments. Pure; ``key_values`` is the way back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from search_spaces.legality.swift_rules import DEFAULT_BUCKET_MIB
from search_spaces.native import acting as acting_in
from trainer.frameworks.common.speculation import ARGUMENT, speculative_config
from trainer.frameworks.common.trainer_keys import DTYPES, refuse, unsettable
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.key_tables import (
    ALL_REDUCE,
    CHECKPOINTING,
    ENGINE,
    ENGINE_KEY,
    NATIVE,
    PRECISIONS,
    STEPS,
    SUPPORTED,
)
from trainer.frameworks.ms_swift.sharding import deepspeed_argument, fsdp_argument

NAME = "ms_swift"
acting = partial(acting_in, framework=NAME)
"""The knobs that act: those whose needs hold, a knob that is not set having ms-swift's default."""


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that an ms-swift trial cannot set; empty if a trial can run."""
    said = unwritable(configuration)
    if not said and megatron.chosen(configuration):
        said.append("`megatron rlhf`: trials of Megatron-SWIFT are not run yet; a trial trains with `swift rlhf`")
    return said


def unwritable(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that ms-swift has no argument for."""
    acts = acting(configuration)
    if megatron.chosen(configuration):
        return megatron.unwritable(acts)
    known = SUPPORTED | {ENGINE_KNOB}
    said = [f"ms-swift has no setting for {name}" for name in sorted(acts) if name not in known]
    said += unsettable(acts, NAME, "ms-swift", "an ms-swift trial", PRECISIONS)
    return said + [sentence for sentence in (_steps(acts), _colocated(acts), _offloaded(acts)) if sentence]


def _steps(acts: Mapping[str, KnobValue]) -> str | None:
    size = int(acts.get("sequence_parallel_size", 1))
    for name in STEPS:
        value = acts.get(name)
        if isinstance(value, int) and value % size:
            return f"{name} {value}: ms-swift multiplies it by sequence_parallel_size {size}, which does not divide it"
    return None


def _colocated(acts: Mapping[str, KnobValue]) -> str | None:
    unset = defaults(NAME)
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


def to_keys(configuration: Mapping[str, KnobValue], longest: int | None = None, device: str = "cpu") -> dict[str, Any]:
    """Returns the arguments of ``swift rlhf`` for the knobs with an effect; seams and variables have none.

    Megatron-SWIFT's arguments come without the rows (``megatron.rows``). In server mode the engine's arguments are
    included: they have no effect there and document the server.

    Args:
        longest: tokens of the longest prompt and completion, the default of vLLM's length limit; the model's own
            limit may need a larger cache than the machine has.
        device: ``cpu`` or ``cuda``, for DeepSpeed.

    Raises:
        ValueError: a knob or value that ms-swift cannot take (``unwritable``).
    """
    refuse(unwritable(configuration))
    acts = acting(configuration)
    if megatron.chosen(acts):
        return {**megatron.written(acts), **_rollout(acts, longest)}
    found: dict[str, Any] = {key: acts[knob] for knob, key in NATIVE.items() if knob in acts}
    if found.get("torch_empty_cache_steps") == 0:
        del found["torch_empty_cache_steps"]  # transformers refuses 0; left out it is never
    size = int(acts.get("sequence_parallel_size", 1))
    # The word that means the accumulation is ms-swift's own default.
    counted = {key: acts[knob] for knob, key in STEPS.items() if not isinstance(acts.get(knob, ""), str)}
    found.update({key: int(steps) // size for key, steps in counted.items()})
    sharding = {"deepspeed": deepspeed_argument(acts, device), "fsdp": fsdp_argument(acts)}
    sharded = {key: argument for key, argument in sharding.items() if argument}
    return {**found, **_numerics(acts), **_rollout(acts, longest), **sharded}


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


def _rollout(acts: Mapping[str, KnobValue], longest: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "rollout_engine" in acts:
        found["use_vllm"] = acts["rollout_engine"] == "vllm"
    if not found.get("use_vllm"):
        return found
    found["vllm_mode"] = acts.get("rollout_mode", defaults(NAME)["rollout_mode"])  # there is no default
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
    speculative = speculative_config(acts)
    return {**found, ARGUMENT: speculative} if speculative else found


def seams(configuration: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Returns knob -> value of seams with an effect that differ from ms-swift's own behaviour."""
    acts = acting(configuration)
    rows, micro = acts.get("logprob_rows"), acts.get("micro_batch_size", defaults(NAME)["micro_batch_size"])
    return {} if rows is None or int(rows) >= int(micro) else {"logprob_rows": rows}
