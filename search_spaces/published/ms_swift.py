"""Baselines of ms-swift: scripts of its ``examples/train/grpo``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.published.model import Published, knobs

_AT = "modelscope/ms-swift@3602360a examples/train/grpo/"
_HELD: dict[str, KnobValue] = {"master_weights": "bf16", "dataloader_workers": 4}
_MOVED_OUT: dict[str, KnobValue] = {
    "sleep_level": 1,
    "rollout_offload_optimizer": True,
    "rollout_offload_model": True,
}
_LR: Mapping[str, Any] = {"learning_rate": 1e-6}
_PICTURES = "The model reads pictures, which the prompts of a study have not; name a text model beside it."


def _colocated(share: float, longest: int, **more: KnobValue) -> dict[str, KnobValue]:
    return {
        **_HELD,
        "rollout_engine": "vllm",
        "rollout_mode": "colocate",
        "gpu_memory_utilization": share,
        "max_model_len": longest,
        "tensor_parallel_size": 1,
        **more,
    }


_GSM8K: Mapping[str, Any] = {
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.0,
    "temperature": 1.0,
    "max_grad_norm": 1.0,
    "epsilon": 0.2,
    "epsilon_high": 0.28,
    "scale_rewards": "none",
}
_VISION: Mapping[str, Any] = {
    **_LR,
    "tuner_type": "full",
    "temperature": 1.0,
    "overlong_filter": False,
    "importance_sampling_level": "token",
    "beta": 0.001,
}

BASELINES = (
    Published(
        name="swift:qwen3.5-2b-gsm8k",
        framework="ms_swift",
        model="Qwen/Qwen3.5-2B",
        training_gpus=4,
        configuration=knobs(
            **_colocated(0.4, 10240, sleep_level=1),
            micro_batch_size=4,
            gradient_accumulation_steps=4,
            num_generations=8,
            zero_stage=2,
        ),
        workload={**_LR, **_GSM8K, "tuner_type": "full", "enable_thinking": False},
        max_prompt_length=2048,
        max_completion_length=8192,
        dataset="modelscope/gsm8k",
        rewards=("gsm8k_accuracy", "gsm8k_format"),
        source=f"{_AT}plugin/gsm8k/gsm8k.sh",
        notes=("Its rewards come with the script, as a plugin.",),
    ),
    Published(
        name="swift:qwen2.5-7b-server",
        framework="ms_swift",
        model="Qwen/Qwen2.5-7B-Instruct",
        training_gpus=6,
        configuration=knobs(
            **_HELD,
            rollout_engine="vllm",
            rollout_mode="server",
            rollout_gpus=2,
            rollout_data_parallel_size=2,
            micro_batch_size=2,
            gradient_accumulation_steps=2,
            num_generations=8,
            zero_stage=2,
        ),
        workload={
            **_LR,
            "tuner_type": "full",
            "warmup_ratio": 0.05,
            "temperature": 1.0,
            "top_p": 0.9,
            "top_k": 50,
            "num_iterations": 1,
            "beta": 0.04,
        },
        max_prompt_length=None,
        max_completion_length=2048,
        dataset="AI-MO/NuminaMath-TIR#1000",
        rewards=("accuracy",),
        source=f"{_AT}external/grpo_7b.sh",
        notes=("Its comment says --data_parallel_size for the server; ms-swift 4.6 has --vllm_data_parallel_size.",),
    ),
    Published(
        name="swift:qwen2.5-7b-gspo",
        framework="ms_swift",
        model="Qwen/Qwen2.5-7B-Instruct",
        training_gpus=8,
        configuration=knobs(
            **_colocated(0.6, 16384, **_MOVED_OUT),
            micro_batch_size=2,
            gradient_accumulation_steps=8,
            steps_per_generation=32,
            num_generations=16,
            zero_stage=3,
        ),
        workload={
            **_LR,
            "tuner_type": "full",
            "warmup_ratio": 0.05,
            "beta": 0.0,
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
            "importance_sampling_level": "sequence",
        },
        max_prompt_length=None,
        max_completion_length=8192,
        dataset="AI-MO/NuminaMath-TIR#10000",
        rewards=("accuracy",),
        source=f"{_AT}internal/gspo.sh",
        notes=("Off-policy: one generation serves four updates.",),
    ),
    Published(
        name="swift:qwen2.5-7b-lora",
        framework="ms_swift",
        model="Qwen/Qwen2.5-7B",
        training_gpus=1,
        configuration=knobs(
            **_HELD,
            rollout_engine="transformers",
            micro_batch_size=4,
            gradient_accumulation_steps=1,
            num_generations=4,
        ),
        workload={
            "learning_rate": 1e-5,
            "tuner_type": "lora",
            "lora_rank": 8,
            "lora_alpha": 32,
            "target_modules": "all-linear",
            "warmup_ratio": 0.05,
            "temperature": 0.9,
        },
        max_prompt_length=2048,
        max_completion_length=1024,
        dataset="AI-MO/NuminaMath-TIR#1000",
        rewards=("accuracy", "format"),
        source=f"{_AT}internal/transformers.sh",
    ),
    Published(
        name="swift:qwen2.5-3b-qlora",
        framework="ms_swift",
        model="Qwen/Qwen2.5-3B-Instruct",
        training_gpus=4,
        configuration=knobs(
            **_colocated(0.4, 10240, sleep_level=1),
            adapter_sync=True,
            micro_batch_size=4,
            gradient_accumulation_steps=4,
            num_generations=8,
            zero_stage=2,
        ),
        workload={
            **_GSM8K,
            "learning_rate": 1e-5,
            "tuner_type": "lora",
            "quant_method": "bnb",
            "quant_bits": 4,
            "bnb_4bit_quant_type": "nf4",
            "enable_thinking": False,
        },
        max_prompt_length=2048,
        max_completion_length=8192,
        dataset="modelscope/gsm8k",
        rewards=("gsm8k_accuracy", "gsm8k_format"),
        source=f"{_AT}internal/qlora.sh",
        notes=("Its rewards come with the gsm8k script, as a plugin.",),
    ),
    Published(
        name="swift:qwen2.5-vl-3b-sapo",
        framework="ms_swift",
        model="Qwen/Qwen2.5-VL-3B-Instruct",
        training_gpus=8,
        configuration=knobs(
            **_colocated(0.6, 8192, **_MOVED_OUT),
            attn_implementation="flash_attention_2",
            micro_batch_size=4,
            gradient_accumulation_steps=4,
            steps_per_generation=32,
            num_generations=8,
            zero_stage=1,
        ),
        workload={**_VISION, "loss_type": "sapo", "tau_pos": 1.0, "tau_neg": 1.05},
        max_prompt_length=4096,
        max_completion_length=4096,
        dataset="AI-ModelScope/clevr_cogen_a_train",
        rewards=("external_r1v_acc", "format"),
        source=f"{_AT}internal/sapo.sh",
        notes=(_PICTURES, "Off-policy: one generation serves eight updates."),
    ),
    Published(
        name="swift:qwen2.5-vl-3b-external-reward",
        framework="ms_swift",
        model="Qwen/Qwen2.5-VL-3B-Instruct",
        training_gpus=4,
        configuration=knobs(
            **_colocated(0.6, 16384, **_MOVED_OUT),
            micro_batch_size=4,
            gradient_accumulation_steps=4,
            steps_per_generation=4,
            num_generations=8,
            zero_stage=1,
        ),
        workload={**_VISION, "loss_type": "grpo", "epsilon": 0.2, "epsilon_high": 0.28, "num_iterations": 1},
        max_prompt_length=None,
        max_completion_length=8192,
        dataset="AI-ModelScope/clevr_cogen_a_train",
        rewards=("external_r1v_acc", "format"),
        source=f"{_AT}plugin/run_external_reward_func.sh",
        notes=(_PICTURES, "expandable_segments, which it sets, cannot be used with a sleeping engine and is left out."),
    ),
    Published(
        name="swift:qwen2.5-72b-lora",
        framework="ms_swift",
        model="Qwen/Qwen2.5-72B-Instruct",
        training_gpus=4,
        configuration=knobs(
            **{**_colocated(0.55, 2048, **_MOVED_OUT), "tensor_parallel_size": 4},
            micro_batch_size=1,
            gradient_accumulation_steps=1,
            num_generations=4,
            weight_sync_batches=16,
            zero_stage=3,
            offload_optimizer="cpu",
            offload_parameters="cpu",
        ),
        workload={
            **_LR,
            "tuner_type": "lora",
            "warmup_ratio": 0.05,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 80,
        },
        max_prompt_length=1024,
        max_completion_length=1024,
        dataset="AI-MO/NuminaMath-TIR#10000",
        rewards=("accuracy", "format"),
        source=f"{_AT}internal/vllm_72b_4gpu.sh",
        notes=(
            "Its engine takes 2048 tokens of prompt and completion together, so prompts of up to 1024 are used; of "
            "longer ones ms-swift would cut the completion. With a larger max_model_len, --max-prompt-length may be "
            "2048, as published.",
        ),
    ),
)
