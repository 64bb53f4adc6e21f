"""Which of verl's keys is which knob, as verl 0.9.1 has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue

ACTOR = "actor_rollout_ref.actor."
FSDP = "actor_rollout_ref.actor.fsdp_config."
MODEL = "actor_rollout_ref.model."
ROLLOUT = "actor_rollout_ref.rollout."
REFERENCE = "actor_rollout_ref.ref."
ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm."

NATIVE: Mapping[str, str] = {
    "micro_batch_size": ACTOR + "ppo_micro_batch_size_per_gpu",
    "num_generations": ROLLOUT + "n",
    "logprob_rows": ROLLOUT + "log_prob_micro_batch_size_per_gpu",
    "logprob_tokens": ROLLOUT + "log_prob_max_token_len_per_gpu",
    "logprob_token_chunk": ACTOR + "entropy_from_logits_chunk_size",
    "entropy_chunking": ACTOR + "entropy_from_logits_with_chunking",
    "dynamic_batching": ACTOR + "use_dynamic_bsz",
    "update_tokens": ACTOR + "ppo_max_token_len_per_gpu",
    "remove_padding": MODEL + "use_remove_padding",
    "dynamic_sampling": "algorithm.filter_groups.enable",
    "attn_implementation": MODEL + "override_config.attn_implementation",
    "hub_kernels": MODEL + "use_liger",
    "fused_loss": MODEL + "use_fused_kernels",
    "gradient_checkpointing": MODEL + "enable_gradient_checkpointing",
    "activation_offload": MODEL + "enable_activation_offload",
    "torch_compile": FSDP + "use_torch_compile",
    "fsdp_reshard_after_forward": FSDP + "reshard_after_forward",
    "fsdp_offload": FSDP + "offload_policy",
    "fsdp_forward_prefetch": FSDP + "forward_prefetch",
    "sequence_parallel_size": FSDP + "ulysses_sequence_parallel_size",
    "rollout_offload_optimizer": FSDP + "optimizer_offload",
    "rollout_offload_model": FSDP + "param_offload",
    "dataloader_workers": "data.dataloader_num_workers",
    "reward_workers": "reward.num_workers",
    "gpu_memory_utilization": ROLLOUT + "gpu_memory_utilization",
    "tensor_parallel_size": ROLLOUT + "tensor_model_parallel_size",
    "weight_sync_bucket_mib": ROLLOUT + "checkpoint_engine.update_weights_bucket_megabytes",
    "max_model_len": ROLLOUT + "max_model_len",
    "max_num_seqs": ROLLOUT + "max_num_seqs",
    "max_num_batched_tokens": ROLLOUT + "max_num_batched_tokens",
    "enforce_eager": ROLLOUT + "enforce_eager",
    "prefix_caching": ROLLOUT + "enable_prefix_caching",
    "chunked_prefill": ROLLOUT + "enable_chunked_prefill",
    "rollout_load_format": ROLLOUT + "load_format",
    "kv_cache_memory_bytes": ENGINE + "kv_cache_memory_bytes",
    "kv_cache_dtype": ENGINE + "kv_cache_dtype",
    "custom_all_reduce": ENGINE + "disable_custom_all_reduce",
    "cuda_graph_max_batch": ENGINE + "compilation_config.max_cudagraph_capture_size",
    "vllm_compile_mode": ENGINE + "compilation_config.mode",
}
"""Knob -> key. The value goes over as it is, but for ``custom_all_reduce`` and ``vllm_compile_mode``."""

BESIDE: Mapping[str, tuple[str, ...]] = {
    "logprob_rows": (REFERENCE + "log_prob_micro_batch_size_per_gpu",),
    "logprob_tokens": (REFERENCE + "log_prob_max_token_len_per_gpu",),
    "logprob_token_chunk": (REFERENCE + "entropy_from_logits_chunk_size",),
    "entropy_chunking": (REFERENCE + "entropy_from_logits_with_chunking",),
    "dynamic_batching": (ROLLOUT + "log_prob_use_dynamic_bsz", REFERENCE + "log_prob_use_dynamic_bsz"),
    # The one validate_config looks at; the engine reads the other, which takes this one's value if it is above 1.
    "sequence_parallel_size": (ACTOR + "ulysses_sequence_parallel_size",),
}
"""Knob -> keys that get the same value. The reference model's are those of the actor's log-prob pass."""

MIXED = FSDP + "mixed_precision"
DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": "auto"}
PRECISIONS = ("bf16", "fp16", "fp32")
MASTERS = ("bf16", "fp32")
STRATEGIES: Mapping[str, str] = {"fsdp1": "fsdp", "fsdp2": "fsdp2"}

OPTIMIZERS: Mapping[str, tuple[str, str, Mapping[str, Any] | None]] = {
    "adamw_torch": ("torch.optim", "AdamW", None),
    "adamw_torch_fused": ("torch.optim", "AdamW", {"fused": True}),
    "adamw_torch_8bit": ("torchao.optim", "AdamW8bit", None),
    "adamw_torch_4bit": ("torchao.optim", "AdamW4bit", None),
    "adamw_bnb_8bit": ("bitsandbytes.optim", "AdamW8bit", None),
    "paged_adamw_32bit": ("bitsandbytes.optim", "PagedAdamW32bit", None),
    "paged_adamw_8bit": ("bitsandbytes.optim", "PagedAdamW8bit", None),
}
"""Knob's value -> (``optimizer_impl``, ``optimizer``, ``override_optimizer_config``)."""
IMPL, OPTIMIZER, OPTIONS = (
    ACTOR + "optim." + name for name in ("optimizer_impl", "optimizer", "override_optimizer_config")
)

PROMPTS_PER_ROLLOUT = "data.train_batch_size"
PROMPTS_PER_UPDATE = ACTOR + "ppo_mini_batch_size"
STRATEGY = ACTOR + "strategy"
MODE = "trainer.v1.trainer_mode"
PADDED, BUCKET = ACTOR + "pad_to_length", FSDP + "pad_to_length_bucket"
NAME, DTYPE, QUANTIZATION = ROLLOUT + "name", ROLLOUT + "dtype", ROLLOUT + "quantization"
FREE_CACHE = ROLLOUT + "free_cache_engine"
SLEEP_MODE = ROLLOUT + "enable_sleep_mode"
"""Whether the engine's memory can be freed at all; its pool excludes expandable segments."""
CAPTURED = ROLLOUT + "cudagraph_capture_sizes"
MASTER = FSDP + "model_dtype"

ENVIRONMENT = frozenset({"expandable_segments", "host_allocator"})
"""Variables the process is started with."""
SUPPORTED = frozenset(
    {
        *NATIVE,
        *("gradient_accumulation_steps", "steps_per_generation", "pad_to_multiple", "precision", "reduce_precision"),
        *("master_weights", "optimizer", "fsdp", "rollout_engine", "rollout_mode", "sleep_level"),
        *("rollout_dtype", "rollout_quantization"),
        *ENVIRONMENT,
    }
)
"""Knobs a verl trial can set."""

FIXED: Mapping[str, KnobValue] = {
    ROLLOUT + "mode": "async",
    ROLLOUT + "data_parallel_size": 1,
    ROLLOUT + "expert_parallel_size": 1,
    ROLLOUT + "pipeline_model_parallel_size": 1,
    "actor_rollout_ref.hybrid_engine": True,
    "trainer.use_v1": True,
    "algorithm.adv_estimator": "grpo",
}
"""Keys that have to have these values for what the knobs say to hold."""
MODEL_ENGINE = "model_engine"
"""Hydra's choice of verl's own files; ``dp`` is FSDP."""

KEYS: frozenset[str] = frozenset(
    {
        *NATIVE.values(),
        *(key for keys in BESIDE.values() for key in keys),
        *(PROMPTS_PER_ROLLOUT, PROMPTS_PER_UPDATE, STRATEGY, MODE, PADDED, BUCKET, NAME, DTYPE, QUANTIZATION),
        *(FREE_CACHE, SLEEP_MODE, MASTER, IMPL, OPTIMIZER, OPTIONS, MIXED, CAPTURED),
        *(f"{MIXED}.{part}" for part in ("param_dtype", "reduce_dtype", "buffer_dtype")),
    }
)
"""Keys that hold knobs."""
NOT_IN_VERLS_FILES: frozenset[str] = frozenset(
    {
        *(key for key in NATIVE.values() if key.startswith(ENGINE)),
        NATIVE["attn_implementation"],
        *(MIXED, SLEEP_MODE),
    }
)
"""Keys Hydra has to be told to add."""
