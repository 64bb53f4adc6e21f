"""DeepSpeed's configuration from our knobs. Pure.

Every value is explicit, so that another DeepSpeed's defaults change nothing; ``"auto"`` stands only where
transformers fills in what ``GRPOConfig`` says already, and refuses two answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults

CPU_BUCKET = 10_000_000
"""Elements of an unset bucket on a CPU: DeepSpeed's own 500,000,000 reserve 2 GB each, whatever the model's size,
which the limit on a process's memory counts although they are never touched."""
PERSISTENT = 100_000
"""Elements below which ZeRO-3 keeps a weight whole on every rank; DeepSpeed's default."""
LIVE = 1_000_000_000
"""Weights ZeRO-3 keeps gathered, in elements, and how soon one must be needed again to stay; DeepSpeed's defaults."""

_BUCKETS = ("zero_reduce_bucket", "zero_allgather_bucket", "zero_prefetch_bucket")


def deepspeed_config(configuration: Mapping[str, KnobValue], device: str) -> dict[str, Any]:
    """The ``deepspeed`` argument of ``GRPOConfig``; empty where ZeRO is off (``zero_stage`` 0 is plain DDP).

    Args:
        configuration: knobs; those that do not act at this stage are left out.
    """
    stage = int(configuration.get("zero_stage", 0))
    if stage == 0:
        return {}
    small = dict.fromkeys(_BUCKETS, CPU_BUCKET) if device == "cpu" else {}
    values = {**defaults("trl"), **small, **configuration}
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": values["zero_overlap"],
        "contiguous_gradients": values["zero_contiguous_gradients"],
        "reduce_bucket_size": int(values["zero_reduce_bucket"]),
        "allgather_partitions": True,
        "allgather_bucket_size": int(values["zero_allgather_bucket"]),
        "reduce_scatter": True,
        "round_robin_gradients": False,
    }
    if stage >= 2:
        zero["offload_optimizer"] = _offload(values["offload_optimizer"])
    if stage == 3:
        zero["offload_param"] = _offload(values["offload_parameters"])
        zero["stage3_prefetch_bucket_size"] = int(values["zero_prefetch_bucket"])
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
        "communication_data_type": str(values["reduce_precision"]),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": False,
        "steps_per_print": 2**31 - 1,
    }


def _offload(place: KnobValue) -> dict[str, Any]:
    """Pinned memory is what copies beside the computation need."""
    return {"device": "none"} if place == "none" else {"device": str(place), "pin_memory": True}
