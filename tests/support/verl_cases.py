"""Random combinations for verl: legal ones, and ones that break a rule verl checks itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

from search_spaces.batch import MODEL_PARALLEL
from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.knobs import KNOBS, Knob
from search_spaces.legality import is_legal
from search_spaces.legality.megatron_rules import TORCH_ONLY
from tests.support import combinations
from trainer.frameworks.verl import SUPPORTED, explicit

PROMPT, COMPLETION, LONGEST = combinations.PROMPT, combinations.COMPLETION, combinations.LONGEST
REWARDS = combinations.REWARDS["verl"]
SWITCHES = tuple(sorted(name for name in SUPPORTED if KNOBS[name].kind.value == "bool" and name != "dynamic_batching"))
_OF_THE_BATCH = frozenset(
    {
        *("micro_batch_size", "gradient_accumulation_steps", "num_generations", "steps_per_generation", "logprob_rows"),
        *("sequence_parallel_size", "tensor_parallel_size", "rollout_engine", "rollout_mode", "host_allocator"),
    }
)


def _some_values(knob: Knob) -> Sequence[KnobValue]:
    """For a knob that ``VALUES`` says nothing of: those of a choice, or the least of a number and twice that."""
    return knob.choices or (int(knob.bounds[0] or 0), max(1, 2 * int(knob.bounds[0] or 0)))


VALUES: Mapping[str, Sequence[KnobValue]] = {
    **{name: _some_values(KNOBS[name]) for name in sorted(SUPPORTED - _OF_THE_BATCH - {*SWITCHES, "dynamic_batching"})},
    "fsdp": ("fsdp1", "fsdp2"),
    "precision": ("bf16", "fp16", "fp32"),
    "master_weights": ("fp32", "bf16"),
    "reduce_precision": ("fp32", "bf16"),
    "optimizer": (
        *("adamw_torch", "adamw_torch_fused", "adamw_torch_8bit", "adamw_torch_4bit"),
        *("adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit"),
    ),
    "attn_implementation": ("flash_attention_2", "flash_attention_3", "sdpa", "eager", "kernels-community/flash-attn2"),
    "logprob_token_chunk": (256, 2048),
    "pad_to_multiple": (1, 64, 1024),
    "dataloader_workers": (0, 8),
    "reward_workers": (1, 8),
    "gpu_memory_utilization": (0.3, 0.55, 0.9),
    "temperature": (0.01, 0.7, 1.0, 2.0),
    "weight_sync_bucket_mib": (256, 2048),
    "max_model_len": (LONGEST, 4096),
    "max_num_seqs": (32, 256, 4096),
    "max_num_batched_tokens": (2048, 8192),
    "rollout_load_format": ("auto", "dummy"),
    "kv_cache_memory_bytes": (1 << 30, 1 << 33),
    "kv_cache_dtype": ("auto", "fp8", "fp8_e5m2"),
    "cuda_graph_max_batch": (8, 512),
    "vllm_compile_mode": ("vllm_compile", "none", "dynamo_trace_once"),
    "rollout_dtype": ("bf16", "fp16", "auto"),
    "rollout_quantization": ("none", "fp8"),
    "sleep_level": (0, 2),
    "update_tokens": (LONGEST, 16384, 65536),
    "logprob_tokens": (LONGEST, 32768),
}
"""Every knob a verl trial can set but switches and those of the batch."""


class Combination(combinations.Combination):
    """A configuration on a machine."""

    def explicit(self) -> Configuration:
        return Configuration(explicit(self.configuration, self.rows, self.ranks))


def legal(random: Random, *, modes: bool = False) -> Combination:
    """A combination no rule objects to.

    Args:
        random: to draw from.
        modes: SGLang, Megatron and verl's asynchronous modes are among them, with which no trial runs.
    """
    while True:
        found = some(random, modes=modes)
        if is_legal(found.configuration, found.resources, found.configuration):
            return found


def some(random: Random, *, modes: bool = False) -> Combination:
    """A combination whose batch is whole; the other knobs are any."""
    gpus = random.choice((1, 2, 4, 8))
    sharing = random.choice([n for n in (1, 1, 1, 2, 4) if gpus % n == 0])
    group, micro = random.choice((2, 4, 7, 8)), random.choice((1, 2, 3, 8))
    ranks = gpus // sharing
    accumulation = group // math.gcd(group, ranks * micro) * sharing * random.choice((1, 2, 5))
    steps = accumulation * random.choice((1, 1, 1, 2))
    values: dict[str, KnobValue] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "num_generations": group,
        "steps_per_generation": steps,
        "sequence_parallel_size": sharing,
        "logprob_rows": random.choice([n for n in range(1, micro * steps + 1) if micro * steps % n == 0]),
        "dynamic_batching": random.random() < 0.4,
        "tensor_parallel_size": random.choice([n for n in (1, 2, 4) if gpus % n == 0]),
    }
    for name in SWITCHES:
        if random.random() < 0.5:
            values[name] = random.random() < 0.5
    for name, choices in VALUES.items():
        if random.random() < 0.5:
            values[name] = random.choice(choices)
    if modes and random.random() < 0.25:
        values["rollout_engine"] = "sglang"
    if modes and random.random() < 0.4:
        _megatron(random, values)
    apart = _asynchronous(random, values) if modes and random.random() < 0.5 else 0
    settled = {name: value for name, value in values.items() if _acts(name, values)}
    return Combination(Configuration(settled), machine(gpus + apart))


def _megatron(random: Random, values: dict[str, KnobValue]) -> None:
    """Makes ``values`` those of a run that trains with Megatron."""
    for name in TORCH_ONLY:
        values.pop(name, None)
    sharing = values.pop("sequence_parallel_size")
    values.update({"training_engine": "megatron", random.choice(MODEL_PARALLEL): sharing})
    choices: dict[str, Sequence[KnobValue]] = {
        "virtual_pipeline_size": (1, 2),
        "first_stage_layers": (0, 3),
        "last_stage_layers": (0, 5),
        "expert_parallel_size": (1, 2, 4),
        "expert_tensor_parallel_size": (1, 2),
        "megatron_sequence_parallel": (True, False),
        "distributed_optimizer": (True, False),
        "optimizer_offload_share": (0.0, 0.5, 1.0),
        "recompute_granularity": ("full", "selective", "none"),
        "recompute_method": ("uniform", "block"),
        "recompute_layers": (1, 4),
    }
    values.update({name: random.choice(found) for name, found in choices.items() if random.random() < 0.7})


def _asynchronous(random: Random, values: dict[str, KnobValue]) -> int:
    """Makes ``values`` those of an asynchronous mode; returns the GPUs that generate only."""
    values["async_generation"] = True
    values["staleness_limit"] = random.choice((1, 8, "unlimited"))
    values["stale_completions"] = random.choice(KNOBS["stale_completions"].order)
    if random.random() < 0.5:
        return 0
    apart = int(values["tensor_parallel_size"]) * random.choice((1, 2))
    every = int(values["steps_per_generation"]) // int(values["gradient_accumulation_steps"])
    values.update({"rollout_mode": "server", "rollout_gpus": apart, "weight_sync_every": every})
    values["weight_sync_backend"] = random.choice(KNOBS["weight_sync_backend"].order[1:])
    return apart


def machine(gpus: int) -> Resources:
    return combinations.machine("verl", gpus, ModelFacts(attention_heads=16, key_value_heads=4, max_positions=8192))


def _acts(name: str, values: Mapping[str, KnobValue]) -> bool:
    """A knob that cannot act is left out: set, it would have to rest."""
    defaults = {"rollout_engine": "vllm", "rollout_mode": "colocate", "fsdp": "fsdp1", "enforce_eager": False}
    needs = KNOBS[name].needs
    return all({**defaults, **values}.get(other, False) in wanted for other, wanted in needs.items())


def anything(random: Random) -> Combination:
    """A combination verl can be told and may refuse: any batch of whole groups, any split of sequences."""
    gpus = random.choice((2, 4, 8))
    sharing = random.choice([n for n in (1, 2, 4, 8) if gpus % n == 0])
    group, micro, ranks = random.choice((2, 3, 4)), random.choice((1, 2, 3)), gpus // sharing
    whole = group // math.gcd(group, ranks * micro)
    values: dict[str, KnobValue] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": whole * random.randint(1, 4),
        "num_generations": group,
        "steps_per_generation": whole * random.randint(1, 6),
        "sequence_parallel_size": sharing,
        "dynamic_batching": random.random() < 0.3,
        "remove_padding": random.random() < 0.7,
        "tensor_parallel_size": 1,
    }
    return Combination(Configuration(values), machine(gpus))
