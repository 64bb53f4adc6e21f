"""The texts TRL, torch, vLLM and launchers fail with, and what to try next."""

from __future__ import annotations

from trainer.child.contract import FailureReason, Phase, Pool, StartupPart
from trainer.frameworks.diagnosis import Diagnosis, Sign, read

OOM, CRASH, ILLEGAL, INFRA = FailureReason.OOM, FailureReason.CRASH, FailureReason.ILLEGAL, FailureReason.INFRA
ENGINE = StartupPart.ENGINE.value

SMALLER_BATCH = "lower micro_batch_size (accumulation makes up for it) or turn gradient_checkpointing on"
LESS_HOST = "lower micro_batch_size or dataloader_workers, offload less, or raise --memory-limit"
SMALLER_SHARE = "lower gpu_memory_utilization, so that the trainer keeps more of the device"
LARGER_SHARE = "raise gpu_memory_utilization, or set the engine's maximum length to prompt + completion"

SIGNS = (
    Sign(r"No available memory for the cache blocks", OOM, LARGER_SHARE, Pool.ROLLOUT_CACHE, ENGINE),
    Sign(r"To serve at least one request with the model's max seq len", OOM, LARGER_SHARE, Pool.ROLLOUT_CACHE, ENGINE),
    Sign(
        r"Free memory on device .* on startup is less than desired GPU memory utilization",
        OOM,
        SMALLER_SHARE + "; look for a stale process on the device",
        Pool.DEVICE,
        ENGINE,
    ),
    Sign(
        r"Error in memory profiling\. Initial free memory",
        INFRA,
        "another process released device memory during the engine's start; run it again",
        phase=ENGINE,
    ),
    Sign(
        r"CUDA out of memory occurred when warming up sampler",
        OOM,
        "fewer rows per generation: lower steps_per_generation or micro_batch_size",
        Pool.DEVICE,
        ENGINE,
    ),
    Sign(
        r"max_num_batched_tokens .* must be greater than or equal to max_num_seqs",
        ILLEGAL,
        "fewer rows per generation: lower steps_per_generation",
        phase=ENGINE,
    ),
    Sign(
        r"User-specified max_model_len .* is greater than the derived max_model_len",
        ILLEGAL,
        "shorten prompts or completions to what the model can hold",
        phase=ENGINE,
    ),
    Sign(r"ncclUnhandledCudaError|Cuda failure 2 'out of memory'", OOM, SMALLER_SHARE, Pool.DEVICE),
    Sign(r"CUDA out of memory|CUDA error: out of memory|torch\.OutOfMemoryError", OOM, SMALLER_BATCH, Pool.DEVICE),
    Sign(r"DefaultCPUAllocator: (can't allocate|not enough) memory|^MemoryError", OOM, LESS_HOST, Pool.HOST),
    Sign(r"std::bad_alloc|Cannot allocate memory|libgomp: Thread creation failed", OOM, LESS_HOST, Pool.HOST),
    Sign(r"ray\.exceptions\.OutOfMemoryError", OOM, LESS_HOST, Pool.HOST),
    Sign(
        r"Signal 9 \(SIGKILL\)|exitcode\s*: -9|died with <Signals\.SIGKILL|oom-kill|Out of memory: Killed process",
        OOM,
        LESS_HOST,
        Pool.HOST,
    ),
    Sign(
        r"The reward function '.*' returned \d+ rewards",
        FailureReason.REWARD_ERROR,
        "return exactly one number for each completion",
        phase=Phase.REWARD,
    ),
    Sign(
        r"must be divisible by (num_generations|the number of generations|the global batch size)",
        ILLEGAL,
        "rows per generation must be a multiple of num_generations; `autotune space check` shows the nearest",
    ),
    Sign(r"GRPO requires at least 2 generations per prompt", ILLEGAL, "set num_generations to 2 or more"),
    Sign(
        r"FlashAttention.* cannot be used|flash_attn.* not installed",
        ILLEGAL,
        "choose attn_implementation sdpa, or install flash-attn in the training environment",
    ),
    Sign(
        r"Engine core initialization failed|EngineCore encountered an issue|EngineDeadError",
        CRASH,
        "the cause stands further up in the log",
        phase=ENGINE,
        wrapper=True,
    ),
    Sign(
        r"ActorDiedError|WorkerCrashedError|ChildFailedError|CalledProcessError",
        CRASH,
        "the cause stands further up in the log",
        wrapper=True,
    ),
)

SUGGESTIONS: dict[FailureReason, str] = {
    FailureReason.TIMEOUT: "give the study more time, or shorten completions",
    FailureReason.HANG: "look at the end of the log for what the processes were waiting on",
    FailureReason.NAN: "use precision bf16 or fp32 instead of fp16, or lower the learning rate",
    FailureReason.QUALITY: "go back to the baseline's numerics",
    FailureReason.REWARD_ERROR: "mend the reward function; the traceback is in the log",
    FailureReason.ILLEGAL: "run `autotune space check`",
    FailureReason.CRASH: "read the end of the log",
    FailureReason.CANCELLED: "",
    FailureReason.INFRA: "it is repeated once by itself",
}


def diagnose(text: str) -> Diagnosis | None:
    """What a log text says went wrong: the last cause in it, or ``None`` if nothing is recognised."""
    return read(text, SIGNS)


def suggest(reason: FailureReason, phase: str | Phase | None = None, pool: Pool | None = None) -> str:
    """One suggestion for a failure of this kind; empty if there is nothing to say."""
    if reason is not OOM:
        return SUGGESTIONS.get(reason, "")
    where = phase.value if isinstance(phase, Phase) else phase
    if pool is Pool.ROLLOUT_CACHE:
        return LARGER_SHARE
    if where == Phase.GENERATE.value:
        return "fewer rows per generation: lower steps_per_generation (it must divide the accumulation)"
    if where == Phase.LOGPROB.value:
        return "lower logprob_rows, or the log-prob chunks"
    if where in (StartupPart.IMPORT.value, StartupPart.LOAD.value, ENGINE):
        return "the model alone does not fit: master_weights bf16, or a larger limit"
    return LESS_HOST if pool is Pool.HOST and where is None else SMALLER_BATCH
