"""Failures as they are really written, one or more for every known text; the tests read them from here."""

from __future__ import annotations

from tests.support.failure_row import CACHE, DEVICE, HOST, ILLEGAL, INFRA, NAN, OOM, REWARD, Row
from tests.support.published_failures import PUBLISHED, PUBLISHED_ECHOES, PUBLISHED_TIMEOUTS

ENGINE = (
    Row(
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
        "engine (this flag also controls CPU memory reservation on the CPU backend, despite its name). See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.",
        OOM,
        CACHE,
        "engine",
        "raise gpu_memory_utilization",
    ),
    Row(
        "To serve at least one request with the model's max seq len (32768), (3.5 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (1.2 GiB). Based on the available memory, the estimated maximum "
        "model length is 11232. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.",
        OOM,
        CACHE,
        "engine",
        "lower max_model_len",
    ),
    Row(
        "To serve at least one request with the models's max seq len (16384), (7.00 GB KV cache is needed, which is "
        "larger than the available KV cache memory (2.31 GB). Based on the available memory,  the estimated maximum "
        "model length is 5392. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.",
        OOM,
        CACHE,
        "engine",
        "lower max_model_len",
    ),
    Row(
        "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache "
        "(21456). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        OOM,
        CACHE,
        "engine",
        "lower max_model_len",
    ),
    Row(
        "Free memory on device cuda:0 (21.3/79.1 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.19 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        OOM,
        DEVICE,
        "engine",
        "lower gpu_memory_utilization",
    ),
    Row(
        "Available memory on node 0 (3.1/15.6 GiB) on startup is less than desired CPU memory utilization "
        "(0.9, 14.04 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls the fraction of CPU",
        OOM,
        HOST,
        "engine",
        "lower gpu_memory_utilization",
    ),
    Row(
        "Available memory on node 0 (3.1/15.6 GiB) on kv cache allocation is less than requested memory for kv "
        "(8.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used by others.",
        OOM,
        HOST,
        "engine",
        "lower kv_cache_memory_bytes",
    ),
    Row(
        "Available memory on node 0 (3.1/15.6 GiB) on kv cache allocation is less than requested memory for kv "
        "(-0.42/1.56 GiB). Reduce CPU memory used by other processes.",
        OOM,
        CACHE,
        "engine",
        "raise gpu_memory_utilization",
    ),
    Row(
        "Available memory on node 0 (3.1/15.6 GiB) on kv cache allocation is less than requested memory for kv "
        "(0.0/1.56 GiB). Reduce CPU memory used by other processes.",
        OOM,
        CACHE,
        "engine",
        "raise gpu_memory_utilization",
    ),
    Row(
        "Error in memory profiling. Initial free memory 70.1 GiB, current free memory 71.4 GiB. This happens when "
        "other processes sharing the same container release GPU memory while vLLM is profiling",
        INFRA,
        None,
        "engine",
        "repeat",
    ),
    Row(
        "CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        OOM,
        DEVICE,
        "capture",
        "lower max_num_seqs",
    ),
    Row(
        "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139",
        OOM,
        DEVICE,
        None,
        "lower gpu_memory_utilization",
    ),
    Row(
        "CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:88",
        OOM,
        DEVICE,
        None,
        "lower gpu_memory_utilization",
    ),
    Row(
        "Expandable segments are not compatible with memory pool. Please track the pytorch issue for the latest.",
        ILLEGAL,
        None,
        "engine",
        "expandable_segments false",
    ),
    Row("vLLM does not support in-flight 8-bit quantization.", ILLEGAL, None, "engine", "4 bit instead of 8"),
    Row("Unsupported CPU attention configuration: head_dim=24", ILLEGAL, None, "engine", "rollout_engine transformers"),
    Row("    assert param_data.shape == loaded_weight.shape", ILLEGAL, None, None, "weights in 4 bit"),
    Row("    assert param.size() == loaded_weight.size()", ILLEGAL, None, None, "weights in 4 bit"),
    Row(
        "Attempted to load weight (torch.Size([64, 1])) into parameter (torch.Size([8, 16]))",
        ILLEGAL,
        None,
        None,
        "weights in 4 bit",
    ),
    Row(
        "1 validation error for SchedulerConfig\n  Value error, max_num_batched_tokens (4096) must be greater than or "
        "equal to max_num_seqs (8192). [type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]",
        ILLEGAL,
        None,
        "engine",
        "lower max_num_seqs",
    ),
    Row(
        "max_num_batched_tokens (2048) is smaller than max_model_len (4096). This effectively limits the maximum",
        ILLEGAL,
        None,
        "engine",
        "raise max_num_batched_tokens",
    ),
    Row(
        "User-specified max_model_len (8192) is greater than the derived max_model_len "
        "(max_position_embeddings=4096 or model_max_length=None in model's config.json).",
        ILLEGAL,
        None,
        "engine",
        "lower max_model_len",
    ),
    Row("Sleep mode is not supported on current platform.", ILLEGAL, None, "engine", "sleep_level 0"),
    Row(
        "The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current: 80.",
        ILLEGAL,
        None,
        "engine",
        "rollout_quantization none",
    ),
    Row("fp8 quantization is currently not supported in cpu.", ILLEGAL, None, "engine", "rollout_quantization none"),
    Row(
        "torch.float32 is not supported for quantization method fp8. Supported dtypes: [torch.bfloat16]",
        ILLEGAL,
        None,
        "engine",
        "rollout_quantization none",
    ),
    Row(
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has 7.5.",
        ILLEGAL,
        None,
        "engine",
        "rollout_dtype fp16",
    ),
    Row(
        "No valid attention backend found for cuda with AttentionSelectorConfig(...). Reasons: {FLASH_ATTN: "
        "[kv_cache_dtype not supported]}.",
        ILLEGAL,
        None,
        "engine",
        "kv_cache_dtype auto",
    ),
    Row(
        "Total number of attention heads (14) must be divisible by tensor parallel size (4).",
        ILLEGAL,
        None,
        "engine",
        "lower tensor_parallel_size",
    ),
    Row(
        "tensor_parallel_size (4) must divide world size (2) evenly.",
        ILLEGAL,
        None,
        "engine",
        "lower tensor_parallel_size",
    ),
    Row(
        "vLLM is not available and `use_vllm` is set to True. Please install vLLM with `pip install trl[vllm]`",
        ILLEGAL,
        None,
        "engine",
        "rollout_engine transformers",
    ),
)

BATCHING = tuple(
    Row(text, OOM, CACHE, "generate", "raise continuous_batching_memory")
    for text in (
        "Memory footprint 2204108 is more than available memory 1048576",
        "Invalid values: max_batch_tokens = 0, num_blocks = 0",
        "No positive solution (root = -3.0)",
        "No real solution (discriminant = -8.0)",
        "Failed to allocate 4 blocks for request row_3",
    )
)

MEMORY = (
    Row(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.2 GiB",
        OOM,
        DEVICE,
    ),
    Row("torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory", OOM, DEVICE),
    Row("torch.cuda.OutOfMemoryError: Allocation on device", OOM, DEVICE),
    Row("HIP out of memory. Tried to allocate 2.00 GiB", OOM, DEVICE),
    Row("NPU out of memory. Tried to allocate 3.00 GiB (NPU 1; 60.97 GiB total capacity)", OOM, DEVICE),
    Row(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        OOM,
        DEVICE,
        None,
        "lower gpu_memory_utilization",
    ),
    Row("CUDA Error: out of memory", OOM, DEVICE, None, "lower gpu_memory_utilization"),
    Row("cuModuleLoadData failed: CUDA_ERROR_OUT_OF_MEMORY", OOM, DEVICE, None, "lower gpu_memory_utilization"),
    Row(
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        OOM,
        DEVICE,
        None,
        "lower gpu_memory_utilization",
    ),
    Row("Triton Error [CUDA]: out of memory", OOM, DEVICE, None, "lower gpu_memory_utilization"),
    Row(
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:93, unhandled cuda error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.27.5\nncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\nCuda failure 2 'out of memory'",
        OOM,
        DEVICE,
        None,
        "lower gpu_memory_utilization",
    ),
    Row("NCCL WARN Cuda failure 'out of memory'", OOM, DEVICE, None, "lower gpu_memory_utilization"),
    Row("Error out of memory at line 380 in file /src/csrc/pythonInterface.cpp", OOM, DEVICE, None, "lower"),
    Row(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node "
        "was 60.8GB / 62.8GB (0.96), which exceeds the memory usage threshold of 0.95.",
        OOM,
        HOST,
    ),
    Row("Task was killed due to the node running low on memory.", OOM, HOST),
    Row(
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=7)\n"
        '  File "dp_actor.py", line 9, in update\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB',
        OOM,
        DEVICE,
    ),
    Row("Out of memory: Killed process 4711 (python) total-vm:9000kB, anon-rss:8000kB", OOM, HOST),
    Row("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/", OOM, HOST),
    Row("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.", OOM, HOST),
    Row("slurmstepd: error: Detected 1 oom-kill event(s) in step 7.batch", OOM, HOST),
    Row(
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        OOM,
        HOST,
        None,
        "lower dataloader_workers",
    ),
    Row(
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
        "shared memory. Please try to raise your shared memory limit.",
        OOM,
        HOST,
        None,
        "lower dataloader_workers",
    ),
    Row(
        "unable to write to file </torch_7_2218_0>: No space left on device (28)",
        OOM,
        HOST,
        None,
        "lower dataloader_workers",
    ),
    Row(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 268435456 bytes. Error code 12 (Cannot allocate memory)",
        OOM,
        HOST,
    ),
    Row("DefaultCPUAllocator: not enough memory: you tried to allocate 268435456 bytes.", OOM, HOST),
    Row("mmap failed: Cannot allocate memory", OOM, HOST),
    Row("terminate called after throwing an instance of 'std::bad_alloc'", OOM, HOST),
    Row("Unable to allocate 1.5 GiB for an array with shape (402653184,) and data type float32", OOM, HOST),
    Row("could not create a primitive", OOM, HOST),
    Row("libgomp: Thread creation failed: Resource temporarily unavailable", OOM, HOST),
    Row("MemoryError", OOM, HOST),
)

TRAINING = (
    Row("generation_batch_size (3) must be divisible by num_generations (8).", ILLEGAL, None, None, "num_generations"),
    Row("20 must be divisible by the number of generations per prompt (8)", ILLEGAL, None, None, "num_generations"),
    Row(
        "generation_batch_size (6) must be divisible by the global batch size (4).",
        ILLEGAL,
        None,
        None,
        "num_generations",
    ),
    Row(
        "GRPO requires at least 2 generations per prompt to calculate the advantages. You provided 1",
        ILLEGAL,
        None,
        None,
        "raise num_generations",
    ),
    Row(
        "FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package",
        ILLEGAL,
        None,
        None,
        "attn_implementation sdpa",
    ),
    Row("flash_attn seems to be not installed", ILLEGAL, None, None, "attn_implementation sdpa"),
    Row("XModel does not support Flash Attention 2 yet.", ILLEGAL, None, None, "attn_implementation sdpa"),
    Row(
        "Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU.",
        ILLEGAL,
        None,
        None,
        "precision fp16 or fp32",
    ),
    Row("Type bf16 is not supported on your device.", ILLEGAL, None, None, "precision fp16 or fp32"),
    Row("Type fp16 is not supported on your device.", ILLEGAL, None, None, "precision bf16 or fp32"),
    Row("--tf32 requires Ampere or a newer GPU arch, cuda>=11 and torch>=1.7", ILLEGAL, None, None, "tf32 false"),
    Row(
        "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+",
        ILLEGAL,
        None,
        None,
        "precision bf16",
    ),
    Row(
        "Expected both dimensions of mat2 to be divisible by 16 but got torch.Size([257, 64])",
        ILLEGAL,
        None,
        None,
        "precision bf16",
    ),
    Row(
        "Expected self.size(1) to be divisible by 16, but got self.size(1)=257",
        ILLEGAL,
        None,
        None,
        "precision bf16",
    ),
    Row(
        "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (7x9).",
        ILLEGAL,
        None,
        None,
        "precision bf16",
    ),
    Row(
        "You need to install `bitsandbytes` in order to use bitsandbytes optimizers: `pip install -U bitsandbytes`",
        ILLEGAL,
        None,
        None,
        "optimizer adamw_torch_fused",
    ),
    Row(
        "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in "
        "torch._inductor.config.cpp.cxx: (None, 'g++')",
        ILLEGAL,
        try_="set torch_compile false",
    ),
    Row("InvalidCxxCompiler: Compiler: g++ is not found.", ILLEGAL, try_="install a C++ compiler"),
    Row(
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set "
        "triton.knobs.build.impl.",
        ILLEGAL,
        try_="set torch_compile false",
    ),
    Row(
        "You need to have `torchao>=0.4.0` in order to use torch 4-bit optimizers. Install it with pip",
        ILLEGAL,
        None,
        None,
        "optimizer adamw_torch_fused",
    ),
    Row(
        "`fused=True` requires all the params to be floating point Tensors of supported devices: ['mps', 'cuda']",
        ILLEGAL,
        None,
        None,
        "optimizer adamw_torch",
    ),
    Row(
        'You are using an untested ZeRO Optimizer. Please add <"zero_allow_untested_optimizer": true>',
        ILLEGAL,
        None,
        None,
        "optimizer adamw_torch",
    ),
    Row(
        "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
        "world_size 8 != 2 * 2 * 1",
        ILLEGAL,
        None,
        None,
        "auto",
    ),
    *(
        Row(
            "Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
            f"- ds {key} vs hf {other}\nThe easiest method is to set these DeepSpeed config values to 'auto'.",
            ILLEGAL,
            None,
            None,
            words,
        )
        for key, other, words in (
            ("train_batch_size=8", "train_batch_size (calculated)=4", "leave out the batch sizes"),
            ("train_micro_batch_size_per_gpu=2", "per_device_train_batch_size=4", "leave out the batch sizes"),
            ("gradient_accumulation_steps=2", "gradient_accumulation_steps=4", "leave out the batch sizes"),
            ("gradient_clipping=0.5", "max_grad_norm=1.0", "gradient_clipping auto"),
            ("optimizer.params.lr=0.001", "learning_rate=1e-06", "write auto"),
        )
    ),
    Row(
        "Unable to JIT load the cpu_adam op due to it not being compatible due to hardware/software issue. None",
        ILLEGAL,
        None,
        None,
        "offload_optimizer none",
    ),
    Row(
        "CUDA_HOME does not exist, unable to compile CUDA op(s)",
        ILLEGAL,
        None,
        None,
        "offload_optimizer none",
    ),
    Row("Error building extension 'cpu_adam'", ILLEGAL, None, None, "offload_optimizer none"),
    Row(
        ">- DeepSpeed Op Builder: Installed CUDA version 12.4 does not match the version torch was compiled with 13.0",
        ILLEGAL,
        None,
        None,
        "offload_optimizer none",
    ),
)

OTHER = (
    Row(
        "probability tensor contains either `inf`, `nan` or element < 0",
        NAN,
        None,
        "generate",
        "lower the learning rate",
    ),
    Row(
        "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        NAN,
        None,
        "update",
        "precision bf16",
    ),
    Row(
        "The reward function 'accuracy' returned 3 rewards, but 8 were expected (one per prompt-completion pair).",
        REWARD,
        None,
        "reward",
        "exactly one number",
    ),
    Row(
        "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, "
        "name: EADDRINUSE, message: address already in use",
        INFRA,
        None,
        None,
        "repeat",
    ),
    Row("[Errno 98] Address already in use", INFRA, None, None, "repeat"),
    Row("bind failed: address already in use", INFRA, None, None, "repeat"),
)

CAUSES = (*ENGINE, *BATCHING, *MEMORY, *TRAINING, *OTHER, *PUBLISHED)
"""Each says itself what went wrong, as an exception in the child or as a line of a log."""

KILLS = (
    "  exitcode  : -9 (pid: 12)",
    "traceback : Signal 9 (SIGKILL) received by PID 12",
    "E1120 torch/distributed/elastic failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: python",
    "subprocess.CalledProcessError: Command '['python', 'x.py']' died with <Signals.SIGKILL: 9>.",
    "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. ",
)
"""A process was killed; that it was for want of memory, only the kernel can tell."""

RAYLET = (
    "(raylet) [2026-01-03 04:05:06,117 E 7 7] (raylet) node_manager.cc:3069: 3 Workers (tasks / actors) killed due to "
    "memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 9, IP: 10.1.1.1) over the last time"
)
"""Ray's memory monitor killed workers."""

TIMEOUTS = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
    "(10.1.2.3, 29501).",
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)",
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to "
    "complete",
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:91] Timed out waiting 1800000ms for send operation to "
    "complete",
    *PUBLISHED_TIMEOUTS,
)
"""One rank is stuck and another has waited long enough."""

ECHOES = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}",
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "vllm.v1.engine.exceptions.EngineDeadError: the engine is gone",
    "WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
    "Frontend process failed during engine core initialization. See root cause above. Failed frontend proc(s): {}",
    "Worker failed with error 'oh', please check the stack trace above for the root cause",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
    "NCCL error in: NCCLUtils.cpp:93, unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:34567",
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error: Connection reset by peer",
    "failed. This is typically caused by a remote worker crashing.",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exited or there was a network "
    "error: remote process exited or there was a network error",
    "NCCL communicator was aborted on rank 0.",
    "recvValue failed on SocketImpl(fd=7): failed to recv, got 0 bytes",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.",
    "ray.exceptions.RayTaskError(ValueError): ray::WorkerDict.init_model() (pid=7)",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "subprocess.CalledProcessError: Command '['python', 'x.py']' returned non-zero exit status 1.",
    "VerlFailedError: verl ended with exit code 1 and told no reason",
    *PUBLISHED_ECHOES,
)
"""Only that something else failed."""
