"""Names people may look for among the knobs, and why they are not there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_ROWS = "rows per update are fixed at the baseline's, so that trials are comparable"
_LENGTHS = "lengths are fixed at the baseline's, so that trials are comparable"
_OBJECTIVE = "the objective stays as in your own configuration"
_SAMPLING = "sampling stays as in your own configuration"
_REUSE = "how often completions are reused stays as in your own configuration"
_TUNER = "full, LoRA or QLoRA stays as in your own configuration"

WORKLOAD_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "generation_batch_size": "use steps_per_generation",
        "per_device_train_batch_size": "use micro_batch_size",
        "rows_per_update": _ROWS,
        "ppo_mini_batch_size": _ROWS,
        "train_batch_size": _ROWS,
        "max_prompt_length": _LENGTHS,
        "max_completion_length": _LENGTHS,
        "num_iterations": _REUSE,
        "ppo_epochs": _REUSE,
        "importance_sampling_correction": _OBJECTIVE,
        "vllm_importance_sampling_correction": _OBJECTIVE,
        "beta": _OBJECTIVE,
        "epsilon": _OBJECTIVE,
        "epsilon_high": _OBJECTIVE,
        "loss_type": _OBJECTIVE,
        "scale_rewards": _OBJECTIVE,
        "mask_truncated_completions": _OBJECTIVE,
        "max_grad_norm": _OBJECTIVE,
        "learning_rate": _OBJECTIVE,
        "lr_scheduler_type": _OBJECTIVE,
        "weight_decay": _OBJECTIVE,
        "top_p": _SAMPLING,
        "top_k": _SAMPLING,
        "min_p": _SAMPLING,
        "repetition_penalty": _SAMPLING,
        "seed": _SAMPLING,
        "use_peft": _TUNER,
        "lora_r": _TUNER,
        "lora_alpha": _TUNER,
        "lora_rank": _TUNER,
    }
)
