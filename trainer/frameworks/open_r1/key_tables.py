"""Table of Open-R1's recipe keys and our knobs. Its trainer is that of TRL 0.18."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.knobs import Reach, keys_of, plain_keys
from search_spaces.legality.openr1_rules import FRAMEWORK, SERVER_OPTIONS
from trainer.frameworks.common.deepspeed import PLACES

TRANSLATED = frozenset({"precision", "master_weights", "rollout_engine"})
"""Knobs whose keys have other values than the knob (``keys``)."""
NATIVE = plain_keys(FRAMEWORK, TRANSLATED)
"""Knob -> recipe key with the same value (except 0 in ``empty_cache_steps``)."""
NULL_IS_UNSET = frozenset(
    {
        *("steps_per_generation", "generation_batch_size", "tf32", "torch_compile_mode", "ddp_bucket_cap_mb"),
        *("attn_implementation", "torch_dtype", "gradient_checkpointing_kwargs"),
    }
)
CHECKPOINTING = ("gradient_checkpointing_kwargs", "use_reentrant")
"""``checkpointing_reentrant``: key, and key in its mapping."""
PRECISIONS = ("fp32", "bf16", "fp16")

SERVER: Mapping[str, str] = {
    "tensor_parallel_size": "--tensor_parallel_size",
    "rollout_data_parallel_size": "--data_parallel_size",
    **SERVER_OPTIONS,
}
"""Knob -> option of ``trl vllm-serve``."""
ENVIRONMENT = frozenset(keys_of(FRAMEWORK, Reach.ENVIRONMENT))
"""Variables the process is started with."""

_LAUNCH = ("rollout_gpus", "training_gpus")
SUPPORTED = frozenset({*NATIVE, *TRANSLATED, *PLACES, *SERVER, *ENVIRONMENT, *_LAUNCH, "checkpointing_reentrant"})
"""Knobs that can be set; those of ``SERVER_OPTIONS``, except the first, with a rollout server only."""

KEYS = frozenset(
    {
        *NATIVE.values(),
        *("generation_batch_size", "bf16", "fp16", "torch_dtype", "use_vllm"),
    }
)
"""Recipe keys that hold knobs."""
