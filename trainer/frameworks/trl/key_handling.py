"""Tables of how each key of TRL's GRPO script is handled (``KeyHandling``). All other keys are workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.legality.passthrough import REMOVED
from trainer.frameworks.common.trainer_keys import MEASURING as SHARED
from trainer.frameworks.common.trainer_keys import without

INPUTS = frozenset(
    {
        *("model_name_or_path", "reward_funcs", "max_completion_length"),
        *("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_streaming"),
        *("datasets", "streaming", "test_split_size"),
    }
)

_SERVER = frozenset({"vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_group_port"})
"""Keys that locate the rollout server: a trial starts its own on a free port."""
MEASURING = (
    SHARED
    | _SERVER
    | {
        *("do_predict", "ignore_bias_buffers", "log_level_replica", "log_on_each_node", "project", "trackio_space_id"),
        *("trackio_bucket_id", "trackio_static_space_id", "log_multimodal", "num_completions_to_print"),
        *("log_unique_prompts", "log_completions_hub_repo", "skip_memory_metrics"),
        *("eval_accumulation_steps", "eval_do_concat_batches", "eval_use_gather_object", "batch_eval_metrics"),
        *("num_generations_eval", "prediction_loss_only", "include_for_metrics", "bf16_full_eval", "fp16_full_eval"),
        *("save_on_each_node", "enable_jit_checkpoint", "metric_for_best_model", "greater_is_better", "hub_revision"),
        *("resume_from_checkpoint", "ignore_data_skip", "restore_callback_states_from_checkpoint"),
    }
)

_LAUNCH = "it belongs to accelerate's launch, not to this file; remove it (ZeRO can be said by the key deepspeed)"
REFUSED: Mapping[str, str] = {
    "parallelism_config": "GRPO cannot split a sequence over ranks; remove it",
    "reward_model_name_or_path": "a trial scores with functions, not with a reward model; use reward_funcs",
    "auto_find_batch_size": "it would change the batch in the middle of a trial, and GRPO refuses it; remove it",
    "use_transformers_paged": "TRL gives it up; write use_transformers_continuous_batching",
    "hub_token": "a secret would be stored with the study; log in with `hf auth login` instead",
}
"""Key -> reason of the refusal, and the remedy."""
LAUNCH: Mapping[str, str] = dict.fromkeys(("num_machines", "mixed_precision", "gpu_ids"), _LAUNCH)
"""Launch keys that ``trl grpo`` reads from the same file and passes to ``accelerate launch``."""
PROCESSES, SHARDED = "num_processes", ("accelerate_config", "config_file")
"""Launch keys that a trial reads: the number of processes; and accelerate's file, or the name of a preset of TRL's."""
_ZERO = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config: "
_FSDP = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config: "
_NAMED = "{fsdp_offload_params: false, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_version: "
PRESETS: Mapping[str, str] = {
    "zero1": _ZERO + "{zero_stage: 1, gradient_accumulation_steps: 1}",
    "zero2": _ZERO + "{zero_stage: 2, offload_optimizer_device: none, offload_param_device: none}",
    "zero3": _ZERO + "{zero_stage: 3, offload_optimizer_device: none, offload_param_device: none}",
    "fsdp1": _FSDP + _NAMED + "1}",
    "fsdp2": _FSDP + _NAMED + "2, fsdp_reshard_after_forward: true}",
    "multi_gpu": "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8",
    "single_gpu": 'distributed_type: "NO"\nmixed_precision: bf16\nnum_processes: 8',
}
"""Preset of ``accelerate_config`` -> the settings in TRL 1.16's file that affect a trial."""
_MEANT: Mapping[str, str] = {
    "warmup_ratio": "since transformers 5 warmup_steps takes the ratio too (0.1: a tenth of all steps)",
    "train_split": "it is dataset_train_split",
    "eval_split": "it is dataset_test_split",
    "test_split": "it is dataset_test_split",
    "model_name": "it is model_name_or_path",
    "model": "it is model_name_or_path",
    "dataset_id_or_path": "it is dataset_name",
    "lora_rank": "it is lora_r",
    "evaluation_strategy": "it is eval_strategy",
    "max_seq_length": "completions end at max_completion_length, and prompts are not cut",
    "max_length": "completions end at max_completion_length, and prompts are not cut",
    "max_new_tokens": "it is max_completion_length",
    "vllm_device": "vllm_mode colocate generates on the GPUs that train, vllm_mode server on others",
    "vllm_max_model_len": "it is vllm_max_model_length",
    "tokenizer_name_or_path": "the tokenizer is the model's",
    **dict.fromkeys(("system_prompt", "dataset_prompt_column"), "Open-R1 has it, read with --framework openr1"),
    "environment_factory": "tools and environments of several turns: a trial has one turn; remove it",
    "tools": "tools: a trial has one turn; remove it",
}
"""Key of other trainers or earlier versions -> replacement, or reason without one."""
_ASYNCHRONOUS = (
    *("max_inflight_tasks", "max_staleness", "queue_maxsize", "weight_sync_steps", "weight_sync_timeout"),
    *("token_budget", "fork_threshold_tokens", "request_timeout", "heartbeat_stale_after_s"),
)
"""Keys of ``AsyncGRPOConfig`` alone (TRL 1.16, trl/experimental/async_grpo/async_grpo_config.py)."""
GONE: Mapping[str, str] = {
    **{key: f"TRL has no such key; {advice}" for key, advice in {**_MEANT, **REMOVED}.items()},
    **dict.fromkeys(
        _ASYNCHRONOUS,
        "AsyncGRPOTrainer's (trl.experimental): asynchronous GRPO is not supported, for a trial trains in step with "
        "its completions",
    ),
}

_OWN_KEY = "write it as a key of its own, where it can be tuned"
_LENGTHS = "it would decide lengths that a trial has to set; use max_completion_length"
REFUSED_INSIDE: Mapping[tuple[str, str], str] = {
    **{("model_init_kwargs", key): _OWN_KEY for key in ("dtype", "attn_implementation")},
    ("model_init_kwargs", "torch_dtype"): "write it as the key dtype, where it can be tuned",
    ("generation_kwargs", "temperature"): _OWN_KEY,  # which it would go before
    **{
        ("generation_kwargs", key): _LENGTHS
        for key in ("max_new_tokens", "min_new_tokens", "max_length", "min_length", "max_time", "stop_strings")
    },
    **{
        ("generation_kwargs", key): "a trial counts one completion for each row; remove it"
        for key in ("num_beams", "num_return_sequences")
    },
    ("deepspeed", "optimizer"): "DeepSpeed's optimizer would go before optim; remove it and set optim",
    ("chat_template_kwargs", "chat_template"): (
        "TRL gives a template itself and fails beside another; put yours into the model folder as chat_template.jinja"
    ),
}
"""(Key, key in its mapping) -> reason of the refusal, and the remedy."""
REFUSED_WORDS: Mapping[tuple[str, str], str] = {
    ("lr_scheduler_type", word): f"{word} needs evaluation, which a trial leaves out; choose another schedule"
    for word in ("reduce_lr_on_plateau", "greedy")
}


def refusal(key: str, value: Any) -> str | None:
    """Returns the reason why a trial cannot honour ``key`` with ``value``, and the remedy; ``None`` if it can."""
    always = LAUNCH.get(key) or GONE.get(key)
    if always is not None:
        return always
    if key in REFUSED and value not in (None, False, "", [], {}):
        return REFUSED[key]
    return REFUSED_WORDS.get((key, value)) if isinstance(value, str) else None


def note(key: str, values: Mapping[str, Any]) -> str | None:
    """Returns a note on an unexpected handling of ``key``, given all ``values`` of the file; mostly ``None``."""
    server = values.get("use_vllm") is True and values.get("vllm_mode") == "server"
    if key in _SERVER or key == "vllm_server_timeout":
        if not server:
            return "it does nothing without use_vllm true and vllm_mode server"
        return "a trial starts a rollout server of its own" if key in _SERVER else None
    if key == "deepspeed" and isinstance(values[key], Mapping):
        stage = (values[key].get("zero_optimization") or {}).get("stage", 0)
        return None if stage else "at stage 0 a trial trains without DeepSpeed, by DDP"
    return None


def for_trial(passthrough: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``passthrough`` without keys that a trial ignores or refuses."""
    return without(passthrough, MEASURING, REFUSED)
