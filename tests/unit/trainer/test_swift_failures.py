"""Each of ms-swift's own failures is recognised by its text, as ms-swift 4.6.0 writes it."""

from __future__ import annotations

import pytest

from trainer.child.contract import FailureReason, Phase, Pool
from trainer.frameworks import ms_swift
from trainer.frameworks.ms_swift.failures import ALL, OWN, SUGGESTIONS

TEXTS = {
    "swift_groups": [
        "ValueError: generation_batch_size (6) must be divisible by the global batch size (4).",
        "ValueError: generation_batch_size (9) must equal per_device_train_batch_size * world_size * "
        "steps_per_generation = 8.",
        "ValueError: generation_batch_size (3) must be evenly divisible by num_generations (4). Valid values: [3].",
        "ValueError: steps_per_generation must be > 0, got 0.",
    ],
    "swift_evaluation": [
        "ValueError: The global eval batch size (1 x 3) must be evenly divisible by num_generations_eval (8). "
        "Valid values: [1, 3]."
    ],
    "swift_one_generation": ["ValueError: num_generations must be greater than 1 for GRPO"],
    "swift_mode": [
        "ValueError: vllm_mode is required when use_vllm is true",
        "ValueError: vllm_mode is not supported when use_vllm is false",
    ],
    "swift_async": ["AssertionError: async generate require vllm_mode == server, "],
    "swift_processes": [
        "ValueError: GRPO with vLLM is not compatible with `device_map`. Please set NPROC_PER_NODE equal to "
        "num_processes.",
        "ValueError: DeepSpeed is not compatible with `device_map`. n_gpu: 2, local_world_size: 1.",
    ],
    "swift_liger": ["ValueError: Liger loss does not support two-sided GRPO loss yet."],
    "swift_liger_version": [
        "ValueError: Please update liger-kernel to 0.7.0 or later: pip install -U liger-kernel",
        "AssertionError: use_liger_kernel requires liger_kernels, try `pip install liger-kernel`",
    ],
    "tensor_parallel": ["ValueError: vllm_tensor_parallel_size (3) must divide world size (4) evenly."],
    "swift_server_gpus": [
        "ValueError: Error: local_device_count (1) must be greater than or equal to the product of "
        "vllm_data_parallel_size (2) and vllm_tensor_parallel_size (1). Current required_device_count = 2."
    ],
    "swift_flash": ['ValueError: The "padding_free" feature requires a flash attention implementation. Please use'],
    "swift_fsdp1": ["NotImplementedError: FSDP1 is not supported. Please use FSDP2 (fsdp_version=2) instead."],
    "swift_fsdp_zero": ["ValueError: FSDP2 is not compatible with DeepSpeed."],
    "long_prompt": ["ValueError: Input length (8431) leaves no room for generation with max_model_len (8192) and x"],
    "swift_overlong": ["AssertionError: The soft_cache_length must be set when using soft overlong rewards."],
    "swift_argument": ["ValueError: remaining_argv: ['--num_infer_workers', '2']"],
    "swift_cached": ["ValueError: cached_dataset is not supported for GRPO."],
    "swift_truncation": ["ValueError: GRPO requires `truncation_strategy 'left' or 'delete'`, Current value: `right`"],
    "swift_rewards": ["ValueError: You must specify reward_funcs or reward_model"],
    "swift_model_type": [
        "ValueError: Failed to automatically match `model_type` for `/m`. Multiple possible types found: ['a', 'b']."
    ],
    "swift_torchvision": ["RuntimeError: operator torchvision::nms does not exist"],
    "swift_msgspec": ["ModuleNotFoundError: No module named 'msgspec'"],
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_its_text_is_recognised(name: str) -> None:
    for text in TEXTS[name]:
        found = ms_swift.diagnose(f"[INFO:swift] something\nTraceback (most recent call last):\n{text}\n")
        assert found is not None, text
        assert found.reason is FailureReason.ILLEGAL
        assert found.suggestion == SUGGESTIONS[name]
        assert found.message in text


def test_every_sign_has_a_text_and_a_suggestion() -> None:
    names = {sign.name for sign in OWN}
    assert names == set(TEXTS)
    assert names <= set(SUGGESTIONS)


def test_what_every_framework_shares_is_recognised_too() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"
    found = ms_swift.diagnose(f"{text}\nE1122 torch.distributed.elastic ChildFailedError: exitcode  : 1\n")
    assert found is not None
    assert (found.reason, found.pool) == (FailureReason.OOM, Pool.DEVICE)
    killed = ms_swift.diagnose("torch.distributed.elastic ... exitcode  : -9 (pid: 5)\nSignal 9 (SIGKILL) received")
    assert killed is not None
    assert (killed.reason, killed.pool) == (FailureReason.OOM, Pool.HOST)


def test_a_log_line_of_a_good_run_is_no_failure() -> None:
    quiet = "{'loss': 0.1, 'grad_norm': 0.5, 'memory(GiB)': 3.2, 'train_speed(s/it)': 1.5, 'reward': 0.25}"
    assert ms_swift.diagnose(quiet) is None
    assert all(not sign.found_in(quiet) for sign in ALL)


def test_log_probs_out_of_memory_have_a_suggestion_of_their_own() -> None:
    assert "logprob_rows" in ms_swift.suggest(FailureReason.OOM, Phase.LOGPROB, Pool.DEVICE)
    assert "gpu_memory_utilization" in ms_swift.suggest(FailureReason.OOM, Phase.GENERATE, Pool.ROLLOUT_CACHE)
    assert ms_swift.suggest(FailureReason.CANCELLED) == ""
