"""DeepSpeed's configuration from our knobs. Pure.

Every value is explicit, so that another DeepSpeed's defaults change nothing; ``"auto"`` stands only where
transformers fills in what ``GRPOConfig`` says already, and refuses two answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue

CPU_BUCKET = 10_000_000
"""Elements of an unset bucket on a CPU: DeepSpeed's own 500,000,000 reserve 2 GB each, whatever the model's size,
which the limit on a process's memory counts although they are never touched."""
PERSISTENT = 100_000
"""Elements below which ZeRO-3 keeps a weight whole on every rank; DeepSpeed's default."""
LIVE = 1_000_000_000
"""Weights ZeRO-3 keeps gathered, in elements, and how soon one must be needed again to stay; DeepSpeed's defaults."""

_DEFAULTS: Mapping[str, KnobValue] = {
    "zero_overlap": True,
    "zero_contiguous_gradients": True,
    "zero_reduce_bucket": 500_000_000,
    "zero_allgather_bucket": 500_000_000,
    "zero_prefetch_bucket": 50_000_000,
    "reduce_precision": "fp32",
}
KNOBS = frozenset(_DEFAULTS) | {"zero_stage", "offload_optimizer", "offload_parameters"}
"""Knobs that are set here."""


def deepspeed_config(configuration: Mapping[str, KnobValue], device: str) -> dict[str, Any]:
    """The ``deepspeed`` argument of ``GRPOConfig``; empty where ZeRO is off (``zero_stage`` 0 is plain DDP).

    Args:
        configuration: knobs; those that do not act at this stage are left out.
    """
    stage = int(configuration.get("zero_stage", 0))
    if stage == 0:
        return {}
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": _value(configuration, "zero_overlap"),
        "contiguous_gradients": _value(configuration, "zero_contiguous_gradients"),
        "reduce_bucket_size": _bucket(configuration, "zero_reduce_bucket", device),
        "allgather_partitions": True,
        "allgather_bucket_size": _bucket(configuration, "zero_allgather_bucket", device),
        "reduce_scatter": True,
        "round_robin_gradients": False,
    }
    if stage >= 2:
        zero["offload_optimizer"] = _offload(configuration.get("offload_optimizer", "none"))
    if stage == 3:
        zero["offload_param"] = _offload(configuration.get("offload_parameters", "none"))
        zero["stage3_prefetch_bucket_size"] = _bucket(configuration, "zero_prefetch_bucket", device)
        zero["stage3_param_persistence_threshold"] = PERSISTENT
        zero["stage3_max_live_parameters"] = LIVE
        zero["stage3_max_reuse_distance"] = LIVE
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "communication_data_type": str(_value(configuration, "reduce_precision")),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": False,
        "steps_per_print": 2**31 - 1,
    }


def _value(configuration: Mapping[str, KnobValue], knob: str) -> KnobValue:
    return configuration.get(knob, _DEFAULTS[knob])


def _bucket(configuration: Mapping[str, KnobValue], knob: str, device: str) -> int:
    unset = CPU_BUCKET if device == "cpu" else _DEFAULTS[knob]
    return int(configuration.get(knob, unset))


def _offload(place: KnobValue) -> dict[str, Any]:
    """Pinned memory is what copies beside the computation need."""
    return {"device": "none"} if place == "none" else {"device": str(place), "pin_memory": True}
