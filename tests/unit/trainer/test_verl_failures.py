"""What becomes of every known failure of verl's: as verl 0.9.1, Hydra 1.3 and Ray 2.60 write them."""

from __future__ import annotations

import re

import pytest

from tests.support.not_none import not_none
from trainer.child.contract import SIGNS, FailureReason, Phase, Pool, StartupPart
from trainer.frameworks import verl
from trainer.frameworks.verl.failures import SUGGESTIONS, VERL

ILLEGAL, OOM, INFRA = FailureReason.ILLEGAL, FailureReason.OOM, FailureReason.INFRA
MET: dict[str, tuple[str, ...]] = {
    "verl_rollout_rows": (
        "AssertionError: real_train_batch_size (12) must be divisible by minimal possible batch size (8)",
    ),
    "verl_rollout_smaller": ("ValueError: train_batch_size (8) must be >= actor.ppo_mini_batch_size (16)",),
    "verl_micro_batch": (
        "AssertionError: [actor] Please set at least one of 'actor.ppo_micro_batch_size' or "
        "'actor.ppo_micro_batch_size_per_gpu' if use_dynamic_bsz is not enabled.",
        "ValueError: [actor_rollout_ref.ref] Please set at least one of "
        "'actor_rollout_ref.ref.log_prob_micro_batch_size' or 'actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        "ValueError: [actor] You have set both 'actor.ppo_micro_batch_size' AND 'actor.ppo_micro_batch_size_per_gpu'. "
        "Please remove 'actor.ppo_micro_batch_size' because only '*_ppo_micro_batch_size_per_gpu' is supported",
        "ValueError: [actor_rollout_ref.rollout] You have set both "
        "'actor_rollout_ref.rollout.log_prob_micro_batch_size' "
        "AND 'actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu'. Please remove "
        "'actor_rollout_ref.rollout.log_prob_micro_batch_size' because only",
    ),
    "verl_mini_batch_ranks": ("AssertionError: Got mini_batch_size=12 and self.engine.get_data_parallel_size()=8",),
    "verl_micro_rows": ("AssertionError: data size must be divisible by force_group_size * micro_batch_size_per_gpu",),
    "verl_token_budget": (
        "AssertionError: max_token_len must be greater than the sequence length. Got max_token_len=512 and "
        "max_seq_len=tensor(600)",
    ),
    "verl_rollout_world": ("AssertionError: rollout world_size: 6 is not divisible by infer_world_size: 4",),
    "verl_remove_padding": (
        "ValueError: When using sequence parallelism for actor/ref policy, you must enable `use_remove_padding`.",
    ),
    "verl_equal_chunks": ("AssertionError: only support equal chunk. Got size of DataProto 10 and chunk 8.",),
    "verl_ulysses_heads": ("AssertionError: num_attention_heads 14 must be divisible by ulysses_sp_size 4",),
    "verl_model_length": (
        "ValueError: max_model_len (9000) should be less than or equal to max_position_embeddings (8192)",
    ),
    "verl_rollout_mode": ("ValueError: Rollout mode 'sync' has been removed. Please set `actor_rollout_ref",),
    "verl_pipeline": (
        "NotImplementedError: Current rollout self.name='vllm' not implemented pipeline_model_parallel_size > 1 yet.",
    ),
    "verl_quantization": ("ValueError: Currently only support ['fp8', 'torchao', 'ascend'] quantization, got: int4",),
    "verl_prompts": ("ZeroDivisionError: integer division or modulo by zero",),
    "verl_prompt_length": (
        "ValueError: Prompt length (700) leaves no room to generate within the model's maximum context length (700)",
    ),
    "verl_file_format": ("ValueError: Unsupported file format: train.csv",),
    "verl_optimizer": (
        "ImportError: Failed to import module 'torchao.optim'. Make sure the package is installed. Error: No module",
    ),
    "verl_transfer_queue": ("ModuleNotFoundError: No module named 'transfer_queue'",),
    "verl_no_vllm": ("ModuleNotFoundError: No module named 'vllm'",),
    "verl_flash_attention": (
        "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error",
        "ModuleNotFoundError: No module named 'flash_attn'",
    ),
    "verl_unknown_key": (
        "Could not override 'actor_rollout_ref.actor.ppo_mini_batchsize'.",
        "Key 'ppo_mini_batchsize' is not in struct",
        "Could not append to config. An item is already at 'trainer.logger'.",
    ),
    "verl_missing_value": (
        "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: actor_rollout_ref.rollout.name",
        "Missing mandatory value: actor_rollout_ref.rollout.name",
    ),
    "verl_gpus": ("ValueError: Total available GPUs 2 is less than total desired GPUs 8",),
    "ray_start": (
        "ConnectionError: Failed to connect to the default Ray cluster address at 10.0.0.1:6379",
        "Exception: The current node timed out during startup. This could happen because the raylet failed to startup",
    ),
    "ray_socket": ("OSError: validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /tmp/x",),
    "ray_store": (
        "ray.exceptions.ObjectStoreFullError: Failed to put object",
        "The local object store is full of objects that are still in scope and cannot be evicted.",
    ),
    "ray_get": ("ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",),
    "ray_disk": ("ray.exceptions.OutOfDiskError: Local disk is full",),
    "ray_killed": ("(raylet) Worker unexpectedly exits with a connection error code 2. End of file. There are some",),
}
EACH = pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MET.items() for text in texts])


@EACH
def test_a_text_is_known_and_says_what_to_try(name: str, text: str) -> None:
    sign = next(sign for sign in VERL if sign.name == name)
    found = not_none(verl.diagnose(f"step 1\n{text}\n"))
    assert (found.reason, found.pool, found.phase) == (sign.reason, sign.pool, sign.phase)
    assert found.suggestion == SUGGESTIONS[name]
    assert found.message == text.strip()[:400]


@EACH
def test_rays_echo_of_it_does_not_hide_it(name: str, text: str) -> None:
    if name == "ray_killed":
        return
    echo = "ray.exceptions.RayTaskError(ValueError): ray::TaskRunnerV1.run() (pid=7, ip=127.0.0.1)"
    found = not_none(verl.diagnose(f"{text}\n{echo}\n(TaskRunner pid=7) Error executing job with overrides\n"))
    assert found.message == text.strip()[:400]


def test_every_sign_is_met_and_every_text_is_hit_by_what_was_met() -> None:
    assert {sign.name for sign in VERL} == set(MET)
    for sign in VERL:
        for text in sign.texts:
            pattern = ".*".join(re.escape(part) for part in text.split("…"))
            assert any(re.search(pattern, met) for met in MET[sign.name]), text
    assert not {sign.name for sign in VERL} & {sign.name for sign in SIGNS}
    assert {sign.name for sign in VERL} <= set(SUGGESTIONS)


def test_memory_is_still_memory_behind_ray() -> None:
    log = (
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=9)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    )
    found = not_none(verl.diagnose(log))
    assert (found.reason, found.pool) == (OOM, Pool.DEVICE)
    host = verl.diagnose("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.")
    assert host is not None
    assert (host.reason, host.pool) == (OOM, Pool.HOST)


def test_innocent_lines_say_nothing() -> None:
    for text in ("", "[validate_config] All configuration checks passed successfully!", "step:1 - timing_s/gen:2.0"):
        assert verl.diagnose(text) is None


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Phase.LOGPROB, "lower logprob_rows"),
        (Phase.UPDATE, "lower micro_batch_size (update_tokens"),
        (Phase.SYNC, "lower gpu_memory_utilization"),
        (StartupPart.ENGINE.value, "lower gpu_memory_utilization"),
    ],
)
def test_out_of_memory_is_answered_by_its_place(where: Phase | str, words: str) -> None:
    assert verl.suggest(OOM, where, Pool.DEVICE).startswith(words)


def test_a_rewards_failure_is_looked_for_inside_generation() -> None:
    assert "inside generation" in verl.suggest(FailureReason.REWARD_ERROR)
    assert verl.suggest(ILLEGAL).startswith("the framework refuses it")
    assert verl.suggest(INFRA)
