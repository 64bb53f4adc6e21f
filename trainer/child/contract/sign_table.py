"""Table of the error texts of torch, CUDA, vLLM, DeepSpeed, TRL, Ray and the launchers.

Sources: torch 2.13, vLLM 0.31, DeepSpeed 0.19.8, transformers 5.17, TRL 1.16 and torchao 0.18; for Ray, NCCL,
bitsandbytes and vLLM's CUDA allocator, which do not run on a CPU, published logs.
"""

from __future__ import annotations

from typing import Tuple

from .log_lines import Nearness, Sign, echo, illegal, infra, signs_of
from .words import FailureReason, Phase, Pool, StartupPart

OOM = FailureReason.OOM
ENGINE, CAPTURE = StartupPart.ENGINE.value, StartupPart.CAPTURE.value
_host, _device, _cache = (signs_of(OOM, pool) for pool in (Pool.HOST, Pool.DEVICE, Pool.ROLLOUT_CACHE))
_hang = signs_of(FailureReason.HANG, nearness=Nearness.DEATH)
_killed = signs_of(OOM, Pool.HOST, Nearness.DEATH)
_nan = signs_of(FailureReason.NAN)

ENGINE_MEMORY = (
    _cache("cache_none", "No available memory for the cache blocks", phase=ENGINE),
    _cache("cache_one_request", "To serve at least one request with the model… max seq len", phase=ENGINE),
    _cache(
        "cache_v0",
        "max seq len (…) is larger than the maximum number of tokens that can be stored in KV cache",
        phase=ENGINE,
    ),
    _cache(
        "cache_node_share",
        "Available memory on node … allocation is less than requested memory for kv (-",
        "Available memory on node … allocation is less than requested memory for kv (0.0/",
        phase=ENGINE,
    ),
    _device(
        "device_share", "Free memory on device … on startup is less than desired GPU memory utilization", phase=ENGINE
    ),
    _host(
        "node_share", "Available memory on node … on startup is less than desired CPU memory utilization", phase=ENGINE
    ),
    _host("node_cache", "Available memory on node … allocation is less than requested memory for kv (", phase=ENGINE),
    infra("profiling", "Error in memory profiling. Initial free memory", phase=ENGINE),
    _device("sampler", "CUDA out of memory occurred when warming up sampler", phase=CAPTURE),
    _device(
        "wake_up",
        "CUDA Error: out of memory at …cumem_allocator",
        "CUDA Error: invalid argument at …cumem_allocator",  # what mapping into a full device is answered with
    ),
    _cache(
        "batching_cache",
        "Memory footprint … is more than available memory",
        "Invalid values: max_batch_tokens = …, num_blocks = ",
        "No positive solution (root = ",
        "No real solution (discriminant = ",
        "Failed to allocate … blocks for request",
        phase=Phase.GENERATE.value,
    ),
)

MEMORY = (
    _device(
        "nccl", "Cuda failure 2 'out of memory'", "Cuda failure 'out of memory'", "Failed to CUDA calloc async … bytes"
    ),
    _device(
        "cuda",
        "CUDA out of memory",
        "torch.OutOfMemoryError",
        "torch.cuda.OutOfMemoryError",
        "HIP out of memory",
        "NPU out of memory",
    ),
    _device(
        "cuda_driver",
        "CUDA error: out of memory",
        "CUDA Error: out of memory",
        "CUDA driver error: out of memory",
        "HIP error: out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED",
        "Triton Error [CUDA]: out of memory",
    ),
    _device("bitsandbytes_memory", "Error out of memory at line … in file"),
    _host(
        "ray_host",
        "ray.exceptions.OutOfMemoryError",
        "killed due to the node running low on memory",
        "exceeds the memory usage threshold of",
    ),
    _host(
        "kernel",
        "Out of memory: Killed process",
        "Memory cgroup out of memory: Killed process",
        "OOMKilled",
        "oom-kill:",
        "Detected … oom-kill event",
        "Detected … oom_kill event",
    ),
    _host(
        "shared_memory",
        "insufficient shared memory (shm)",
        "dataloader's workers are out of shared memory",
        "unable to write to file </torch_…No space left on device",
        "Error while creating shared memory segment /dev/shm/nccl-",
        "Call to posix_fallocate failed : No space left on device",
    ),
    _host(
        "host",
        "DefaultCPUAllocator: can't allocate memory",
        "DefaultCPUAllocator: not enough memory",
        "Cannot allocate memory",
        "std::bad_alloc",
        "Unable to allocate … for an array",
        "could not create a primitive",  # oneDNN, when its scratch memory is refused
        "libgomp: Thread creation failed",
        "MemoryError",
        # oneDNN has no such kernel, and the caller takes another.
        unless=("could not create a primitive descriptor",),
    ),
)

ENGINE_SETTINGS = (
    illegal("batched_tokens", "max_num_batched_tokens (…) must be greater than or equal to max_num_seqs", phase=ENGINE),
    illegal(
        "whole_prefill",
        "max_num_batched_tokens (…) is smaller than max_model_len",
        "max_num_batched_tokens is smaller than max_model_len",
        phase=ENGINE,
    ),
    illegal(
        "long_prompt", "is longer than the maximum model length of", "is too long to fit into the model (context length"
    ),
    illegal("engine_model", "Model architectures … are not supported for now", phase=ENGINE),
    illegal("model_length", "User-specified max_model_len (…) is greater than the derived max_model_len", phase=ENGINE),
    illegal("sleep_mode", "Sleep mode is not supported on current platform", phase=ENGINE),
    illegal(
        "engine_quantization",
        "The quantization method … is not supported for the current GPU",
        "quantization is currently not supported in",
        "is not supported for quantization method",
        phase=ENGINE,
    ),
    illegal("engine_bf16", "Bfloat16 is only supported on GPUs with compute capability", phase=ENGINE),
    illegal("cache_dtype", "No valid attention backend found for …kv_cache_dtype not supported", phase=ENGINE),
    illegal(
        "tensor_parallel",
        "Total number of attention heads (…) must be divisible by tensor parallel size",
        "tensor_parallel_size (…) must divide world size",
        "vllm_tensor_parallel_size (…) must divide world size",
        "please set tensor_parallel_size (…) to less than max local gpu count",
        "World size (…) is larger than the number of available GPUs",
        "Tensor parallel size (…) cannot be larger than the number of available GPUs",
        "The number of required GPUs exceeds the total number of available GPUs",
        phase=ENGINE,
    ),
    illegal("same_gpu", "Duplicate GPU detected"),
    illegal("segments", "Expandable segments are not compatible with memory pool", phase=ENGINE),
    illegal("eight_bit_engine", "vLLM does not support in-flight 8-bit quantization", phase=ENGINE),
    illegal("cpu_attention", "Unsupported CPU attention configuration: ", phase=ENGINE),
    illegal(
        "sent_shapes",
        "assert param_data.shape == loaded_weight.shape",
        "assert param.size() == loaded_weight.size()",
        "Attempted to load weight (…) into parameter (",
    ),
    illegal("no_vllm", "vLLM is not available and `use_vllm` is set to True", phase=ENGINE),
)

TRAINING_SETTINGS = (
    illegal(
        "groups",
        "must be divisible by num_generations",
        "must be divisible by the number of generations",
        "must be divisible by the global batch size",
    ),
    illegal("one_generation", "GRPO requires at least 2 generations per prompt"),
    illegal(
        "attention", "FlashAttention… cannot be used", "flash_attn… not installed", "does not support Flash Attention"
    ),
    illegal(
        "attention_device",
        "FlashAttention only supports Ampere GPUs or newer",
        "FlashAttention only support fp16 and bf16 data type",
    ),
    illegal("no_bf16", "Your setup doesn't support bf16/gpu", "Type bf16 is not supported on your device"),
    illegal("no_fp16", "Type fp16 is not supported on your device"),
    illegal("no_tf32", "--tf32 requires Ampere"),
    illegal("float8_hardware", "_scaled_mm is only supported on CUDA devices with compute capability"),
    illegal(
        "float8_shapes",
        "Expected both dimensions of mat2 to be divisible by 16",
        "Expected self.size(1) to be divisible by 16",
        "Expected trailing dimension of mat1 to be divisible by 16",
    ),
    illegal("no_bitsandbytes", "You need to install `bitsandbytes`"),
    illegal(
        "old_bitsandbytes",
        "requires the latest version of bitsandbytes",
        "No package metadata was found for bitsandbytes",
    ),
    illegal("no_torchao", "You need to have `torchao"),
    illegal(
        "no_compiler",
        "No working C++ compiler found in",
        "Compiler: … is not found.",
        "Failed to find C compiler. Please specify via CC environment variable",
    ),
    illegal("fused", "`fused=True` requires all the params to be floating point Tensors"),
    illegal("untested_optimizer", "You are using an untested ZeRO Optimizer"),
    illegal("offload_optimizer", "You are using ZeRO-Offload with a client provided optimizer"),
    illegal("deepspeed_clipping", "ds gradient_clipping=… vs hf max_grad_norm="),
    illegal(
        "deepspeed_batch",
        "Check batch related parameters. train_batch_size is not equal",
        "ds train_batch_size=… vs hf",
        "ds train_micro_batch_size_per_gpu=… vs hf",
        "ds gradient_accumulation_steps=… vs hf",
    ),
    illegal("deepspeed_values", "Please correct the following DeepSpeed config values that mismatch"),
    illegal(
        "deepspeed_kernel",
        "Unable to JIT load the … op",
        "CUDA_HOME does not exist, unable to compile CUDA op(s)",
        "Error building extension '",
        ">- DeepSpeed Op Builder: Installed CUDA version … does not match",
    ),
)

OTHER = (
    _nan("sampling_nan", "probability tensor contains either `inf`, `nan`", phase=Phase.GENERATE.value),
    _nan(
        "loss_scale", "Current loss scale already at minimum - cannot decrease scale anymore", phase=Phase.UPDATE.value
    ),
    signs_of(FailureReason.REWARD_ERROR)(
        "reward_count", "The reward function '…' returned … rewards", phase=Phase.REWARD.value
    ),
    infra("port", "EADDRINUSE", "Address already in use", "address already in use"),
    infra(
        "disk",
        *("No space left on device", "Disk quota exceeded", "Read-only file system", "Input/output error"),
        "is the disk full?",
    ),
    infra("device_fault", "uncorrectable ECC error encountered", "CUDA-capable device(s) is/are busy or unavailable"),
)

DEATHS = (
    _killed(
        "killed",
        "Signal 9 (SIGKILL)",
        "exitcode  : -9",
        "exitcode: -9",
        "died with <Signals.SIGKILL",
        "is killed by signal: Killed",
    ),
    _killed(
        "raylet_killed",
        "Workers (tasks / actors) killed due to memory pressure (OOM)",
        unless=("0 Workers (tasks / actors) killed due to memory pressure",),
    ),
    _hang(
        "client_socket",
        "The client socket has timed out after …ms while trying to connect",
        "Timed out after … seconds waiting for clients",
        "Timed out initializing process group in store based barrier",
        "wait timeout after …ms, keys: ",
    ),
    _hang(
        "collective_timeout",
        "Watchdog caught collective operation timeout",
        "watchdog got stuck for … seconds without making progress",
        "due to ProcessGroupNCCL watchdog hang",
        "RPC call to … timed out",
        "Timed out waiting …ms for recv operation to complete",
        "Timed out waiting …ms for send operation to complete",
    ),
)

ECHOES = (
    signs_of(OOM, nearness=Nearness.ECHO)("ray_task_memory", "RayTaskError(OutOfMemoryError)"),
    echo(
        "engine",
        "Engine core initialization failed",
        "Engine process failed to start",
        "Background loop has errored already",
        "Engine loop is not running",
        "EngineCore encountered an issue",
        "EngineDeadError",
        "WorkerProc initialization failed",
        "Frontend process failed during engine core initialization",
        "please check the stack trace above for the root cause",
        phase=ENGINE,
    ),
    echo(
        "cuda_unknown",
        "ncclUnhandledCudaError",
        "unhandled cuda error",
        "ncclSystemError",
        "unhandled system error",
        "ncclInvalidUsage",
        "NCCL error: invalid usage",
        "device-side assert triggered",  # which one, the device has written before
    ),
    echo("server_answer", "The vLLM server can't be reached at", "Request failed: 500"),
    echo(
        "peer",
        "Connection closed by peer",
        "Connection reset by peer",
        "This is typically caused by a remote worker crashing",
        "remote process exited or there was a network error",
        "NCCL communicator was aborted",
        "failed to recv, got 0 bytes",
    ),
    echo(
        "launcher",
        "ActorDiedError",
        "ActorUnavailableError",
        "LocalRayletDiedError",
        "WorkerCrashedError",
        "RayTaskError",
        "ChildFailedError",
        "CalledProcessError",
        "ended with exit code … and told no reason",  # of verl; the reason is in its log
    ),
)

SIGNS: Tuple[Sign, ...] = (*ENGINE_MEMORY, *MEMORY, *ENGINE_SETTINGS, *TRAINING_SETTINGS, *OTHER, *DEATHS, *ECHOES)
"""All signs, in the order of matching within a line."""
