"""What has to be started anew when a knob changes between two trials of one process."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults

RestartKey = tuple[tuple[str, KnobValue], ...]


class Restart(IntEnum):
    """Ascending in cost."""

    NONE = 0
    """The trainer is built anew in the same process, as it is for every trial."""
    ENGINE = 1
    """The colocated rollout engine is built anew."""
    PROCESS = 2
    """Nothing of the process can be kept."""


_ENGINE = (
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "tensor_parallel_size",
    "sleep_level",
    "rollout_quantization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "cuda_graph_max_batch",
    "vllm_compile_mode",
    "prefix_caching",
    "chunked_prefill",
    "kv_cache_dtype",
    "rollout_dtype",
    "rollout_load_format",
    "custom_all_reduce",
)
_PROCESS = (
    # which packages are imported, and what they patch when they are
    "rollout_engine",
    "rollout_mode",
    "continuous_batching",
    "continuous_batching_memory",
    "attn_implementation",
    "hub_kernels",
    "fused_loss",
    "remove_padding",
    "torch_compile",
    "torch_compile_mode",
    # precision: switches of the whole process, and what was autotuned under them
    "precision",
    "fp8_emulate",
    "master_weights",
    "reduce_precision",
    "tf32",
    # variables the allocators read once
    "expandable_segments",
    "host_allocator",
    # how many processes there are, and how they share the work
    "rollout_gpus",
    "rollout_data_parallel_size",
    "zero_stage",
    "offload_optimizer",
    "offload_parameters",
    "zero3_gather_for_generation",
    "zero_overlap",
    "zero_contiguous_gradients",
    "zero_reduce_bucket",
    "zero_allgather_bucket",
    "zero_prefetch_bucket",
    "fsdp",
    "fsdp_reshard_after_forward",
    "fsdp_offload",
    "fsdp_forward_prefetch",
    "ddp_bucket_mib",
    "sequence_parallel_size",
    "async_generation",
    "reward_workers",
)
_NONE = (
    "micro_batch_size",
    "gradient_accumulation_steps",
    "num_generations",
    "steps_per_generation",
    "logprob_rows",
    "logprob_token_chunk",
    "logprob_vocab_chunk",
    "logprob_tokens",
    "dynamic_batching",
    "update_tokens",
    "pad_to_multiple",
    "dynamic_sampling",
    "optimizer",
    "gradient_checkpointing",
    "checkpointing_reentrant",
    "activation_offload",
    "entropy_chunking",
    "empty_cache_steps",
    "dataloader_workers",
    "rollout_offload_optimizer",
    "rollout_offload_model",
    "weight_sync_batches",
    "weight_sync_bucket_mib",
)
_PRELOADED = frozenset(
    # what is imported, whether anything of it compiles, and variables the allocators read once
    {"rollout_engine", "rollout_mode", "enforce_eager", "torch_compile", "host_allocator", "expandable_segments"}
)
RESTART: Mapping[str, Restart] = {
    **dict.fromkeys(_NONE, Restart.NONE),
    **dict.fromkeys(_ENGINE, Restart.ENGINE),
    **dict.fromkeys(_PROCESS, Restart.PROCESS),
}
"""Every knob of the catalogue."""


def restart_between(before: Mapping[str, KnobValue], after: Mapping[str, KnobValue], framework: str = "trl") -> Restart:
    """The costliest restart among the knobs that differ; one that is not in the catalogue costs the process.

    A knob that is not set has the framework's default; where there is none it differs from every value.
    """
    unset = defaults(framework)
    changed = (n for n in {*before, *after} if before.get(n, unset.get(n)) != after.get(n, unset.get(n)))
    return max((RESTART.get(name, Restart.PROCESS) for name in changed), default=Restart.NONE)


def restart_key(configuration: Mapping[str, KnobValue], above: Restart, framework: str = "trl") -> RestartKey:
    """What two configurations have to agree on so that no restart costlier than ``above`` lies between them.

    Equal keys and ``restart_between(...) <= above`` say the same.
    """
    unset = defaults(framework)
    kept = ((n, v) for n, v in configuration.items() if RESTART.get(n, Restart.PROCESS) > above)
    return tuple(sorted((n, v) for n, v in kept if n not in unset or v != unset[n]))


def preload_key(configuration: Mapping[str, KnobValue], framework: str = "trl") -> RestartKey:
    """What two configurations have to agree on to be forked from one process that has imported everything."""
    unset = defaults(framework)
    kept = ((n, v) for n, v in configuration.items() if n in _PRELOADED)
    return tuple(sorted((n, v) for n, v in kept if n not in unset or v != unset[n]))
