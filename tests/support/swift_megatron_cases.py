"""Random combinations for Megatron-SWIFT, and the settings of ms-swift's public scripts for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.native import acting
from tests.support import combinations
from tests.support.combinations import LONGEST, Combination

MODEL = ModelFacts(layers=48, attention_heads=32, key_value_heads=8, experts=16)
QWEN3_30B = ModelFacts(layers=48, attention_heads=32, key_value_heads=4, experts=128)
QWEN3_35B = ModelFacts(layers=40, attention_heads=16, key_value_heads=2, experts=256)
QWEN2_0B5 = ModelFacts(layers=24, attention_heads=14, key_value_heads=2, experts=0)
QWEN2_VL_3B = ModelFacts(layers=36, attention_heads=16, key_value_heads=2, experts=0)
DEEPSEEK = ModelFacts(experts=256)
VALUES: Mapping[str, Sequence[KnobValue]] = {
    "virtual_pipeline_size": (1, 2),
    "first_stage_layers": (0, 6),
    "last_stage_layers": (0, 10),
    "expert_parallel_size": (1, 2, 4),
    "expert_tensor_parallel_size": (1, 2),
    "megatron_sequence_parallel": (True, False),
    "distributed_optimizer": (True, False),
    "optimizer_offload_share": (0.0, 0.5, 1.0),
    "recompute_granularity": ("full", "selective", "none"),
    "recompute_method": ("uniform", "block"),
    "recompute_layers": (1, 4),
    "precision": ("bf16", "fp16"),
    "remove_padding": (True, False),
    "dynamic_sampling": (True, False),
    "dataloader_workers": (0, 8),
    "gpu_memory_utilization": (0.3, 0.55),
    "temperature": (0.7, 1.0, 2.0),
    "sleep_level": (0, 1, 2),
    "rollout_offload_model": (True, False),
    "rollout_offload_optimizer": (True, False),
    "adapter_sync": (True, False),
    "max_model_len": (LONGEST, 4096),
    "max_num_seqs": (32, 256),
    "enforce_eager": (True, False),
    "prefix_caching": (True, False),
    "kv_cache_dtype": ("auto", "fp8"),
    "expandable_segments": (True, False),
    "max_num_batched_tokens": (2048, 8192),
}
"""Knobs that are drawn, but for those of the batch and of the split."""


def legal(random: Random) -> Combination:
    """A combination no rule objects to."""
    while True:
        found = some(random)
        if not found.rules:
            return found


def some(random: Random, *, whole: bool = True) -> Combination:
    """A combination that Megatron-SWIFT can be told and may refuse; ``whole``: rows and GPUs are shared evenly."""
    gpus = random.choice((1, 2, 4, 8))
    sizes = [random.choice((1, 1, 2, 4) if whole else (1, 2, 3)) for _ in range(3)]
    while whole and gpus % math.prod(sizes):
        sizes = [random.choice((1, 1, 2, 4)) for _ in range(3)]
    ranks = max(1, gpus // math.prod(sizes))
    group, micro = random.choice((2, 4, 8)), random.choice((1, 2, 4))
    prompts = ranks * micro * math.prod(sizes) * random.choice((1, 2)) if whole else random.choice((1, 2, 3, 6))
    rollout = max(1, prompts * group // (ranks * micro))
    rollout = rollout if whole or random.random() < 0.5 else random.randint(1, 6)
    parts = random.choice([n for n in (1, 1, 2, 3) if not whole or rollout % n == 0])
    accumulation = max(1, rollout // parts)
    values: dict[str, KnobValue] = {
        "training_engine": "megatron",
        "rollout_engine": "vllm",
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation * parts,
        "num_generations": group,
        "training_tensor_parallel_size": sizes[0],
        "pipeline_parallel_size": sizes[1],
        "sequence_parallel_size": sizes[2],
        "tensor_parallel_size": random.choice([n for n in (1, 2, 4) if gpus % n == 0]),
        **{name: random.choice(found) for name, found in VALUES.items() if random.random() < 0.5},
    }
    if random.random() < 0.3:
        served: dict[str, KnobValue] = {"rollout_mode": "server", "rollout_data_parallel_size": 2}
        values.update(served, rollout_gpus=2 * int(values["tensor_parallel_size"]))
    settled = acting(values, "ms_swift")
    apart = int(settled.get("rollout_gpus", 0))
    return Combination(Configuration(settled), machine(gpus + apart))


def machine(gpus: int, model: ModelFacts = MODEL, nodes: int = 1) -> Resources:
    return combinations.machine("ms_swift", gpus, model, nodes)


@dataclass(frozen=True)
class Example:
    """One of ms-swift's scripts: what of it counts, as arguments."""

    gpus: int
    """That train."""
    model: ModelFacts
    arguments: Mapping[str, str]
    knobs: Mapping[str, KnobValue]
    """Some of those it sets."""
    server: Mapping[str, str] | None = None
    """Of its ``swift rollout``."""
    apart: int = 0
    """GPUs of that."""
    rules: frozenset[str] = frozenset()
    """Those that forbid it as it stands."""

    @property
    def script(self) -> str:
        words = " ".join(f"--{key} {value}".strip() for key, value in self.arguments.items())
        run = f"NPROC_PER_NODE={self.gpus} megatron rlhf --rlhf_type grpo --model some/model {words}\n"
        served = " ".join(f"--{key} {value}" for key, value in (self.server or {}).items())
        return (f"swift rollout --model some/model {served} &\n" if self.server is not None else "") + run


def _batch(rows: int, micro: int, steps: int, group: int) -> dict[str, str]:
    named = {"global_batch_size": rows, "micro_batch_size": micro, "steps_per_generation": steps}
    return {**{key: str(value) for key, value in named.items()}, "num_generations": str(group)}


def _split(tensor: int, pipeline: int, context: int = 1, expert: int = 1) -> dict[str, str]:
    named = {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": pipeline}
    named.update(context_parallel_size=context, expert_model_parallel_size=expert)
    return {key: str(value) for key, value in named.items()}


_RUN = {
    "use_vllm": "true",
    "bf16": "true",
    "finetune": "",
    "attention_backend": "flash",
    "padding_free": "true",
    "no_save_optim": "",
    "no_save_rng": "",
    "dataset": "d",
    "reward_funcs": "accuracy",
    "log_completions": "true",
    "dataloader_num_workers": "8",
    "dataset_num_proc": "8",
    "logging_steps": "1",
    "temperature": "1.0",
    "save_safetensors": "true",
    "num_train_epochs": "1",
    "recompute_granularity": "selective",
}
_COLOCATED = {"vllm_mode": "colocate", "sleep_level": "2", "offload_model": "true", "offload_optimizer": "true"}
_SERVED = {"vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": "8000"}
_SHARED = {"sequence_parallel": "true", "importance_sampling_level": "sequence", "beta": "0.00"}
EXAMPLES: Mapping[str, Example] = {
    "moe_colocate_full.sh": Example(
        8,
        QWEN3_30B,
        {
            **_RUN, **_COLOCATED, **_SHARED, **_split(4, 2, expert=4), **_batch(8, 1, 1, 8), "tuner_type": "full",
            "vllm_tensor_parallel_size": "8", "vllm_gpu_memory_utilization": "0.4", "vllm_max_model_len": "16384",
            "optimizer_cpu_offload": "true", "use_precision_aware_optimizer": "", "offload_bridge": "false",
            "max_length": "8192", "max_completion_length": "8192", "lr": "1e-6", "report_to": "wandb",
        },
        {
            "training_tensor_parallel_size": 4, "pipeline_parallel_size": 2, "expert_parallel_size": 4,
            "optimizer_offload_share": 1.0, "gradient_accumulation_steps": 8, "steps_per_generation": 8,
            "recompute_granularity": "selective", "megatron_sequence_parallel": True, "tensor_parallel_size": 8,
            "rollout_offload_model": True, "rollout_offload_optimizer": True, "sleep_level": 2,
        },
    ),
    "moe_colocate_lora.sh": Example(
        8,
        QWEN3_30B,
        {
            **_RUN, **_COLOCATED, **_SHARED, **_split(2, 2, context=2, expert=4), **_batch(64, 2, 2, 8),
            "vllm_tensor_parallel_size": "4", "tuner_type": "lora", "merge_lora": "false", "lr": "5e-5",
        },
        {
            "sequence_parallel_size": 2, "training_tensor_parallel_size": 2, "gradient_accumulation_steps": 32,
            "steps_per_generation": 64,
        },
    ),
    "sapo.sh": Example(
        8,
        QWEN2_VL_3B,
        {**_RUN, **_COLOCATED, **_split(1, 1), **_batch(128, 2, 4, 8), "tuner_type": "full", "loss_type": "sapo"},
        {"micro_batch_size": 2, "gradient_accumulation_steps": 8, "steps_per_generation": 32},
    ),
    "dense_server.sh": Example(
        6,
        QWEN2_VL_3B,
        {
            **_RUN, **_SERVED, **_split(1, 1), **_batch(96, 4, 4, 8), "tuner_type": "full", "sleep_level": "2",
            "offload_model": "true", "offload_optimizer": "true", "train_iters": "100", "eval_steps": "1000",
        },
        {"micro_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 16},
        apart=2,
    ),
    "moe_server_lora.sh": Example(
        4,
        QWEN3_35B,
        {
            **_RUN, **_SERVED, **_SHARED, **_split(1, 1, expert=4), **_batch(64, 1, 2, 8), "tuner_type": "lora",
            "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "1",
            "moe_permute_fusion": "true", "moe_expert_capacity_factor": "2", "merge_lora": "true",
            "target_modules": "all-linear", "save_steps": "20", "report_to": "tensorboard swanlab",
        },
        {
            "recompute_granularity": "full", "recompute_method": "uniform", "recompute_layers": 1,
            "gradient_accumulation_steps": 16, "steps_per_generation": 32, "rollout_mode": "server",
            "tensor_parallel_size": 2,
        },
        {"vllm_tensor_parallel_size": "2", "vllm_max_model_len": "9192"},
        2,
    ),
    "real.sh": Example(
        2,
        QWEN2_0B5,
        {
            **_RUN, **_SERVED, **_split(1, 1), "micro_batch_size": "8", "global_batch_size": "128",
            "num_generations": "8", "loss_type": "real", "tuner_type": "full", "eval_steps": "100", "beta": "0.001",
            "gradient_accumulation_fusion": "false",
        },
        {"micro_batch_size": 8, "gradient_accumulation_steps": 8, "steps_per_generation": 8},
        {},
        1,
    ),
    "test_lora_adapter_sync.sh": Example(
        4,
        QWEN2_VL_3B,
        {
            **_RUN, **_COLOCATED, **_split(1, 1), **_batch(16, 1, 1, 4), "sleep_level": "1", "tuner_type": "lora",
            "lora_rank": "8", "vllm_enable_lora": "true", "train_iters": "5", "save_steps": "1000",
        },
        {"adapter_sync": True, "sleep_level": 1, "gradient_accumulation_steps": 4},
    ),
    "deepseek_v41_colocate_full.sh": Example(
        8,
        DEEPSEEK,
        {
            **_RUN, **_COLOCATED, **_split(1, 4, expert=8), **_batch(8, 1, 1, 8), "tuner_type": "full",
            "vllm_tensor_parallel_size": "8", "optimizer_cpu_offload": "true", "moe_grouped_gemm": "true",
        },
        {"pipeline_parallel_size": 4, "expert_parallel_size": 8},
        rules=frozenset({"megatron_expert_world", "swift_megatron_prompts"}),
    ),
}  # fmt: skip
"""By their names below ``examples/megatron/grpo`` of modelscope/ms-swift: at 3602360, and some that came later."""
