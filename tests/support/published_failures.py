"""Failures that a CPU cannot produce, in the words of published logs: of older vLLM, CUDA, NCCL, Ray and others."""

from __future__ import annotations

from tests.support.failure_row import DEVICE, HOST, ILLEGAL, INFRA, OOM, Row

_SHARE, _SIZE, _SHM = "lower gpu_memory_utilization", "lower tensor_parallel_size", "larger /dev/shm"

PUBLISHED = (
    Row("Failed to CUDA calloc async 608 bytes", OOM, DEVICE, None, _SHARE),
    Row("RuntimeError: CUDA driver error: out of memory", OOM, DEVICE, None, _SHARE),
    Row("torch.AcceleratorError: HIP error: out of memory", OOM, DEVICE, None, _SHARE),
    Row("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", OOM, DEVICE, None, _SHARE),
    Row("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2 GiB.", OOM, DEVICE),
    Row(
        "Memory cgroup out of memory: Killed process 4711 (python) total-vm:250000000kB, anon-rss:130000000kB",
        OOM,
        HOST,
    ),
    Row("container trainer terminated, reason OOMKilled, exit code 137", OOM, HOST),
    Row("1 worker(s) were killed due to the node running low on memory.", OOM, HOST),
    Row(
        "Memory on the node (IP: 10.1.2.3, ID: 9) where the task was running was 32.91GB / 33.28GB (0.988698), which "
        "exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: 7)",
        OOM,
        HOST,
    ),
    Row("Error while creating shared memory segment /dev/shm/nccl-Qz (size 9637888)", OOM, HOST, None, _SHM),
    Row("Call to posix_fallocate failed : No space left on device", OOM, HOST, None, _SHM),
    Row(
        "ValueError: The decoder prompt (length 4200) is longer than the maximum model length of 4096. Make sure that",
        ILLEGAL,
        try_="raise max_model_len",
    ),
    Row(
        "ValueError: The prompt (total length 5000) is too long to fit into the model (context length 4096).",
        ILLEGAL,
        try_="raise max_model_len",
    ),
    Row(
        "ValueError: Enable chunked prefill, max_num_batched_tokens is smaller than max_model_len, please increase",
        ILLEGAL,
        None,
        "engine",
        "raise max_num_batched_tokens",
    ),
    Row(
        "ValueError: Model architectures ['NewForCausalLM'] are not supported for now. Supported architectures: dict_",
        ILLEGAL,
        None,
        "engine",
        "rollout_engine transformers",
    ),
    *(
        Row(text, ILLEGAL, None, "engine", _SIZE)
        for text in (
            "ValueError: vllm_tensor_parallel_size (3) must divide world size (8) evenly.",
            "AssertionError: please set tensor_parallel_size (8) to less than max local gpu count (4)",
            "ValueError: World size (8) is larger than the number of available GPUs (4) in this node.",
            "ValueError: Tensor parallel size (8) cannot be larger than the number of available GPUs (4).",
            "ValueError: The number of required GPUs exceeds the total number of available GPUs in the cluster.",
        )
    ),
    Row("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 53000", ILLEGAL, try_="rollout_gpus"),
    Row("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", ILLEGAL, try_="attn_implementation sdpa"),
    Row("RuntimeError: FlashAttention only support fp16 and bf16 data type", ILLEGAL, try_="attn_implementation sdpa"),
    Row(
        "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip",
        ILLEGAL,
        try_="newer bitsandbytes",
    ),
    Row("No package metadata was found for bitsandbytes", ILLEGAL, try_="newer bitsandbytes"),
    Row(
        "ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer (<class 'AdamW'>) which in",
        ILLEGAL,
        try_="offload_optimizer none",
    ),
    Row("OSError: [Errno 28] No space left on device: '/tmp/out/checkpoint-10'", INFRA, try_="free space"),
    Row("OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/huggingface/hub'", INFRA, try_="free space"),
    Row("OSError: [Errno 30] Read-only file system: '/root/.cache/torch'", INFRA, try_="free space"),
    Row("OSError: [Errno 5] Input/output error", INFRA, try_="free space"),
    Row("OSError: metrics.jsonl: wrote 0 of 412 bytes; is the disk full?", INFRA, try_="free space"),
    Row("RuntimeError: CUDA error: uncorrectable ECC error encountered", INFRA, try_="repeat"),
    Row("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", INFRA, try_="repeat"),
)

PUBLISHED_TIMEOUTS = (
    "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/2 clients joined.",
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: barrier:1",
    "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
    "[PG ID 0 PG GUID 0(default_pg) Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making "
    "progress in monitoring enqueued collectives.",
    "Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
    "TimeoutError: RPC call to sample_tokens timed out.",
)

PUBLISHED_ECHOES = (
    "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.",
    "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find it",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    "NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
    "RuntimeError: CUDA error: device-side assert triggered",
    "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 240.0 seconds.",
    "Exception: Request failed: 500, Internal Server Error",
    "ray.exceptions.ActorUnavailableError: The actor 12ab is unavailable: The actor is temporarily unavailable",
    "ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for more information.",
)
