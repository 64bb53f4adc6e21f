"""Baselines of Open-R1: its own recipes, and the launches its README tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.published.model import Published, knobs

_AT = "huggingface/open-r1@1416fa0 recipes/"
_LAUNCH = "; launch: README.md:"

_COMMON: dict[str, KnobValue] = {
    "attn_implementation": "flash_attention_2",
    "master_weights": "bf16",
    "precision": "bf16",
    "gradient_checkpointing": True,
    "checkpointing_reentrant": False,
    "rollout_engine": "vllm",
}
_SEED: Mapping[str, Any] = {"seed": 42}
_MATH = ("accuracy", "format", "tag_count")
_COLOCATED = "Its launch says where the engine is: colocate, as the README has it for one machine (README.md:218)."
_SANDBOX = "Its rewards run code in a sandbox service, which needs an account or a server of its own."


def _served(gpus: int) -> dict[str, KnobValue]:
    """A server of ``gpus`` replicas; what share of a GPU one takes is ``trl vllm-serve``'s own default."""
    return {
        "rollout_mode": "server",
        "rollout_gpus": gpus,
        "rollout_data_parallel_size": gpus,
        "gpu_memory_utilization": 0.9,
    }


def _code(
    name: str, recipe: str, launch: int, dataset: str, rewards: tuple[str, ...], weights: list[float]
) -> Published:
    """The two recipes that differ in data and rewards only."""
    return Published(
        name=name,
        framework="open_r1",
        model="Qwen/Qwen2.5-1.5B-Instruct",
        training_gpus=7,
        configuration=knobs(
            **_COMMON,
            **_served(1),
            micro_batch_size=16,
            gradient_accumulation_steps=4,
            num_generations=14,
            zero_stage=2,
        ),
        workload={
            **_SEED,
            "learning_rate": 5e-6,
            "lr_scheduler_type": "cosine_with_min_lr",
            "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
            "warmup_ratio": 0.03,
            "temperature": 1.0,
            "beta": 0.01,
            "reward_weights": weights,
        },
        max_prompt_length=1024,
        max_completion_length=2048,
        dataset=dataset,
        rewards=rewards,
        source=f"{_AT}Qwen2.5-1.5B-Instruct/grpo/{recipe}{_LAUNCH}{launch}",
        notes=(_SANDBOX,),
    )


BASELINES = (
    Published(
        name="openr1:r1-distill-qwen-1.5b-demo",
        framework="open_r1",
        model="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        training_gpus=8,
        configuration=knobs(
            **_COMMON,
            rollout_mode="colocate",
            micro_batch_size=16,
            gradient_accumulation_steps=4,
            num_generations=16,
            hub_kernels=True,
            zero_stage=3,
        ),
        workload={
            **_SEED,
            "learning_rate": 1e-6,
            "lr_scheduler_type": "cosine_with_min_lr",
            "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
            "warmup_ratio": 0.1,
            "temperature": 0.7,
            "reward_weights": [1.0, 1.0, 1.0],
        },
        max_prompt_length=512,
        max_completion_length=2048,
        dataset="open-r1/OpenR1-Math-220k",
        rewards=_MATH,
        source=f"{_AT}DeepSeek-R1-Distill-Qwen-1.5B/grpo/config_demo.yaml{_LAUNCH}221",
        notes=("The recipe has a chat template of its own, which is not part of the baseline.",),
    ),
    Published(
        name="openr1:qwen2.5-1.5b-demo",
        framework="open_r1",
        model="Qwen/Qwen2.5-1.5B-Instruct",
        training_gpus=8,
        configuration=knobs(
            **_COMMON,
            rollout_mode="colocate",
            micro_batch_size=16,
            gradient_accumulation_steps=4,
            num_generations=16,
            zero_stage=2,
        ),
        workload={
            **_SEED,
            "learning_rate": 2e-5,
            "lr_scheduler_type": "cosine",
            "warmup_ratio": 0.1,
            "reward_weights": [1.0, 1.0, 1.0],
        },
        max_prompt_length=512,
        max_completion_length=1024,
        dataset="open-r1/OpenR1-Math-220k",
        rewards=_MATH,
        source=f"{_AT}Qwen2.5-1.5B-Instruct/grpo/config_demo.yaml{_LAUNCH}233",
        notes=(_COLOCATED,),
    ),
    _code(
        "openr1:qwen2.5-1.5b-code",
        "config_demo_code.yaml",
        313,
        "open-r1/verifiable-coding-problems-python",
        ("code", "format"),
        [1.0, 0.1],
    ),
    _code(
        "openr1:qwen2.5-1.5b-code-ioi",
        "config_demo_code_ioi.yaml",
        383,
        "open-r1/ioi",
        ("ioi_code", "code_format", "format"),
        [1.0, 0.1, 0.1],
    ),
    Published(
        name="openr1:qwen2.5-coder-7b-codeforces",
        framework="open_r1",
        model="Qwen/Qwen2.5-Coder-7B-Instruct",
        training_gpus=8,
        configuration=knobs(
            **_COMMON,
            **_served(8),
            micro_batch_size=4,
            gradient_accumulation_steps=32,
            num_generations=16,
            zero_stage=3,
        ),
        workload={
            **_SEED,
            "learning_rate": 1e-6,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_ratio": 0.1,
            "temperature": 0.7,
            "beta": 0.0,
            "loss_type": "dr_grpo",
            "scale_rewards": False,
            "mask_truncated_completions": True,
            "max_grad_norm": 0.2,
            "reward_weights": [1.0, 0.1],
        },
        max_prompt_length=2000,
        max_completion_length=8192,
        dataset="open-r1/codeforces",
        rewards=("cf_code", "code_format"),
        source=f"{_AT}Qwen2.5-Coder-7B-Instruct/grpo/config_codeforces.yaml{_LAUNCH}391",
        notes=(
            _SANDBOX,
            "vllm_gpu_memory_utilization 0.7, which the recipe sets, is of a colocated engine; the server takes 0.9.",
            "vllm_device auto, which the recipe sets, is no key of TRL 0.18 and does nothing.",
        ),
    ),
)
