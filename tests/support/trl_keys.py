"""All of a configuration in TRL's keys, and what becomes of each key of a user's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.trainer_keys import KeyHandling, refuse
from trainer.frameworks.trl.key_handling import INPUTS, MEASURING, REFUSED
from trainer.frameworks.trl.keys import KEYS, model_keys, training_keys, unsupported


def handling_of(key: str) -> KeyHandling:
    """What becomes of ``key``."""
    if key in KEYS:
        return KeyHandling.KNOB
    if key in INPUTS:
        return KeyHandling.INPUT
    if key in REFUSED:
        return KeyHandling.REFUSED
    return KeyHandling.MEASURING if key in MEASURING else KeyHandling.WORKLOAD


def to_keys(configuration: Mapping[str, KnobValue], longest: int | None = None, device: str = "cpu") -> dict[str, Any]:
    """The keys of TRL's script for every knob that is set and acts; seams and a rollout server have none."""
    refuse(unsupported(configuration))
    model = model_keys(configuration)
    if "use_kernels" in model:
        model["model_init_kwargs"] = {"use_kernels": model.pop("use_kernels")}
    return {**training_keys(configuration, longest, device), **model}


EVERY: dict[str, Any] = {
    "max_model_len": 2048,
    "gpu_memory_utilization": 0.85,
    "kv_cache_memory_bytes": 1 << 30,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 8192,
    "cuda_graph_max_batch": 256,
    "kv_cache_dtype": "fp8",
    "rollout_load_format": "dummy",
    "enforce_eager": False,
    "prefix_caching": False,
    "chunked_prefill": True,
    "rollout_dtype": "bf16",
    "rollout_quantization": "fp8",
    "custom_all_reduce": False,
    "vllm_compile_mode": "none",
}
"""Knobs of a server's engine."""
