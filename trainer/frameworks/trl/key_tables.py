"""Which of TRL's keys is which knob."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
    "pad_to_multiple": "pad_to_multiple_of",
    "empty_cache_steps": "torch_empty_cache_steps",
    "dataloader_workers": "dataloader_num_workers",
    "ddp_bucket_mib": "ddp_bucket_cap_mb",
    "zero3_gather_for_generation": "ds3_gather_for_generation",
    "continuous_batching": "use_transformers_continuous_batching",
    "rollout_mode": "vllm_mode",
    "gpu_memory_utilization": "vllm_gpu_memory_utilization",
    "max_model_len": "vllm_max_model_length",
    "tensor_parallel_size": "vllm_tensor_parallel_size",
}
"""Knob -> ``GRPOConfig`` key, where the value goes over as it is (but for 0 in ``empty_cache_steps``)."""

TRAINER_SEAMS = frozenset({"logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk", "activation_offload"})
"""Set on the built trainer (child: ``seams.py``)."""
ENGINE_SEAMS = frozenset(
    {
        *("max_num_seqs", "max_num_batched_tokens", "enforce_eager", "cuda_graph_max_batch", "vllm_compile_mode"),
        *("prefix_caching", "chunked_prefill", "kv_cache_dtype", "kv_cache_memory_bytes", "rollout_dtype"),
        *("rollout_quantization", "rollout_load_format", "custom_all_reduce"),
    }
)
"""Arguments of the vLLM engine (child: ``engine.py``; a server takes them on its command line)."""
FLOAT8_SEAMS = frozenset({"precision", "fp8_emulate"})
"""Of the loaded model (child: ``float8.py``); ``precision`` only as fp8."""
SEAMS = TRAINER_SEAMS | ENGINE_SEAMS | {"fp8_emulate"}
"""Knobs that have no key whatever their value."""

ZERO = frozenset(
    {
        *("zero_stage", "offload_optimizer", "offload_parameters", "zero_overlap", "zero_contiguous_gradients"),
        *("zero_reduce_bucket", "zero_allgather_bucket", "zero_prefetch_bucket", "reduce_precision"),
    }
)
"""What DeepSpeed's configuration says."""
FSDP = frozenset({"fsdp", "fsdp_reshard_after_forward", "fsdp_offload"})
SERVER = frozenset({"rollout_gpus", "rollout_data_parallel_size"})
"""Of the rollout server's launch; TRL's file has no key for them."""

ENVIRONMENT = frozenset({"expandable_segments", "host_allocator"})
"""Variables the process is started with (``variables.py``)."""

NESTED: Mapping[str, tuple[str, str]] = {
    "checkpointing_reentrant": ("gradient_checkpointing_kwargs", "use_reentrant"),
    "hub_kernels": ("model_init_kwargs", "use_kernels"),
    "continuous_batching_memory": ("transformers_continuous_batching_config", "max_memory_percent"),
}
"""Knob -> (key, key in its mapping); what else the mapping holds stays the user's."""

PRECISIONS = ("fp32", "bf16", "fp16", "fp8")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
SUPPORTED = frozenset(
    {
        *(frozenset(NATIVE) | frozenset(NESTED) | SEAMS | ZERO | FSDP | SERVER | ENVIRONMENT),
        *("precision", "master_weights", "attn_implementation", "rollout_engine", "sleep_level"),
    }
)
"""Knobs a TRL trial can set."""

KEYS: Mapping[str, str] = MappingProxyType(
    {
        **{key: knob for knob, key in NATIVE.items()},
        "generation_batch_size": "steps_per_generation",
        "bf16": "precision",
        "fp16": "precision",
        "dtype": "master_weights",
        "attn_implementation": "attn_implementation",
        "use_vllm": "rollout_engine",
        "vllm_enable_sleep_mode": "sleep_level",
        "deepspeed": "zero_stage",
        "fsdp": "fsdp",
    }
)
"""TRL key -> knob. Of these keys an exported file holds what ``to_keys`` gives and no other."""
