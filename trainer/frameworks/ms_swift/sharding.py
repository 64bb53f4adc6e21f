"""Converts knobs of DeepSpeed and FSDP2 to ms-swift's arguments, and back. Pure.

Both arguments are written whole, as JSON, so that other presets or defaults change nothing; a preset's name in a user's
own file is read as its content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from trainer.frameworks.common.deepspeed import deepspeed_config, zero_knobs
from trainer.frameworks.common.values import KnobKeyError, parsed

_BUCKET = 200_000_000
_HALF = {
    "enabled": "auto",
    "loss_scale": 0,
    "loss_scale_window": 1000,
    "initial_scale_power": 16,
    "hysteresis": 2,
    "min_loss_scale": 1,
}


def _preset(stage: int, place: str = "none") -> dict[str, Any]:
    """Returns a preset of swift/config/zero*.json of 4.6.0."""
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": False, "contiguous_gradients": True}
    if stage:
        zero["offload_optimizer"] = {"device": place, "pin_memory": True}
    if stage < 3:
        zero.update(allgather_partitions=True, allgather_bucket_size=_BUCKET, reduce_scatter=True)
        zero["reduce_bucket_size"] = _BUCKET
    else:
        zero["offload_param"] = {"device": place, "pin_memory": True}
        zero.update(sub_group_size=1_000_000_000, reduce_bucket_size="auto")
        zero.update(stage3_prefetch_bucket_size="auto", stage3_param_persistence_threshold="auto")
        zero.update(stage3_max_live_parameters=1_000_000_000, stage3_max_reuse_distance=1_000_000_000)
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {"fp16": _HALF, "bf16": {"enabled": "auto"}, "zero_optimization": zero, "gradient_clipping": "auto"}


DEEPSPEED: Mapping[str, Mapping[str, Any]] = {
    **{f"zero{stage}": _preset(stage) for stage in range(4)},
    **{f"zero{stage}_offload": _preset(stage, "cpu") for stage in (2, 3)},
}
"""Preset name of ``--deepspeed`` -> configuration."""
FSDP: Mapping[str, Mapping[str, Any]] = {
    "fsdp2": {
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {
            "fsdp_version": 2,
            "reshard_after_forward": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": True,
            "state_dict_type": "SHARDED_STATE_DICT",
            "activation_checkpointing": True,
        },
    }
}
"""Preset name of ``--fsdp`` -> configuration (swift/config/fsdp2.json)."""
_INSIDE_FSDP = {"reshard_after_forward": "fsdp_reshard_after_forward", "activation_cpu_offload": "activation_offload"}
_OFFLOAD = "offload"


def deepspeed_argument(acts: Mapping[str, KnobValue], device: str) -> dict[str, Any]:
    """Returns the mapping for ``--deepspeed``; empty without ZeRO.

    ``acts`` are the knobs with an effect; an unset knob has the value of ms-swift's preset.
    """
    own = {name: value for name, value in defaults("ms_swift").items() if name.startswith("zero_")}
    if device == "cpu":  # buckets that are not set are small there (``CPU_BUCKET``)
        own = {name: value for name, value in own.items() if not name.endswith("_bucket")}
    found = deepspeed_config({**own, **acts}, device)
    zero = found.get("zero_optimization", {})
    if zero.get("stage") == 3:
        zero["stage3_prefetch_bucket_size"] = 0  # what ms-swift makes of it for GRPO
    return found


def zero_of(value: Any) -> dict[str, KnobValue]:
    """Returns the knobs of ``--deepspeed``'s mapping. Raises KnobKeyError for a value that no knob has."""
    found = zero_knobs({"deepspeed": value})
    found.pop("zero_prefetch_bucket", None)
    if "zero_stage" in found and not found["zero_stage"]:
        return {"zero_stage": 0}
    return found


def fsdp_argument(acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns the mapping for ``--fsdp``; empty without FSDP2, which checkpoints activations, as ms-swift advises."""
    if acts.get("fsdp") != "fsdp2":
        return {}
    words = "full_shard auto_wrap" + (f" {_OFFLOAD}" if acts.get("fsdp_offload") is True else "")
    own = dict(FSDP["fsdp2"]["fsdp_config"])
    unset = defaults("ms_swift")
    for key, knob in _INSIDE_FSDP.items():
        own[key] = acts.get(knob, unset[knob])
    own["activation_checkpointing"] = acts.get("gradient_checkpointing", unset["gradient_checkpointing"])
    return {"fsdp": words, "fsdp_config": own}


def fsdp_of(value: Any) -> dict[str, KnobValue]:
    """Returns the knobs of ``--fsdp``'s mapping, with ``gradient_checkpointing`` if FSDP2 checkpoints activations.

    Raises KnobKeyError for FSDP's first version (S14), or a value that no knob has.
    """
    if not isinstance(value, Mapping):
        raise KnobKeyError("fsdp", f"expected fsdp2 or a mapping, got {show(value)}")
    words = str(value.get("fsdp", "full_shard auto_wrap")).split()
    own = value.get("fsdp_config") or {}
    if not isinstance(own, Mapping):
        raise KnobKeyError("fsdp.fsdp_config", f"expected a mapping, got {show(own)}")
    if str(own.get("fsdp_version", 2)) != "2":
        raise KnobKeyError("fsdp.fsdp_config.fsdp_version", f"GRPO needs 2, got {show(own['fsdp_version'])}")
    found: dict[str, KnobValue] = {"fsdp": "fsdp2", "fsdp_offload": _OFFLOAD in words}
    if "shard_grad_op" in words:
        found["fsdp_reshard_after_forward"] = False
    for key, knob in _INSIDE_FSDP.items():
        if key in own:
            found[knob] = parsed(knob, f"fsdp.fsdp_config.{key}", own[key])
    if own.get("activation_checkpointing") is True:
        found["gradient_checkpointing"] = True
    return found
