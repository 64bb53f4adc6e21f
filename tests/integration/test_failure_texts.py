"""The known failure texts are those of the installed frameworks.

If this fails after an upgrade: look the sentence up in the new sources and change the table with it.
"""

from __future__ import annotations

import mmap
import subprocess
from pathlib import Path

import pytest

from tests.support.trl_trials import training_python
from trainer.child.contract import SIGNS

pytestmark = pytest.mark.trl

PIECES = (
    ("vllm/v1/core/kv_cache_utils.py", "No available memory for the cache blocks"),
    ("vllm/v1/core/kv_cache_utils.py", "To serve at least one request with the model's max seq len"),
    ("vllm/v1/worker/utils.py", "is less than desired GPU memory utilization"),
    ("vllm/v1/worker/cpu_worker.py", "is less than desired CPU memory utilization"),
    ("vllm/v1/worker/cpu_worker.py", " allocation is less than requested memory for kv "),
    ("vllm/v1/worker/gpu_worker.py", "Error in memory profiling. "),
    ("vllm/v1/worker/gpu_worker.py", "Initial free memory "),
    ("vllm/v1/worker/gpu_model_runner.py", "CUDA out of memory occurred when warming up sampler with "),
    ("vllm/config/scheduler.py", "be greater than or equal to max_num_seqs"),
    ("vllm/config/scheduler.py", "smaller than max_model_len"),
    ("vllm/config/model.py", "User-specified max_model_len ("),
    ("vllm/config/model.py", "than the derived max_model_len"),
    ("vllm/config/model.py", "Sleep mode is not supported on current platform"),
    ("vllm/config/model.py", " must be divisible by tensor parallel size "),
    ("vllm/config/vllm.py", "is not supported for the current GPU. Minimum "),
    ("vllm/config/vllm.py", "is not supported for quantization "),
    ("vllm/platforms/interface.py", "quantization is currently not supported in "),
    ("vllm/platforms/cuda.py", "Bfloat16 is only supported on GPUs "),
    ("vllm/platforms/cuda.py", "No valid attention backend found for "),
    ("vllm/v1/attention/backend.py", "kv_cache_dtype not supported"),
    ("vllm/v1/engine/utils.py", "Engine core initialization failed. "),
    ("vllm/v1/engine/utils.py", "Frontend process failed during engine core initialization. "),
    ("vllm/v1/engine/exceptions.py", "EngineCore encountered an issue. "),
    ("vllm/v1/executor/multiproc_executor.py", "WorkerProc initialization failed "),
    ("vllm/v1/executor/multiproc_executor.py", " stack trace above for the root cause"),
    ("trl/generation/vllm_generation.py", "vLLM is not available and `use_vllm` is set to True"),
    ("trl/generation/vllm_generation.py", ") must divide world size "),
    ("trl/trainer/grpo_config.py", ") must be divisible by num_generations "),
    ("trl/trainer/grpo_config.py", ") must be divisible by the global batch size "),
    ("trl/trainer/grpo_config.py", "GRPO requires at least 2 generations per prompt"),
    ("trl/trainer/grpo_trainer.py", "The reward function '"),
    ("transformers/modeling_utils.py", "but it cannot be used due to the following error"),
    ("transformers/modeling_utils.py", " does not support Flash Attention "),
    ("transformers/training_args.py", "Your setup doesn't support bf16/gpu"),
    ("transformers/training_args.py", "--tf32 requires Ampere"),
    ("transformers/trainer_optimizer.py", "You need to install `bitsandbytes`"),
    ("transformers/trainer_optimizer.py", "You need to have `torchao"),
    ("transformers/integrations/deepspeed.py", "Please correct the following DeepSpeed config values that mismatch"),
    ("transformers/generation/continuous_batching/cache.py", "Memory footprint "),
    ("transformers/generation/continuous_batching/cache.py", " is more than available memory "),
    ("transformers/generation/continuous_batching/cache.py", "Invalid values: max_batch_tokens = "),
    ("transformers/generation/continuous_batching/cache.py", "No positive solution (root = "),
    ("transformers/generation/continuous_batching/cache.py", "No real solution (discriminant = "),
    ("transformers/generation/continuous_batching/cache.py", "Failed to allocate "),
    ("deepspeed/runtime/engine.py", "You are using an untested ZeRO Optimizer"),
    ("deepspeed/runtime/engine.py", "Type bf16 is not supported on your device"),
    ("deepspeed/runtime/engine.py", "Type fp16 is not supported on your device"),
    ("deepspeed/runtime/config.py", "Check batch related parameters. train_batch_size is not equal "),
    ("deepspeed/runtime/fp16/loss_scaler.py", "Current loss scale already at minimum - cannot decrease scale anymore"),
    ("deepspeed/ops/op_builder/builder.py", "Unable to JIT load the "),
    ("deepspeed/ops/op_builder/builder.py", "CUDA_HOME does not exist, unable to compile CUDA op(s)"),
    ("deepspeed/ops/op_builder/builder.py", ">- DeepSpeed Op Builder: Installed CUDA version "),
    ("torch/_inductor/exc.py", "No working C++ compiler found in "),
    ("torch/_inductor/exc.py", " is not found."),
    ("torch/utils/cpp_extension.py", "Error building extension '"),
    ("torch/optim/optimizer.py", "`fused=True` requires all the params to be floating point Tensors of "),
    ("torch/_meta_registrations.py", "Expected both dimensions of mat2 to be divisible by 16 but got "),
    ("torch/_meta_registrations.py", "Expected self.size(1) to be divisible by 16"),
    ("torch/distributed/elastic/multiprocessing/errors/__init__.py", "exitcode  : "),
    ("torch/lib/libc10.so", "DefaultCPUAllocator: can't allocate memory"),
    ("torch/lib/libtorch_cpu.so", "could not create a primitive"),
    ("torch/lib/libtorch_cpu.so", "Connection closed by peer"),
    ("torch/lib/libtorch_cpu.so", "ms for recv operation to complete"),
    ("torch/lib/libtorch_cpu.so", "This is typically caused by a remote worker crashing"),
    ("torch/lib/libtorch_cpu.so", "unable to write to file <"),
    ("torch/lib/libtorch_cpu.so", "EADDRINUSE"),
    ("torch/lib/libtorch_python.so", "is killed by signal: "),
    ("torch/lib/libtorch_python.so", "dataloader's workers are out of shared memory"),
    ("torch/lib/libtorch_python.so", "insufficient shared memory (shm)"),
)


@pytest.fixture(scope="module")
def packages() -> Path:
    """Where the training environment keeps its packages."""
    asked = [training_python(), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


@pytest.mark.parametrize("name", sorted({name for name, _ in PIECES}))
def test_the_installed_sources_write_them(packages: Path, name: str) -> None:
    missing = []
    with (packages / name).open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as held:
        missing = [piece for where, piece in PIECES if where == name and held.find(piece.encode()) < 0]
    assert not missing


def test_every_piece_belongs_to_the_table() -> None:
    """A piece nobody looks for would keep this test green for nothing."""
    words = [part.strip() for sign in SIGNS for text in sign.texts for part in text.split("…")]
    for _, piece in PIECES:
        assert any(piece.strip() in word or (len(word) > 9 and word in piece) for word in words), piece
