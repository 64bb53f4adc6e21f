"""Recognises failures by their text, and suggests the next step for the text, else for phase and memory pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.child.contract import SIGNS, FailureReason, Nearness, Phase, Pool, Sign, StartupPart, read_log

SMALLER_BATCH = "lower micro_batch_size (accumulation makes up for it) or turn gradient_checkpointing on"
FEWER_ROWS = "lower steps_per_generation, so that fewer rows are generated at once (it must divide the accumulation)"
FEWER_LOGPROB_ROWS = "lower logprob_rows, or logprob_token_chunk"
LESS_HOST = "lower micro_batch_size or dataloader_workers, offload less, or raise --memory-limit"
SMALLER_SHARE = "lower gpu_memory_utilization, so that the trainer keeps more of the device"
LESS_SERVED = (
    "lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens, or spread a replica over more of the "
    "server's GPUs (tensor_parallel_size)"
)
LARGER_SHARE = "raise gpu_memory_utilization (on a CPU kv_cache_memory_bytes), which is what the cache is cut from"
LARGER_CACHE = (
    "raise gpu_memory_utilization (on a CPU kv_cache_memory_bytes), or lower max_model_len to prompt + completion"
)
SMALLER_MODEL = "set master_weights bf16: the weights alone do not fit"
SMALLER_STATE = "set master_weights bf16: weights, gradients and the optimizer's state do not fit"
BESIDE_STATE = (
    "lower gpu_memory_utilization where vLLM is beside the trainer, else set master_weights bf16: weights, gradients "
    "and the optimizer's state do not fit into what is left"
)
NO_QUANTIZATION = "set rollout_quantization none, which every device can compute"
STUCK_SYNC = (
    "look for the stacks at the end of the log; every training process and the engine must reach each other, and take "
    "part in the sync (rollout_mode colocate needs no connection)"
)
LOOK_UP = "look further up in the log: the cause stands before this"

SUGGESTIONS: Mapping[str, str] = {
    "cache_none": LARGER_SHARE,
    "cache_one_request": LARGER_CACHE,
    "cache_v0": LARGER_CACHE,
    "cache_node_share": "raise gpu_memory_utilization: the share is used up before the cache is cut from it",
    "device_share": (
        "lower gpu_memory_utilization to what the trainer leaves free, or end a stale process on the device"
    ),
    "node_share": "lower gpu_memory_utilization, which is a share of the host's memory on a CPU",
    "node_cache": "lower kv_cache_memory_bytes",
    "profiling": "it is repeated once by itself: another process released device memory while the engine measured",
    "sampler": "lower max_num_seqs (where it is not set: micro_batch_size x steps_per_generation)",
    "wake_up": "lower gpu_memory_utilization: the engine woke up and the trainer held what it had left",
    "batching_cache": "raise continuous_batching_memory",
    "nccl": SMALLER_SHARE,
    "cuda_driver": SMALLER_SHARE,
    "bitsandbytes_memory": SMALLER_SHARE,
    "shared_memory": "lower dataloader_workers, or give the machine a larger /dev/shm",
    "batched_tokens": "lower max_num_seqs to max_num_batched_tokens or less",
    "whole_prefill": "raise max_num_batched_tokens to max_model_len, or turn chunked_prefill on",
    "long_prompt": "raise max_model_len to prompt + completion or more, or leave out longer prompts",
    "engine_model": "set rollout_engine transformers, or install a vLLM that has this model",
    "model_length": "lower max_model_len to what the model has positions for",
    "sleep_mode": "set sleep_level 0",
    "engine_quantization": NO_QUANTIZATION,
    "engine_bf16": "set rollout_dtype fp16",
    "cache_dtype": "set kv_cache_dtype auto",
    "tensor_parallel": "lower tensor_parallel_size to a divisor of the attention heads and of the ranks",
    "same_gpu": (
        "give the rollout server GPUs that nothing trains on (rollout_gpus, CUDA_VISIBLE_DEVICES), or set rollout_mode "
        "colocate"
    ),
    "segments": "set expandable_segments false, or sleep_level 0",
    "eight_bit_engine": "load the model in 4 bit instead of 8, or set rollout_engine transformers",
    "cpu_attention": "set rollout_engine transformers: vLLM's attention on a CPU has no kernel for such heads",
    "sent_shapes": (
        "the weights sent have other shapes than those of the engine, as weights in 4 bit have: set load_in_4bit "
        "false, or rollout_engine transformers"
    ),
    "no_vllm": "set rollout_engine transformers, or install vLLM in the training environment",
    "groups": "rows per generation must be a multiple of num_generations; `autotune space check` shows the nearest",
    "one_generation": "raise num_generations to 2 or more",
    "attention": "set attn_implementation sdpa, or install flash-attn in the training environment",
    "attention_device": "set attn_implementation sdpa: flash attention needs a GPU from Ampere on, and fp16 or bf16",
    "no_bf16": "set precision fp16 or fp32",
    "no_fp16": "set precision bf16 or fp32",
    "no_tf32": "set tf32 false",
    "float8_hardware": "set precision bf16: this device has no FP8",
    "float8_shapes": "set precision bf16: FP8 needs dimensions divisible by 16",
    "no_bitsandbytes": "set optimizer adamw_torch_fused, or install bitsandbytes in the training environment",
    "old_bitsandbytes": "install a newer bitsandbytes in the training environment, or load the model in bf16",
    "no_torchao": "set optimizer adamw_torch_fused, or install torchao in the training environment",
    "no_compiler": "set torch_compile false (and enforce_eager true), or install a C++ compiler",
    "fused": "set optimizer adamw_torch, which is not fused",
    "untested_optimizer": "set optimizer adamw_torch, or zero_stage 0",
    "offload_optimizer": (
        "set offload_optimizer none, or write zero_force_ds_cpu_optimizer false into the DeepSpeed configuration"
    ),
    "deepspeed_clipping": (
        "write gradient_clipping auto in the DeepSpeed configuration, or set max_grad_norm to its gradient_clipping"
    ),
    "deepspeed_values": "write auto for these values in the DeepSpeed configuration",
    "deepspeed_batch": "leave out the batch sizes in the DeepSpeed configuration, or set them to auto",
    "deepspeed_kernel": "set offload_optimizer none, or install a C++ compiler and the CUDA toolkit of PyTorch",
    "sampling_nan": "lower the learning rate, or set precision bf16 or fp32 instead of fp16",
    "loss_scale": "set precision bf16 instead of fp16",
    "reward_count": "return exactly one number for each completion",
    "port": "it is repeated once by itself: another process had taken the port",
    "disk": "free space on the disk that the line names, or mend it; it is repeated once by itself",
    "device_fault": "it is repeated once by itself; if it comes again, the GPU or its driver is at fault",
    "killed": LESS_HOST,
    "raylet_killed": LESS_HOST,
    "client_socket": "look further up in the log for the process that was to answer: it ended first, or never listened",
    "collective_timeout": "look further up in the log for the rank that stopped first",
    "ray_task_memory": SMALLER_BATCH,
    "engine": LOOK_UP,
    "cuda_unknown": LOOK_UP,
    "server_answer": "look further up in the log, and in the rollout server's: it ended before, or could not answer",
    "peer": LOOK_UP,
    "launcher": LOOK_UP,
}
"""Name of a sign -> suggestion; a missing one depends on the phase (``suggest``)."""

BY_REASON: Mapping[FailureReason, str] = {
    FailureReason.TIMEOUT: "give the study more time, or shorten completions",
    FailureReason.HANG: "look at the end of the log for what the processes were waiting on",
    FailureReason.NAN: "use precision bf16 or fp32 instead of fp16, or lower the learning rate",
    FailureReason.QUALITY: "go back to the baseline's numerics",
    FailureReason.REWARD_ERROR: "mend the reward function; the traceback is in the log",
    FailureReason.ILLEGAL: "the framework refuses it: change what the sentence names, or install what it lacks",
    FailureReason.CRASH: "read the end of the log",
    FailureReason.CANCELLED: "",
    FailureReason.INFRA: "it is repeated once by itself",
}

_WEIGHTS = (StartupPart.IMPORT.value, StartupPart.LOAD.value)
_ENGINE = (StartupPart.SERVER.value, StartupPart.ENGINE.value, StartupPart.CAPTURE.value, Phase.SYNC.value)
BY_PHASE: Mapping[str, str] = {
    Phase.GENERATE.value: FEWER_ROWS,
    Phase.LOGPROB.value: FEWER_LOGPROB_ROWS,
    Phase.UPDATE.value: SMALLER_BATCH,
}
"""Phase of a cycle -> suggestion if memory does not suffice in the phase."""


def suggest(
    reason: FailureReason,
    phase: str | Phase | None = None,
    pool: Pool | None = None,
    *,
    by_phase: Mapping[str, str] = BY_PHASE,
) -> str:
    """Returns a suggestion for a failure, for a lack of memory by its phase; empty if there is none."""
    where = phase.value if isinstance(phase, Phase) else phase
    if reason is FailureReason.HANG and where == Phase.SYNC.value:
        return STUCK_SYNC
    if reason is not FailureReason.OOM:
        return BY_REASON.get(reason, "")
    if pool is Pool.ROLLOUT_CACHE:
        return LARGER_SHARE
    if where in _WEIGHTS:
        return SMALLER_MODEL
    if where == StartupPart.FIRST_BATCH.value:  # the optimizer's state is made there, the engine being built already
        return SMALLER_STATE if pool is Pool.HOST else BESIDE_STATE
    if where == StartupPart.SERVER.value and pool is not Pool.HOST:
        return LESS_SERVED
    if where in _ENGINE:
        return LESS_HOST if pool is Pool.HOST else SMALLER_SHARE
    return by_phase.get(where or "", LESS_HOST if pool is Pool.HOST else SMALLER_BATCH)


@dataclass(frozen=True)
class Diagnosis:
    """A failure recognised by its text."""

    reason: FailureReason
    pool: Pool | None = None
    phase: str | None = None
    """``Phase`` or ``StartupPart`` value; ``None`` if the text does not show the phase."""
    message: str = ""
    """The line that was recognised."""
    suggestion: str = ""
    """Suggested next step; empty if it depends on the phase."""
    nearness: Nearness = Nearness.CAUSE
    """Whether the text names the cause, or only the end of a process."""


def diagnose(
    text: str, signs: Sequence[Sign] = SIGNS, suggestions: Mapping[str, str] = SUGGESTIONS
) -> Diagnosis | None:
    """Returns the cause in ``text``; ``None`` if unknown (``read_log``).

    Args:
        signs: known texts, special ones before general ones.
    """
    reading = read_log(text, signs)
    if reading is None:
        return None
    sign = reading.sign
    advice = suggestions.get(sign.name, "")
    return Diagnosis(sign.reason, sign.pool, sign.phase, reading.line[:400], advice, sign.nearness)
