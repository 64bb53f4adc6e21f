"""Tables of how each key of verl's configuration is handled (``KeyHandling``). All other keys are workload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from search_spaces.knobs.model import show
from trainer.frameworks.common.trainer_keys import KeyHandling
from trainer.frameworks.verl.key_tables import FIXED, KEYS, MODEL, MODEL_ENGINE, ROLLOUT
from trainer.frameworks.verl.keys import OLD

_TRAINING: Mapping[str, str] = {
    "mlite": "Megatron Lite",
    "veomni": "VeOmni",
    "torchtitan": "TorchTitan",
    "automodel": "NeMo AutoModel",
    "mindspeed": "MindSpeed",
    "fsdp_turbo": "FSDP Turbo",
    "turbo_config": "FSDP Turbo",
}
"""Word in the names of verl's engines and strategies -> title of the engine."""
_ROLLOUT: Mapping[str, str] = {"trtllm": "TensorRT-LLM", "hf": "generation by transformers"}
ROLLOUT_NAME = "actor_rollout_ref.rollout.name"
_DEVICES = ("trainer.device", "actor_rollout_ref.actor.device", "device")
_STRATEGY = re.compile(r"actor_rollout_ref\.(actor|ref)\.(.*\.)?strategy")

MODEL_PATH = MODEL + "path"
TRAIN_FILES, VALIDATION_FILES = "data.train_files", "data.val_files"
PROMPT_LENGTH, COMPLETION_LENGTH = "data.max_prompt_length", "data.max_response_length"
REWARD_PATH, REWARD_NAME = "reward.custom_reward_function.path", "reward.custom_reward_function.name"
DATASET_PATH, DATASET_NAME = "data.custom_cls.path", "data.custom_cls.name"
GPUS, NODES = "trainer.n_gpus_per_node", "trainer.nnodes"
PROMPT_KEY, SOURCE_KEY, ROWS = "data.prompt_key", "data.reward_fn_key", "data.train_max_samples"

DATASET = frozenset({TRAIN_FILES, VALIDATION_FILES, DATASET_PATH, DATASET_NAME, PROMPT_KEY, SOURCE_KEY, ROWS})
INPUTS = DATASET | {MODEL_PATH, PROMPT_LENGTH, COMPLETION_LENGTH, REWARD_PATH, REWARD_NAME, GPUS, NODES}
"""Keys for model, prompts, rewards, lengths and GPUs, which are fields of a study."""

RUNS_WORKERS = "ray_kwargs.ray_init.runtime_env.py_executable"
"""Command that starts Ray's workers (``uv run ...``); a trial uses its own interpreter."""
MEASURING = frozenset(
    {
        *("trainer.total_epochs", "trainer.total_training_steps", "trainer.project_name", "trainer.experiment_name"),
        *("trainer.logger", "trainer.log_val_generations", "trainer.rollout_data_dir", "trainer.validation_data_dir"),
        *("trainer.save_freq", "trainer.esi_redundant_time", "trainer.resume_mode", "trainer.resume_from_path"),
        *("trainer.val_before_train", "trainer.test_freq", "trainer.default_hdfs_dir", "trainer.default_local_dir"),
        *("trainer.del_local_ckpt_after_load", "trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep"),
        *("trainer.checkpoint_callback_class", "data.val_batch_size", "data.val_max_samples", "hydra.run.dir"),
        *("data.seed", "actor_rollout_ref.rollout.seed", "actor_rollout_ref.actor.data_loader_seed"),
        *("actor_rollout_ref.actor.fsdp_config.seed", "actor_rollout_ref.actor.megatron.seed"),
        *("ray_kwargs.timeline_json_file", "hydra.output_subdir"),
        RUNS_WORKERS,
    }
)
"""Keys without an effect on figures: a trial ignores or replaces them; an exported script keeps them."""

LOOP = ROLLOUT + "agent.default_agent_loop"
_OTHER_LOOP = "agent loops and tools are not supported: a trial gives each completion one length; remove it"
_TOOLS = "tools are not supported: a trial gives each completion one length, and calls have none; remove it"
REWARD_MODEL = ("reward.reward_model.enable", "reward.reward_model.enable_resource_pool", "reward_model.enable")
_OTHER_ENGINE = "FSDP and Megatron are read, verl's model_engine dp and megatron; remove it"
_WHY: Mapping[str, str] = {
    "actor_rollout_ref.rollout.mode": "verl 0.9.1 has no other than async",
    "actor_rollout_ref.rollout.data_parallel_size": "a trial has one engine for each tensor_model_parallel_size GPUs",
    "actor_rollout_ref.rollout.expert_parallel_size": "a trial spreads an engine by tensor_model_parallel_size alone",
    "actor_rollout_ref.rollout.pipeline_model_parallel_size": "verl's rollout has no pipeline",
    "actor_rollout_ref.hybrid_engine": "a trial's engine shares the training GPUs",
    "trainer.use_v1": "a trial runs verl's current trainer",
    "algorithm.adv_estimator": "only GRPO is tuned, which has no critic",  # gae has: verl's trainer/ppo/utils.py 96
}
REFUSED: Mapping[str, str] = {
    "critic.enable": "GRPO has no critic; remove it",
    "distillation.enabled": "distillation is not tuned; remove it",
    "actor_rollout_ref.rollout.disaggregation.enabled": "a trial prefills and decodes on the same GPUs; remove it",
    "trainer.val_only": "a trial trains; remove it",
    ROLLOUT + "multi_turn.enable": "multi-turn is not supported: a trial gives each completion one length, and "
    "several turns have none; remove it",
    ROLLOUT + "multi_turn.tool_config_path": _TOOLS,
    ROLLOUT + "multi_turn.function_tool_path": _TOOLS,
    ROLLOUT + "multi_turn.interaction_config_path": _TOOLS,
    **dict.fromkeys(
        REWARD_MODEL,
        "a reward model is not supported: a trial scores with functions; remove it, and name a function with --reward",
    ),
    ROLLOUT + "agent.agent_loop_config_path": _OTHER_LOOP,
    ROLLOUT + "agent.agent_loop_manager_class": _OTHER_LOOP,
}
"""Key -> reason of the refusal, and the remedy; the value false is accepted."""


def files_refusal(word: str) -> str | None:
    """Returns the reason why no trial uses verl's configuration files named ``word``; ``None`` if a trial may."""
    if re.search(r"multi_?turn|tool", word, re.IGNORECASE):
        return "multi-turn and tools are not supported: a trial gives each completion one length"
    return engine_refusal(word)


def engine_refusal(word: str) -> str | None:
    """Returns the reason why no trial trains with the engine named ``word``; ``None`` for FSDP or no engine."""
    found = next((name for engine, name in _TRAINING.items() if engine in word.lower()), None)
    return None if found is None else f"{found} is not supported: a verl trial trains with FSDP (model_engine dp)"


def part_refusal(key: str, value: Any) -> str | None:
    """Returns the reason why trials do not support the engine or device that ``key`` sets; ``None`` if they do."""
    if key == "model_engine" or _STRATEGY.fullmatch(key):
        return engine_refusal(str(value))
    if "@" in key and not str(value).startswith("dp_"):
        return engine_refusal(str(value)) or "a trial is made of the files that verl's ppo_trainer names; remove it"
    if key == ROLLOUT_NAME and value in _ROLLOUT:
        return f"{_ROLLOUT[value]} is not supported: verl's vLLM and SGLang are"
    if (key in _DEVICES and str(value).lower() == "npu") or (key == "global_profiler.tool" and value == "npu"):
        return "an NPU is not supported: a trial runs on NVIDIA GPUs"
    inside = next((part for part in key.split(".") if part in _TRAINING), "")
    return engine_refusal(inside) if inside and value is not None else None


def handling_of(key: str) -> KeyHandling:
    """Returns the handling of ``key``."""
    if key in KEYS:
        return KeyHandling.KNOB
    if key in INPUTS:
        return KeyHandling.INPUT
    if key in REFUSED or key in OLD or key in FIXED or key in (MODEL_ENGINE, LOOP):
        return KeyHandling.REFUSED
    return KeyHandling.MEASURING if key in MEASURING else KeyHandling.WORKLOAD


def refusal(key: str, value: Any, ranks: int = 0) -> str | None:
    """Returns the reason why a trial cannot honour ``key`` with ``value``, and the remedy; ``None`` if it can.

    ``ranks`` is the number of data-parallel ranks; 0 if unknown.
    """
    if key in OLD and value is not None:
        each = f" {max(1, value // ranks)}, of {value} over {ranks} ranks" if ranks and isinstance(value, int) else ""
        return f"verl 0.9.1 does not take rows over all GPUs; use {OLD[key]}{each}"
    if key in FIXED and value != FIXED[key]:
        return f"{_WHY[key]}; expected {show(FIXED[key])}, got {show(value)}"
    if key == MODEL_ENGINE and value not in ("dp", "megatron"):
        return _OTHER_ENGINE
    if key == LOOP and value != "single_turn_agent":
        return _OTHER_LOOP
    return REFUSED[key] if key in REFUSED and value not in (None, False) else None


def for_trial(passthrough: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``passthrough`` without keys that a trial ignores."""
    return {key: value for key, value in passthrough.items() if handling_of(key) is not KeyHandling.MEASURING}
