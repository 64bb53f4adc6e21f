"""Which of Open-R1's recipe keys is which knob. Its trainer is that of TRL 0.18."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from search_spaces.legality.openr1_rules import SERVER_OPTIONS
from trainer.frameworks.deepspeed_places import PLACES

NATIVE: Mapping[str, str] = {
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "num_generations": "num_generations",
    "steps_per_generation": "steps_per_generation",
    "gradient_checkpointing": "gradient_checkpointing",
    "optimizer": "optim",
    "torch_compile": "torch_compile",
    "torch_compile_mode": "torch_compile_mode",
    "tf32": "tf32",
    "empty_cache_steps": "torch_empty_cache_steps",
    "dataloader_workers": "dataloader_num_workers",
    "ddp_bucket_mib": "ddp_bucket_cap_mb",
    "zero3_gather_for_generation": "ds3_gather_for_generation",
    "hub_kernels": "use_liger_kernel",
    "fused_loss": "use_liger_loss",
    "attn_implementation": "attn_implementation",
    "rollout_mode": "vllm_mode",
    "gpu_memory_utilization": "vllm_gpu_memory_utilization",
    "tensor_parallel_size": "vllm_tensor_parallel_size",
}
"""Knob -> recipe key, where the value goes over as it is (but for 0 in ``empty_cache_steps``)."""
NULL_IS_UNSET = frozenset(
    {
        *("steps_per_generation", "generation_batch_size", "tf32", "torch_compile_mode", "ddp_bucket_cap_mb"),
        *("attn_implementation", "torch_dtype", "gradient_checkpointing_kwargs"),
    }
)
CHECKPOINTING = ("gradient_checkpointing_kwargs", "use_reentrant")
"""``checkpointing_reentrant``: key, and key in its mapping."""
DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16"}
PRECISIONS = ("fp32", "bf16", "fp16")

SHORT_ZERO: Mapping[str, str] = {
    "zero_stage": "zero_stage",
    "offload_optimizer": "offload_optimizer_device",
    "offload_parameters": "offload_param_device",
}
"""Knob -> key of ``deepspeed_config`` in the accelerate file."""
SERVER: Mapping[str, str] = {
    "tensor_parallel_size": "--tensor_parallel_size",
    "rollout_data_parallel_size": "--data_parallel_size",
    **SERVER_OPTIONS,
}
"""Knob -> option of ``trl vllm-serve``."""
SERVER_DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": "auto"}
ENVIRONMENT = frozenset({"expandable_segments", "host_allocator"})
"""Variables the process is started with."""

SUPPORTED = frozenset(
    {
        *(*NATIVE, *PLACES, *SERVER, *ENVIRONMENT),
        *("precision", "master_weights", "rollout_engine", "rollout_gpus", "checkpointing_reentrant"),
    }
)
"""Knobs that can be set; those of ``SERVER_OPTIONS`` but the first with a rollout server only."""

KEYS: Mapping[str, str] = MappingProxyType(
    {
        **{key: knob for knob, key in NATIVE.items()},
        "generation_batch_size": "steps_per_generation",
        "bf16": "precision",
        "fp16": "precision",
        "torch_dtype": "master_weights",
        "use_vllm": "rollout_engine",
    }
)
"""Recipe key -> knob."""
