"""Random combinations for Megatron-SWIFT."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.native import acting
from tests.support import combinations
from tests.support.combinations import LONGEST, Combination

MODEL = ModelFacts(layers=48, attention_heads=32, key_value_heads=8, experts=16)
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
