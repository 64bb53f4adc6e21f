"""Table of TRL's keys and our knobs."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.knobs import Reach, keys_of, places_in, plain_keys
from search_spaces.knobs.build import ENGINE_ARGUMENT
from trainer.frameworks.common.deepspeed import PLACES

FRAMEWORK = "trl"
ZERO = frozenset(PLACES)
"""Knobs in DeepSpeed's configuration."""
FSDP = frozenset({"fsdp", *places_in(FRAMEWORK, "fsdp_config")})
TRANSLATED = frozenset({"precision", "master_weights", "attn_implementation", "rollout_engine", "sleep_level"})
"""Knobs whose keys have other values than the knob, or are the model's (``keys``)."""
NATIVE = plain_keys(FRAMEWORK, TRANSLATED | FSDP)
"""Knob -> ``GRPOConfig`` key with the same value (except 0 in ``empty_cache_steps``)."""
NESTED: Mapping[str, tuple[str, str]] = {
    knob: (key, inner)
    for key in ("gradient_checkpointing_kwargs", "model_init_kwargs", "transformers_continuous_batching_config")
    for knob, (inner,) in places_in(FRAMEWORK, key).items()
}
"""Knob -> (key, key in its mapping); other entries of the mapping stay the user's."""

TRAINER_SEAMS = frozenset({"logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk", "activation_offload"})
"""Seams of the built trainer (child: ``seams.py``)."""
ENGINE_SEAMS = frozenset(
    knob
    for knob, place in keys_of(FRAMEWORK, Reach.SEAM).items()
    if place.startswith(ENGINE_ARGUMENT.partition("%")[0])
)
"""Arguments of the vLLM engine (child: ``engine.py``; a server takes them on its command line)."""
FLOAT8_SEAMS = frozenset({"precision", "fp8_emulate"})
"""Seams of the loaded model (child: ``float8.py``); ``precision`` only as fp8."""
SEAMS = TRAINER_SEAMS | ENGINE_SEAMS | {"fp8_emulate"}
"""Knobs without a key for any value."""

SERVER = frozenset({"rollout_gpus", "rollout_data_parallel_size", "training_gpus"})
"""Knobs of the launch of trainer and rollout server, without a key in TRL's file."""

ENVIRONMENT = frozenset(keys_of(FRAMEWORK, Reach.ENVIRONMENT))
"""Variables the process is started with (``variables.py``)."""

PRECISIONS = ("fp32", "bf16", "fp16", "fp8")
SUPPORTED = frozenset({*NATIVE, *NESTED, *TRANSLATED, *SEAMS, *ZERO, *FSDP, *SERVER, *ENVIRONMENT})
"""Knobs a TRL trial can set."""

KEYS = frozenset(
    {
        *NATIVE.values(),
        *(
            "generation_batch_size",
            "bf16",
            "fp16",
            "dtype",
            "attn_implementation",
            "use_vllm",
            "vllm_enable_sleep_mode",
        ),
        *("vllm_enable_sleep_mode", "deepspeed", "fsdp"),
    }
)
"""TRL's keys that hold knobs; an exported file sets them only as ``config_text`` writes them."""
