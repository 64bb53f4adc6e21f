"""Which of ms-swift's arguments is which knob (ms-swift 4.6.0, ``swift rlhf`` and ``swift rollout``)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NATIVE: Mapping[str, str] = {
    "micro_batch_size": "per_device_train_batch_size",
    "num_generations": "num_generations",
    "dynamic_sampling": "dynamic_sample",
    "remove_padding": "padding_free",
    "sequence_parallel_size": "sequence_parallel_size",
    "gradient_checkpointing": "gradient_checkpointing",
    "torch_compile": "torch_compile",
    "torch_compile_mode": "torch_compile_mode",
    "tf32": "tf32",
    "empty_cache_steps": "torch_empty_cache_steps",
    "dataloader_workers": "dataloader_num_workers",
    "ddp_bucket_mib": "ddp_bucket_cap_mb",
    "zero3_gather_for_generation": "ds3_gather_for_generation",
    "attn_implementation": "attn_impl",
    "hub_kernels": "use_liger_kernel",
    "rollout_mode": "vllm_mode",
    "gpu_memory_utilization": "vllm_gpu_memory_utilization",
    "max_model_len": "vllm_max_model_len",
    "max_num_seqs": "vllm_max_num_seqs",
    "enforce_eager": "vllm_enforce_eager",
    "prefix_caching": "vllm_enable_prefix_caching",
    "tensor_parallel_size": "vllm_tensor_parallel_size",
    "rollout_data_parallel_size": "vllm_data_parallel_size",
    "sleep_level": "sleep_level",
    "rollout_offload_optimizer": "offload_optimizer",
    "rollout_offload_model": "offload_model",
    "weight_sync_batches": "move_model_batches",
    "async_generation": "async_generate",
}
"""Knob -> argument, where the value goes over as it is (but for 0 in ``empty_cache_steps``)."""

STEPS: Mapping[str, str] = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "steps_per_generation": "steps_per_generation",
}
"""Knob -> argument that ms-swift multiplies by ``sequence_parallel_size``."""

ENGINE: Mapping[str, tuple[str, ...]] = {
    "kv_cache_memory_bytes": ("kv_cache_memory_bytes",),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
    "chunked_prefill": ("enable_chunked_prefill",),
    "kv_cache_dtype": ("kv_cache_dtype",),
    "rollout_quantization": ("quantization",),
    "rollout_load_format": ("load_format",),
    "cuda_graph_max_batch": ("compilation_config", "max_cudagraph_capture_size"),
    "vllm_compile_mode": ("compilation_config", "mode"),
}
"""Knob -> place in ``vllm_engine_kwargs``, the JSON of vLLM's own engine arguments."""
ENGINE_KEY = "vllm_engine_kwargs"
ALL_REDUCE = "vllm_disable_custom_all_reduce"
"""The other way round than the knob ``custom_all_reduce``; a colocated engine does not get it."""

CHECKPOINTING = ("gradient_checkpointing_kwargs", "use_reentrant")

ZERO = frozenset(
    {
        *("zero_stage", "offload_optimizer", "offload_parameters", "zero_overlap", "zero_contiguous_gradients"),
        *("zero_reduce_bucket", "zero_allgather_bucket", "reduce_precision"),
    }
)
"""What DeepSpeed's configuration says."""
FSDP = frozenset({"fsdp", "fsdp_reshard_after_forward", "fsdp_offload", "activation_offload"})
SERVER = frozenset({"rollout_gpus"})
"""Follows from the server's replicas."""

BUCKET_VARIABLE = "SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE"
ENVIRONMENT = frozenset({"expandable_segments", "host_allocator", "weight_sync_bucket_mib"})
"""Variables the process is started with."""

SEAMS = frozenset({"logprob_rows"})
"""Knobs that have no argument; set from a plugin (child: ``seams.py``)."""

PRECISIONS = ("fp32", "bf16", "fp16")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
SUPPORTED = frozenset(
    {
        *(frozenset(NATIVE) | frozenset(STEPS) | frozenset(ENGINE) | ZERO | FSDP | SERVER | ENVIRONMENT | SEAMS),
        *("precision", "master_weights", "optimizer", "checkpointing_reentrant", "rollout_engine"),
        "custom_all_reduce",
    }
)
"""Knobs an ms-swift trial can set."""

KEYS: Mapping[str, str] = MappingProxyType(
    {
        **{key: knob for knob, key in NATIVE.items()},
        **{key: knob for knob, key in STEPS.items()},
        "generation_batch_size": "steps_per_generation",
        "optim": "optimizer",
        "bf16": "precision",
        "fp16": "precision",
        "torch_dtype": "master_weights",
        "use_vllm": "rollout_engine",
        ALL_REDUCE: "custom_all_reduce",
        "deepspeed": "zero_stage",
        "fsdp": "fsdp",
    }
)
"""Argument -> knob. Of these an exported file holds what ``to_keys`` gives and no other."""

SERVED = (
    *("vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_data_parallel_size", "vllm_max_model_len"),
    *("vllm_max_num_seqs", "vllm_enforce_eager", "vllm_enable_prefix_caching", ALL_REDUCE, ENGINE_KEY),
)
"""Arguments of ``swift rollout`` that ``swift rlhf`` takes too, and that do nothing there in server mode."""
