"""Table of ms-swift's arguments and our knobs (ms-swift 4.6.0, ``swift rlhf`` and ``swift rollout``)."""

from __future__ import annotations

from search_spaces.knobs import KNOBS, Reach, key_of, keys_of, places_in, plain_keys
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from trainer.frameworks.common.deepspeed import PLACES
from trainer.frameworks.common.speculation import KNOBS as SPECULATIVE

FRAMEWORK = "ms_swift"
OF_MEGATRON = tuple(name for name, knob in KNOBS.items() if ENGINE_KNOB in knob.needs)
"""Knobs with an effect under Megatron only (``megatron``), with which no trial runs."""
STEPS = {name: key_of(name, FRAMEWORK) for name in ("gradient_accumulation_steps", "steps_per_generation")}
"""Knob -> argument that ms-swift multiplies by ``sequence_parallel_size``."""
TRANSLATED = frozenset({"precision", "master_weights", "optimizer", "rollout_engine", "custom_all_reduce"})
"""Knobs whose arguments have other values than the knob (``keys``)."""
NATIVE = {
    **plain_keys(FRAMEWORK, {*STEPS, *TRANSLATED, *OF_MEGATRON, "fsdp"}),
    # The catalogue names the command too: only ``swift rollout`` reads it.
    "rollout_data_parallel_size": "vllm_data_parallel_size",
}
"""Knob -> argument with the same value (except 0 in ``empty_cache_steps``)."""

ENGINE_KEY = "vllm_engine_kwargs"
ENGINE = {knob: place for knob, place in places_in(FRAMEWORK, ENGINE_KEY).items() if knob not in SPECULATIVE}
"""Knob -> place in ``vllm_engine_kwargs``, the JSON of vLLM's own engine arguments."""
SERVERS_GUESSES = "vllm_speculative_config"
"""Name of ``speculative_config`` in ``swift rollout``; a colocated engine does not get it
(``swift/rlhf_trainers/rollout_mixin.py:507``)."""
ALL_REDUCE = "vllm_disable_custom_all_reduce"
"""Negation of the knob ``custom_all_reduce``; a colocated engine does not get it."""

CHECKPOINTING = ("gradient_checkpointing_kwargs", "use_reentrant")

ZERO = frozenset(PLACES) - {"zero_prefetch_bucket"}
"""Knobs in DeepSpeed's configuration; ms-swift never prefetches for GRPO."""
FSDP = frozenset({"fsdp", *places_in(FRAMEWORK, "fsdp")})
SERVER = frozenset({"rollout_gpus", "training_gpus"})
"""Knobs of the launch: GPUs of the server's replicas, and of the training."""

BUCKET_VARIABLE = "SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE"
ENVIRONMENT = frozenset({*keys_of(FRAMEWORK, Reach.ENVIRONMENT), "weight_sync_bucket_mib"})
"""Variables the process is started with."""

SEAMS = frozenset({"logprob_rows"})
"""Knobs that have no argument; set from a plugin (child: ``seams.py``)."""

PRECISIONS = ("fp32", "bf16", "fp16")
SUPPORTED = frozenset(
    {
        *(*NATIVE, *STEPS, *TRANSLATED, *ENGINE, *SPECULATIVE, *ZERO, *FSDP, *SERVER, *ENVIRONMENT, *SEAMS),
        "checkpointing_reentrant",
    }
)
"""Knobs an ms-swift trial can set."""

KEYS = frozenset(
    {
        *NATIVE.values(),
        *STEPS.values(),
        *("generation_batch_size", "optim", "bf16", "fp16", "torch_dtype", "use_vllm", ALL_REDUCE, "deepspeed", "fsdp"),
    }
)
"""Arguments that hold knobs; an exported file sets them only as ``to_keys`` gives them."""

SERVED = (
    *("vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_data_parallel_size", "vllm_max_model_len"),
    *("vllm_max_num_seqs", "vllm_enforce_eager", "vllm_enable_prefix_caching", ALL_REDUCE, ENGINE_KEY),
    SERVERS_GUESSES,
)
"""Arguments of ``swift rollout`` that ``swift rlhf`` also accepts, without an effect in server mode."""
