"""Tables of how each argument of ``swift rlhf`` and ``megatron rlhf`` is handled. All other arguments are workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.frameworks.common.trainer_keys import MEASURING as SHARED
from trainer.frameworks.common.trainer_keys import without
from trainer.frameworks.ms_swift.keys import SERVERS_GUESSES

INPUTS = frozenset(
    {
        *("model", "reward_funcs", "max_completion_length", "max_new_tokens", "response_length"),
        *("dataset", "columns", "dataset_shuffle", "rlhf_type"),
    }
)
"""Arguments for model, prompts, rewards and completion length, which are fields of a study."""
DATASET = ("dataset", "columns", "dataset_shuffle")
"""Inputs that name the prompts."""

_SERVER = frozenset(
    {
        *("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"),
        "vllm_server_group_port",
    }
)
"""Arguments that locate the rollout server: a trial starts its own on a free port."""
_MEGATRON = frozenset(
    {
        *("train_iters", "eval_iters", "no_save_optim", "no_save_rng", "no_load_optim", "no_load_rng", "async_save"),
        *("save_safetensors", "save_missing_weights", "tensorboard_dir", "tensorboard_queue_size"),
        *("wandb_project", "wandb_exp_name"),
    }
)
"""Arguments of ``megatron rlhf`` alone, without an effect on figures."""
MEASURING = (
    SHARED
    | _SERVER
    | _MEGATRON
    | {
        *("add_version", "max_epochs", "logging_dir", "log_on_each_node", "wandb_log_unique_prompts"),
        *("swanlab_project", "swanlab_workspace", "swanlab_exp_name", "swanlab_mode"),
        *("create_checkpoint_symlink", "skip_memory_metrics"),
        *("val_dataset", "cached_val_dataset", "val_dataset_shuffle", "split_dataset_ratio", "eval_accumulation_steps"),
        *("num_generations_eval", "eval_use_evalscope", "eval_dataset", "eval_limit"),
        *("eval_dataset_args", "eval_generation_config", "extra_eval_args", "early_stop_interval"),
        *("metric_for_best_model", "greater_is_better", "save_on_each_node"),
        *("safe_serialization", "max_shard_size", "hub_revision", "use_flash_ckpt"),
    }
)
"""Arguments without effect on figures: a trial ignores or replaces them; an exported file keeps them."""

NOT_NEEDED = MEASURING | {"dataset"}
"""Arguments whose values may need a shell to evaluate; next to a script, the prompts are given separately."""

LAUNCH: Mapping[str, str] = {
    "NPROC_PER_NODE": "processes",
    "NNODES": "nodes",
    "NODE_RANK": "rank of the node",
    "MASTER_ADDR": "address",
    "MASTER_PORT": "port",
    "CUDA_VISIBLE_DEVICES": "GPUs",
}
"""Variables of a script that place its processes -> their meaning; a study places processes itself."""

COUNTING: Mapping[str, int] = {"NPROC_PER_NODE": 0, "NNODES": 1}
"""Variables whose product is the number of training processes -> value if unset; 0 means unknown."""

_TEACHER = "a trial trains with rewards alone, without a teacher; remove it"
REFUSED: Mapping[str, str] = {
    "reward_model": "a trial scores with functions, not with a reward model; use reward_funcs",
    "reward_model_plugin": "a trial scores with functions, not with a reward model; use reward_funcs",
    "teacher_model": _TEACHER,
    "teacher_model_server": _TEACHER,
    "chord_sft_dataset": "a trial trains on completions alone; remove it",
    "multi_turn_scheduler": "multi-turn generation: a trial has one turn; remove it",
    "gym_env": "an environment of several turns: a trial has one turn; remove it",
    "use_gym_env": "an environment of several turns: a trial has one turn; remove it",
    "vllm_server_pass_dataset": "multi-turn generation by a server: a trial has one turn; remove it",
    "auto_find_batch_size": "it would change the batch in the middle of a trial, and GRPO refuses it; remove it",
    "resume_from_checkpoint": "a trial begins with the model itself; remove it",
    "adapters": "a trial begins with the model itself; merge them first",
    "ref_adapters": "a trial begins with the model itself; merge them first",
    "use_ray": "a trial runs its own processes; remove it",
    "streaming": "a trial needs the whole set of prompts; remove it",
    "packing": "prompts are not packed for GRPO; use padding_free",
    "hub_token": "a secret would be stored with the study; set MODELSCOPE_API_TOKEN outside the file",
    "swanlab_token": "a secret would be stored with the study; log in with `swanlab login` outside the file",
    "swanlab_secret": "a secret would be stored with the study; remove it, a trial sends no messages",
    "load_args": "it takes further arguments from a file in the model's folder; write those that count out, remove it",
    "ignore_args_error": "arguments ms-swift does not know would be dropped without a word; remove it",
}
"""Argument -> reason of the refusal, and the remedy; a value without an effect is accepted."""
_NOTHING: tuple[Any, ...] = (None, False, "", [], {}, "none")


def refusal(key: str, value: Any) -> str | None:
    """Returns the reason why a trial cannot honour ``key`` with ``value``, and the remedy; ``None`` if it can."""
    if key == "rlhf_type" and value != "grpo":
        return f"expected grpo, got {value}"
    return REFUSED[key] if key in REFUSED and value not in _NOTHING else None


def note(key: str, values: Mapping[str, Any]) -> str | None:
    """Returns a note on an unexpected handling of ``key``, given all ``values``; mostly ``None``."""
    if key == SERVERS_GUESSES and values.get("vllm_mode") == "colocate":
        return "it does nothing beside a colocated engine; write speculative_config into vllm_engine_kwargs"
    if key in _SERVER and values.get("vllm_mode") == "server":
        return "a trial starts a rollout server of its own"
    if key == "deepspeed" and isinstance(values[key], Mapping):
        stage = (values[key].get("zero_optimization") or {}).get("stage", 0)
        return None if stage else "at stage 0 a trial trains without DeepSpeed, by DDP"
    derived = key == "torch_dtype" and values[key] == "float32" and not {"bf16", "fp16"} & values.keys()
    return "ms-swift derives fp16 from float32; set fp16 to false to compute in fp32" if derived else None


def for_trial(passthrough: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``passthrough`` without arguments that a trial ignores or refuses."""
    return without(passthrough, MEASURING, REFUSED)
