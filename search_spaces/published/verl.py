"""Baselines of verl: its GRPO examples. Its batches are counted in prompts; here in rows, as everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.published.model import Published, knobs

_NEW = "verl-project/verl@v0.9.0 examples/grpo_trainer/"
_OLD = "volcengine/verl@b178a3cd examples/"
_ACTOR = "actor_rollout_ref.actor."


def _batch(gpus: int, prompts: int, mini: int, group: int, micro: int) -> dict[str, KnobValue]:
    """verl's batch in ours: of ``prompts`` one generation is made, of ``mini`` an update."""
    return {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": mini * group // (gpus * micro),
        "steps_per_generation": prompts * group // (gpus * micro),
        "num_generations": group,
        "logprob_rows": micro,
    }


def _knobs(tensor: int, share: float, **more: KnobValue) -> dict[str, KnobValue]:
    return {
        "rollout_engine": "vllm",
        "rollout_mode": "colocate",
        "tensor_parallel_size": tensor,
        "gpu_memory_utilization": share,
        "remove_padding": True,
        "gradient_checkpointing": True,
        **more,
    }


def _workload(rate: float, kl: float = 0.001, /, **more: Any) -> Mapping[str, Any]:
    return {
        _ACTOR + "optim.lr": rate,
        _ACTOR + "use_kl_loss": True,
        _ACTOR + "kl_loss_coef": kl,
        _ACTOR + "kl_loss_type": "low_var_kl",
        "algorithm.use_kl_in_reward": False,
        **more,
    }


def _lora(rank: int, alpha: int) -> dict[str, Any]:
    return {"actor_rollout_ref.model.lora_rank": rank, "actor_rollout_ref.model.lora_alpha": alpha}


_OFFLOADED: dict[str, KnobValue] = {"rollout_offload_model": True, "rollout_offload_optimizer": True}
_KEPT: dict[str, KnobValue] = {"rollout_offload_model": False, "rollout_offload_optimizer": False}
_ONE_H100: dict[str, KnobValue] = {
    **_knobs(1, 0.1, **_OFFLOADED),
    "max_num_seqs": 512,
    "max_model_len": 1536,
    "max_num_batched_tokens": 1536,
    "chunked_prefill": False,
}


def _single(name: str, size: str, prompts: int) -> Published:
    """A LoRA script for one H100. (The one of 0.5B has groups of one completion, which is no GRPO, and is left out.)"""
    folder = size.lower()
    return Published(
        name=name,
        framework="verl",
        model=f"Qwen/Qwen2.5-{size}-Instruct",
        training_gpus=1,
        configuration=knobs(**_ONE_H100, **_batch(1, prompts, prompts, 5, prompts)),
        workload=_workload(
            3e-5,
            0.001,
            **_lora(32, 32),
            **{"actor_rollout_ref.model.target_modules": "all-linear", _ACTOR + "entropy_coeff": 0.001},
        ),
        max_prompt_length=512,
        max_completion_length=1024,
        dataset="openai/gsm8k",
        rewards=("gsm8k",),
        source=f"{_OLD}tuning/{folder}/qwen2-{folder}_grpo-lora_1_h100_fsdp_vllm.sh",
        notes=("The global micro-batches it sets are refused by verl 0.9; here they count for each GPU.",),
    )


def _gsm8k_7b(name: str, gpus: int, prompt: int, micro: int, source: str, offloaded: bool) -> Published:
    return Published(
        name=name,
        framework="verl",
        model="Qwen/Qwen2-7B-Instruct",
        training_gpus=gpus,
        configuration=knobs(
            **_knobs(2, 0.6, **(_OFFLOADED if offloaded else _KEPT)), **_batch(gpus, 1024, 256, 5, micro)
        ),
        workload=_workload(1e-6, **{_ACTOR + "entropy_coeff": 0}),
        max_prompt_length=prompt,
        max_completion_length=1024,
        dataset="openai/gsm8k",
        rewards=("gsm8k",),
        source=f"{_OLD}{source}",
        notes=("Off-policy: one generation serves four updates.",),
    )


BASELINES = (
    Published(
        name="verl:qwen3-4b",
        framework="verl",
        model="Qwen/Qwen3-4B",
        training_gpus=8,
        configuration=knobs(
            **_knobs(2, 0.6, **_KEPT),
            **_batch(8, 512, 256, 5, 2),
            dynamic_batching=True,
            update_tokens=3000,
            logprob_tokens=4096,
            chunked_prefill=False,
            enforce_eager=False,
            sleep_level=2,
            weight_sync_bucket_mib=4096,
        ),
        workload=_workload(1e-6, **{_ACTOR + "entropy_coeff": 0}),
        max_prompt_length=1024,
        max_completion_length=1024,
        dataset="openai/gsm8k",
        rewards=("gsm8k",),
        source=f"{_NEW}run_qwen3_4b_fsdp.sh",
        notes=(
            "Off-policy: one generation serves two updates.",
            "Its reference model's log-prob pass takes 8192 tokens, twice the policy's; no knob says so.",
        ),
    ),
    Published(
        name="verl:qwen3-8b",
        framework="verl",
        model="Qwen/Qwen3-8B",
        training_gpus=8,
        configuration=knobs(
            **_knobs(2, 0.6, **_KEPT),
            **_batch(8, 1024, 256, 5, 1),
            dynamic_batching=True,
            update_tokens=24576,
            logprob_tokens=24576,
        ),
        workload=_workload(1e-6, **{_ACTOR + "entropy_coeff": 0}),
        max_prompt_length=1024,
        max_completion_length=2048,
        dataset="openai/gsm8k",
        rewards=("gsm8k",),
        source=f"{_NEW}run_qwen3_8b_fsdp.sh",
        notes=(
            "Off-policy: one generation serves four updates.",
            "It names no micro-batch, because its batches are cut by tokens; here it is 1.",
            "It trains on gsm8k and MATH together.",
        ),
    ),
    Published(
        name="verl:qwen3.5-2b-openr1",
        framework="verl",
        model="Qwen/Qwen3.5-2B",
        training_gpus=8,
        configuration=knobs(
            **{**_knobs(4, 0.3, **_KEPT), "remove_padding": False},
            **_batch(8, 64, 16, 5, 1),
            dynamic_batching=False,
            entropy_chunking=True,
            fsdp="fsdp2",
            fsdp_reshard_after_forward=True,
            fsdp_offload=True,
            chunked_prefill=False,
            max_num_batched_tokens=4096,
            prefix_caching=False,
            enforce_eager=False,
            sleep_level=2,
            weight_sync_bucket_mib=6144,
        ),
        workload=_workload(5e-7, 0.02, **{_ACTOR + "entropy_coeff": 0}),
        max_prompt_length=2048,
        max_completion_length=1536,
        dataset="openr1mm",
        rewards=("verl/utils/reward_score/openr1mm.py",),
        source=f"{_NEW}run_qwen3_5_2b_openr1_fsdp.sh",
        notes=(
            "Off-policy: one generation serves four updates.",
            "Its prompts hold pictures, which those of a study have not.",
            "It also asks for param_offload and optimizer_offload, which do nothing beside its offload_policy.",
        ),
    ),
    _single("verl:qwen2.5-1.5b-lora", "1.5B", 128),
    _single("verl:qwen2.5-3b-lora", "3B", 62),
    Published(
        name="verl:qwen2.5-3b-gsm8k-lora",
        framework="verl",
        model="Qwen/Qwen2.5-3B-Instruct",
        training_gpus=2,
        configuration=knobs(**_knobs(2, 0.6, **_KEPT), **_batch(2, 16, 16, 5, 40)),
        workload=_workload(3e-6, **_lora(64, 32), **{_ACTOR + "entropy_coeff": 0}),
        max_prompt_length=512,
        max_completion_length=1024,
        dataset="openai/gsm8k",
        rewards=("gsm8k",),
        source=f"{_OLD}grpo_trainer/run_qwen2_5-3b_gsm8k_grpo_lora.sh",
    ),
    _gsm8k_7b("verl:qwen2-7b", 8, 512, 40, "grpo_trainer/run_qwen2-7b.sh", offloaded=False),
    _gsm8k_7b("verl:qwen2-7b-2gpu", 2, 1024, 16, "tuning/7b/qwen2-7b_grpo_2_h800_fsdp_vllm.sh", offloaded=True),
)
