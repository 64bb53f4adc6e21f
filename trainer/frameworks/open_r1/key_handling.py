"""How each key of an Open-R1 recipe is handled (``KeyHandling``). A key in none of these tables is workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.frameworks.common.key_handling import MEASURING as SHARED
from trainer.frameworks.common.key_handling import without

INPUTS = frozenset(
    {
        *("model_name_or_path", "reward_funcs", "max_completion_length", "max_prompt_length"),
        *("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_prompt_column"),
        *("dataset_mixture", "dataset_streaming"),
    }
)
"""Model, prompts, rewards and lengths, which are fields of a study."""

SERVER = frozenset({"vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"})
"""Server address: a trial starts its own rollout server on a free port."""
MEASURING = (
    SHARED
    | SERVER
    | {
        *("overwrite_output_dir", "logging_dir", "logging_nan_inf_filter", "num_completions_to_print"),
        *("wandb_log_unique_prompts", "wandb_entity", "wandb_project", "wandb_run_group"),
        *("resume_from_checkpoint", "hub_model_revision", "push_to_hub_revision", "overwrite_hub_revision"),
        *("callbacks", "benchmarks"),
    }
)
"""Keys without an effect on figures: a trial ignores or replaces them; an exported recipe keeps them."""

REFUSED: Mapping[str, str] = {
    "auto_find_batch_size": "it would change the batch in the middle of a trial; remove it",
    "hub_token": "a secret would be stored with the study; log in with `huggingface-cli login` instead",
    "deepspeed": "Open-R1 shards by the accelerate file; give it that file and remove the key",
    "fsdp": "an Open-R1 trial shards with DeepSpeed, by the accelerate file; remove the key",
    "model_init_kwargs": "TRL 0.18 refuses it beside a loaded model, which Open-R1 gives it; remove it",
}
"""Key -> reason why a trial cannot honour it, and the remedy."""


def refusal(key: str, value: Any) -> str | None:
    """Returns the reason why a trial cannot honour ``key`` with ``value``; ``None`` if it can, or without an effect."""
    return REFUSED[key] if key in REFUSED and value not in (None, False, "", [], {}) else None


def for_trial(passthrough: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``passthrough`` without keys that a trial ignores or refuses."""
    return without(passthrough, MEASURING, REFUSED)
