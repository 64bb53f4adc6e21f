"""Failures of verl and Ray beyond the texts that all frameworks share, and suggestions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trainer.child import contract
from trainer.child.contract import FailureReason, Nearness, Phase, Pool, Sign, StartupPart
from trainer.frameworks.common import failures as shared

OOM = FailureReason.OOM
_LOAD, _ENGINE, _START = StartupPart.LOAD.value, StartupPart.ENGINE.value, StartupPart.IMPORT.value


VERL: tuple[Sign, ...] = (
    contract.illegal(
        "verl_rollout_rows",
        "real_train_batch_size (…) must be divisible by minimal possible batch size",
        phase=_START,
    ),
    contract.illegal("verl_rollout_smaller", "train_batch_size (…) must be >= actor.ppo_mini_batch_size", phase=_START),
    contract.illegal(
        "verl_micro_batch",
        "Please set at least one of 'actor.ppo_micro_batch_size'",
        "Please set at least one of 'actor_rollout_ref.",
        "Please remove 'actor.ppo_micro_batch_size'",
        "Please remove 'actor_rollout_ref.",
        phase=_START,
    ),
    contract.illegal("verl_equal_chunks", "only support equal chunk. Got size of DataProto"),
    contract.illegal("verl_mini_batch_ranks", "Got mini_batch_size=… and self.engine.get_data_parallel_size()="),
    contract.illegal("verl_micro_rows", "data size must be divisible by force_group_size * micro_batch_size_per_gpu"),
    contract.illegal("verl_token_budget", "max_token_len must be greater than the sequence length"),
    contract.illegal("verl_rollout_world", "rollout world_size: … is not divisible by infer_world_size", phase=_ENGINE),
    contract.illegal("verl_remove_padding", "you must enable `use_remove_padding`"),
    contract.illegal("verl_ulysses_heads", "must be divisible by ulysses_sp_size"),
    contract.illegal("verl_model_length", "max_model_len (…) should be less than or equal to max_position_embeddings"),
    contract.illegal("verl_rollout_mode", "Rollout mode 'sync' has been removed", phase=_ENGINE),
    contract.illegal("verl_pipeline", "not implemented pipeline_model_parallel_size > 1 yet", phase=_ENGINE),
    contract.illegal("verl_quantization", "Currently only support … quantization, got:", phase=_ENGINE),
    contract.illegal("verl_prompts", "integer division or modulo by zero", phase=_LOAD),
    contract.illegal("verl_prompt_length", "Prompt length (…) leaves no room to generate within"),
    contract.illegal("verl_file_format", "Unsupported file format: ", phase=_LOAD),
    contract.illegal("verl_optimizer", "Failed to import module '…'. Make sure the package is installed", phase=_LOAD),
    contract.illegal("verl_transfer_queue", "No module named 'transfer_queue'", phase=_START),
    contract.illegal("verl_no_vllm", "No module named 'vllm'", phase=_ENGINE),
    contract.illegal(
        "verl_flash_attention",
        "FlashAttention2 has been toggled on, but it cannot be used",
        "No module named 'flash_attn'",
    ),
    contract.illegal(
        "verl_unknown_key",
        "Could not override '…'",
        "Key '…' is not in struct",
        "Could not append to config. An item is already at '",
        phase=_START,
    ),
    contract.illegal("verl_missing_value", "MissingMandatoryValue", "Missing mandatory value: ", phase=_START),
    contract.illegal("verl_gpus", "Total available GPUs … is less than total desired GPUs", phase=_START),
    contract.infra(
        "ray_start",
        "Failed to connect to the default Ray cluster address",
        "The current node timed out during startup",
        phase=_START,
    ),
    contract.infra("ray_socket", "AF_UNIX path length cannot exceed", phase=_START),
    contract.signs_of(OOM, Pool.HOST)(
        "ray_store", "ray.exceptions.ObjectStoreFullError", "The local object store is full of objects"
    ),
    contract.infra("ray_disk", "ray.exceptions.OutOfDiskError"),
    contract.signs_of(FailureReason.HANG, nearness=Nearness.DEATH)("ray_get", "ray.exceptions.GetTimeoutError"),
    contract.echo("ray_killed", "Worker unexpectedly exits with a connection error code 2"),
)
"""Texts from the sources of verl 0.9.1, Hydra 1.3 and Ray 2.60; not yet seen on a GPU."""

SUGGESTIONS: Mapping[str, str] = {
    **shared.SUGGESTIONS,
    "verl_rollout_rows": "rows of a rollout (train_batch_size x n) must be a multiple of the GPUs; "
    "raise steps_per_generation or dynamic_batching true",
    "verl_rollout_smaller": "raise steps_per_generation to gradient_accumulation_steps or more",
    "verl_micro_batch": "set micro_batch_size and logprob_rows, or dynamic_batching true",
    "verl_equal_chunks": "rows of a rollout (train_batch_size x n), and of a validation, must be multiples of the GPUs",
    "verl_mini_batch_ranks": "rows of an update (ppo_mini_batch_size x n) must be a multiple of the ranks",
    "verl_micro_rows": "lower micro_batch_size or logprob_rows to a divisor of a rank's rows",
    "verl_token_budget": "raise update_tokens and logprob_tokens to prompt + completion or more",
    "verl_rollout_world": "lower tensor_parallel_size to a divisor of the GPUs",
    "verl_remove_padding": "set remove_padding true, or sequence_parallel_size 1",
    "verl_ulysses_heads": "lower sequence_parallel_size to a divisor of the attention heads",
    "verl_model_length": "lower max_model_len to what the model has positions for",
    "verl_rollout_mode": "leave out actor_rollout_ref.rollout.mode",
    "verl_pipeline": "leave out actor_rollout_ref.rollout.pipeline_model_parallel_size",
    "verl_quantization": "set rollout_quantization none or fp8",
    "verl_prompts": "give at least data.train_batch_size prompts: fewer make no step",
    "verl_prompt_length": "filter longer prompts, or raise the prompt length",
    "verl_file_format": "give verl a .parquet, .json or .jsonl file",
    "verl_optimizer": "set optimizer adamw_torch, or install the optimizer's package beside verl",
    "verl_transfer_queue": "install verl[vllm], which brings TransferQueue",
    "verl_no_vllm": "install verl[vllm]",
    "verl_flash_attention": "set attn_implementation sdpa, or install flash-attn beside verl",
    "verl_unknown_key": "remove the key, or begin it with + if it is meant to be new",
    "verl_missing_value": "set the key that the line names",
    "verl_gpus": "train on as many GPUs as the machine lets verl see",
    "ray_start": "it is repeated once by itself; look further up for what Ray's own processes said",
    "ray_socket": "give Ray a folder with a shorter path: a socket's may have 107 characters",
    "ray_store": "lower train_batch_size's rows, or give the machine more memory: Ray's object store is full",
    "ray_get": "look further up in the log for the worker that did not answer",
    "ray_disk": "free disk space where Ray keeps its session",
    "ray_killed": shared.LOOK_UP,
}
"""Name of a sign -> suggestion."""

_ON_GPU: Mapping[str, str] = {
    **shared.BY_PHASE,
    Phase.LOGPROB.value: "lower logprob_rows, or logprob_tokens with dynamic_batching; or fused_loss true",
    Phase.UPDATE.value: "lower micro_batch_size (update_tokens with dynamic_batching), or turn "
    "rollout_offload_optimizer or gradient_checkpointing on",
}


diagnose = partial(shared.diagnose, signs=(*VERL, *contract.SIGNS), suggestions=SUGGESTIONS)


def suggest(reason: FailureReason, phase: str | Phase | None = None, pool: Pool | None = None) -> str:
    """Returns a suggestion for a failure of this kind; empty if there is none."""
    if reason is FailureReason.REWARD_ERROR:
        return "verl scores completions inside generation; look for the reward's own traceback further up"
    return shared.suggest(reason, phase, pool, by_phase=shared.BY_PHASE if pool is Pool.HOST else _ON_GPU)
