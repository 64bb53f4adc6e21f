"""Our knobs in TRL's keys. Pure; ``key_values`` is the way back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.native import acting as acting_in
from trainer.frameworks.common.deepspeed import deepspeed_config
from trainer.frameworks.common.trainer_keys import DTYPES, in_keys, unsettable
from trainer.frameworks.trl.key_tables import ENGINE_SEAMS, FRAMEWORK, NATIVE, NESTED, PRECISIONS, SEAMS, SUPPORTED
from trainer.frameworks.trl.sharding import INSIDE_FSDP

acting = partial(acting_in, framework=FRAMEWORK)
"""The knobs that act: those whose needs hold, a knob that is not set having TRL's default."""
_LEFT_ALONE = {"rollout_quantization": "none", "activation_offload": False, "speculative_decoding": "none"}
"""Seam values that mean: nothing is replaced. (``none`` would undo the quantization TRL takes from a QLoRA model.)"""


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob with an effect that a TRL trial cannot set; empty if a trial can run."""
    acts = acting(configuration)
    said = [f"a TRL trial cannot set {name}" for name in sorted(acts) if name not in SUPPORTED]
    said += unsettable(acts, FRAMEWORK, "TRL", "a TRL trial", PRECISIONS)
    if acts.get("optimizer") == "muon":
        said.append("optimizer muon: TRL has no such optimizer")
    if acts.get("sleep_level", 0) not in (0, 2):
        said.append(f"sleep_level {acts['sleep_level']}: TRL's engine sleeps at level 2 or not at all")
    if acts.get("fsdp") == "fsdp1":
        said.append("fsdp fsdp1: a TRL trial shards with fsdp2")
    return said


def training_keys(
    configuration: Mapping[str, KnobValue], longest: int | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Returns the ``GRPOConfig`` arguments of the knobs with an effect.

    Args:
        longest: tokens of the longest prompt and completion, the default of vLLM's length limit; the model's own
            limit may need a larger cache than the machine has.
    """
    acts = acting(configuration)
    found = in_keys(acts, NATIVE)
    for knob in ("checkpointing_reentrant", "continuous_batching_memory"):
        if knob in acts:
            key, inner = NESTED[knob]
            found[key] = {inner: acts[knob]}
    if "sleep_level" in acts:
        found["vllm_enable_sleep_mode"] = acts["sleep_level"] == 2
    if found.get("use_vllm") and longest is not None and "max_model_len" not in acts:
        found["vllm_max_model_length"] = longest
    return {**found, **_sharding(acts, device)}


def _sharding(acts: Mapping[str, KnobValue], device: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "zero_stage" in acts:
        found["deepspeed"] = deepspeed_config(acts, device) or None
    if acts.get("fsdp") == "fsdp2":
        own = {key: acts[knob] for key, knob in INSIDE_FSDP.items() if knob in acts}
        found.update(fsdp=True, fsdp_config={"version": 2, **own})
    elif "fsdp" in acts:
        found["fsdp"] = None
    return found


def model_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns the arguments of ``from_pretrained`` for the knobs that are set."""
    found: dict[str, Any] = {}
    if "master_weights" in configuration:
        found["dtype"] = DTYPES[str(configuration["master_weights"])]
    if "attn_implementation" in configuration:
        found["attn_implementation"] = configuration["attn_implementation"]
    if "hub_kernels" in configuration:
        found["use_kernels"] = configuration["hub_kernels"]
    return found


def seams(configuration: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Returns knob -> value of seams with an effect; a rollout server's engine has its own.

    ``precision`` is included only as ``fp8``.
    """
    acts = acting(configuration)
    names = SEAMS - ENGINE_SEAMS if acts.get("rollout_mode") == "server" else SEAMS
    found = {name: acts[name] for name in sorted(names) if name in acts}
    if acts.get("precision") == "fp8":
        found["precision"] = "fp8"
    return {name: value for name, value in found.items() if _LEFT_ALONE.get(name) != value}
