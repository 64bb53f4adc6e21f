"""Tables of verl 0.9.1's keys and the knobs that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Reach, key_of, keys_of, plain_keys
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from trainer.frameworks.common.values import ARGUMENT, SPECULATIVE

ACTOR = "actor_rollout_ref.actor."
FSDP = "actor_rollout_ref.actor.fsdp_config."
MODEL = "actor_rollout_ref.model."
ROLLOUT = "actor_rollout_ref.rollout."
REFERENCE = "actor_rollout_ref.ref."
ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm."

FRAMEWORK = "verl"
OF_MEGATRON = tuple(name for name, knob in KNOBS.items() if ENGINE_KNOB in knob.needs)
"""Knobs with an effect under Megatron only (``megatron``)."""
TRANSLATED = frozenset(
    {
        *("gradient_accumulation_steps", "steps_per_generation", "pad_to_multiple", "precision", "reduce_precision"),
        *("master_weights", "optimizer", "fsdp", "rollout_engine", "rollout_mode", "sleep_level"),
        *(ENGINE_KNOB, *OF_MEGATRON),
        *("rollout_dtype", "rollout_quantization", "async_generation", "rollout_gpus", "staleness_limit"),
        *SPECULATIVE,
    }
)
"""Knobs whose keys have other values than the knob, or that set several keys (``keys``)."""
UNTRIED = frozenset(
    {
        *("async_generation", "rollout_gpus", "weight_sync_every", "staleness_limit", "stale_completions"),
        *("weight_sync_backend", ENGINE_KNOB, *OF_MEGATRON),
    }
)
"""Knobs of verl's asynchronous modes and of Megatron: exported and imported, but no trial runs with them."""
NATIVE = plain_keys(FRAMEWORK, TRANSLATED, dotted=True)
"""Knob -> key with the same value, except for ``custom_all_reduce`` and ``vllm_compile_mode``."""

BESIDE: Mapping[str, tuple[str, ...]] = {
    "logprob_rows": (REFERENCE + "log_prob_micro_batch_size_per_gpu",),
    "logprob_tokens": (REFERENCE + "log_prob_max_token_len_per_gpu",),
    "logprob_token_chunk": (REFERENCE + "entropy_from_logits_chunk_size",),
    "entropy_chunking": (REFERENCE + "entropy_from_logits_with_chunking",),
    "dynamic_batching": (ROLLOUT + "log_prob_use_dynamic_bsz", REFERENCE + "log_prob_use_dynamic_bsz"),
    # The one validate_config looks at; the engine reads the other, which takes this one's value if it is above 1.
    "sequence_parallel_size": (ACTOR + "ulysses_sequence_parallel_size",),
}
"""Knob -> further keys with the same value; the reference model's keys equal those of the actor's log-prob pass."""

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
MODES: Mapping[str, tuple[str, bool]] = {
    "sync": ("colocate", False),
    "colocate_async": ("colocate", True),
    "separate_async": ("server", True),
}
"""verl's mode -> (``rollout_mode``, ``async_generation``)."""
APART_NODES, APART_GPUS = ROLLOUT + "nnodes", ROLLOUT + "n_gpus_per_node"
"""Machines, and GPUs of each, that only generate; verl reads both keys only in mode ``separate_async``."""
STALENESS = "trainer.v1.sampler.max_off_policy_threshold"
PADDED, BUCKET = ACTOR + "pad_to_length", FSDP + "pad_to_length_bucket"
NAME, DTYPE, QUANTIZATION = ROLLOUT + "name", ROLLOUT + "dtype", ROLLOUT + "quantization"
FREE_CACHE = ROLLOUT + "free_cache_engine"
SLEEP_MODE = ROLLOUT + "enable_sleep_mode"
"""Whether the engine can free its memory; its memory pool excludes expandable segments."""
CAPTURED = ROLLOUT + "cudagraph_capture_sizes"
MASTER = FSDP + "model_dtype"
GUESSES = ENGINE + ARGUMENT
WHOLE = (OPTIONS, GUESSES)
"""Mappings that hold one knob or several as a whole."""

ENVIRONMENT = frozenset(keys_of(FRAMEWORK, Reach.ENVIRONMENT))
"""Knobs set by environment variables of the process."""
WRITTEN = frozenset({*NATIVE, *TRANSLATED, *ENVIRONMENT})
"""Knobs that verl's overrides can set."""
SUPPORTED = WRITTEN - UNTRIED
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
"""Key -> its only value at which the knobs mean the same."""
MODEL_ENGINE = "model_engine"
"""Hydra's choice among verl's own files: ``dp`` is FSDP, ``megatron`` is Megatron."""

KEYS: frozenset[str] = frozenset(
    {
        *NATIVE.values(),
        *(key for keys in BESIDE.values() for key in keys),
        *(PROMPTS_PER_ROLLOUT, PROMPTS_PER_UPDATE, STRATEGY, MODE, PADDED, BUCKET, NAME, DTYPE, QUANTIZATION),
        *(FREE_CACHE, SLEEP_MODE, MASTER, IMPL, OPTIMIZER, OPTIONS, MIXED, CAPTURED),
        *(STALENESS, GUESSES),
        *(f"{MIXED}.{part}" for part in ("param_dtype", "reduce_dtype", "buffer_dtype")),
    }
)
"""Keys that hold knobs."""
NOT_IN_VERLS_FILES: frozenset[str] = frozenset(
    {*(key for knob, key in NATIVE.items() if key_of(knob, FRAMEWORK).startswith("+")), MIXED, SLEEP_MODE, GUESSES}
)
"""Keys that verl's files lack, so that Hydra needs ``+`` for them."""
