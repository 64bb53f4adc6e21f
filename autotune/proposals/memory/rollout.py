"""Bytes of generation, and of the weight sync that goes before it, on one rank.

The weight sync was read in the sources of TRL 1.16 (and 0.18, which Open-R1 pins), ms-swift at 3602360 and verl at
1dda039. A rollout server changes none of this: the ranks that train gather the same before they send it.

* TRL gathers ZeRO-3's weights one by one, and all at once to merge an adapter (``vllm_generation.py`` 478 and 447;
  0.18: ``grpo_trainer.py`` 937 and 903); of FSDP2 one by one, adapter or not (``_iter_fsdp_params``).
* ms-swift gathers all weights at once, adapter or not, unless ``move_model_batches`` cuts them (``rollout_mixin.py``
  564, 674 and 1010). Of FSDP2 it holds the whole of a batch too, and merges an adapter into a copy (839 and 909).
* verl makes one parameter whole at a time (``engine/fsdp/transformer_impl.py`` 1009) and copies it into a buffer
  (``bucketed_weight_transfer.py`` 178). For an adapter FSDP1 makes the whole model whole, with ``weight_sync_layered``
  one layer (``fsdp_utils.py`` 752 and 690).

The engine's weights are awake meanwhile, its cache sleeps on where it does (TRL 491, ms-swift 1191, verl
``engine_workers.py`` 781): see ``features``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import Dimensions, Settings, stored_bytes
from search_spaces.adapters import is_lora
from search_spaces.frameworks import WeightSync, facts_of

GIB = 1 << 30
TYPICAL_DEVICE = 80 * GIB
"""Where a GPU's memory is not known."""
GRAPHS = 0.4 * GIB
"""CUDA graphs of an engine, outside its share (0.3 to 0.5 GiB, reference notes on vLLM)."""
ASLEEP = 0.6 * GIB
"""What a sleeping engine keeps: context, workspaces, what is not in its pool."""
COMPILED = 45e6
"""What an engine on a CPU holds besides when it runs code that was compiled for it."""
BATCH_TOKENS, BATCH_OF_PAGES = (256.0, 8192.0), 0.1
"""Tokens of a batch of continuous batching, and how many there may be for each page."""
SAMPLED_BYTES = 12.0
"""Of a logit while the next token is drawn: fp32, its softmax, a copy."""


@dataclass(frozen=True)
class Rollout:
    """Bytes on one rank."""

    generation: Column
    """Of transformers: keys and values, the prompts' pass, the last logits, gathered weights."""
    weights: Column
    """The engine's own."""
    cache: Column
    workspace: Column
    residue: Column
    """Instead of the three while the engine sleeps."""
    sleeps: Column
    """1 where it does while training."""
    on_host: Column
    """What a sleeping engine keeps in host memory."""


def rollout(task: Task, size: Dimensions, s: Settings) -> Rollout:
    """Bytes of generation at the longest prompt and completion."""
    weights = _engine_weights(task, size, s)
    cache = _cache(task, s, weights)
    workspace, sleeps = _workspace(task, size, s), s.columns.full(0.0)
    on_host = s.columns.full(0.0)
    if task.resources.gpus:
        # trl 0.18 never calls ``sleep``, whatever the engine was built with.
        sleeper = float(facts_of(task.resources.framework).puts_engine_to_sleep)
        level = s.columns.number("sleep_level") * s.colocated * sleeper
        sleeps = (level > 0).astype(float)
        on_host = weights * (level == 1)
    return Rollout(
        generation=_generation(task, size, s) * (1.0 - s.vllm),
        weights=weights * s.colocated,
        cache=cache * s.colocated,
        workspace=workspace * s.colocated,
        residue=ASLEEP * sleeps,
        sleeps=sleeps,
        on_host=on_host,
    )


def _engine_weights(task: Task, size: Dimensions, s: Settings) -> Column:
    tensor = np.maximum(1.0, s.columns.number("tensor_parallel_size", 1.0)) if task.resources.gpus else 1.0
    # On a CPU every weight is repacked, the LM head beside the embedding it shares, and what was loaded stays
    # (vLLM's ``dispatch_cpu_unquantized_gemm``).
    copies = 1.0 if task.resources.gpus else 2.0
    each = copies * s.columns.level("rollout_dtype", {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "auto": 2.0}, 2.0)
    each = np.where(s.columns.has("rollout_quantization", "fp8") > 0, np.minimum(each, 1.1), each)
    return np.asarray(size.parameters * each / tensor)


def _cache(task: Task, s: Settings, weights: Column) -> Column:
    """Bytes asked for where they are; else what the engine's share of the device leaves beside its weights."""
    asked = s.columns.number("kv_cache_memory_bytes", float(GIB))
    if not task.resources.gpus:
        return asked
    total = float(task.resources.device_memory or TYPICAL_DEVICE)
    share = s.columns.number("gpu_memory_utilization", 0.3) * total
    return np.where(s.columns.given("kv_cache_memory_bytes") > 0, asked, np.maximum(share - weights, 0.0))


def _workspace(task: Task, size: Dimensions, s: Settings) -> Column:
    sequences = np.minimum(s.columns.number("max_num_seqs", s.generation_rows), 65536.0)
    tokens = s.columns.number("max_num_batched_tokens", 4096.0)
    if not task.resources.gpus:
        drawn = sequences * size.vocabulary * SAMPLED_BYTES + COMPILED * (1.0 - s.columns.number("enforce_eager"))
        return np.asarray(drawn + np.minimum(tokens, s.generation_rows * s.length) * size.width * 20.0)
    graphs = GRAPHS * (1.0 - s.columns.number("enforce_eager"))
    return np.asarray(graphs * np.sqrt(s.columns.number("cuda_graph_max_batch", 512.0) / 512.0))


def _generation(task: Task, size: Dimensions, s: Settings) -> Column:
    number = 2.0 + 2.0 * s.wide * (1.0 - s.low)
    # The cache grows by concatenation: the old and the new of one layer are there at once, rounded up to a fifth.
    cache = s.generation_rows * s.length * size.kv_values * number * 1.2
    paged = _pages(task, size, s, number)
    cache = np.where((s.columns.number("continuous_batching") > 0) & (paged > 0), paged, cache)
    prompts = s.generation_rows * float(task.max_prompt_length) * size.width * 20.0
    drawn = s.generation_rows * size.vocabulary * SAMPLED_BYTES
    sharded = ((s.stage >= 3) | (s.fsdp > 0)) & (s.ranks > 1)
    gathered = np.where(s.columns.number("zero3_gather_for_generation", 1.0) > 0, size.parameters, 0.0)
    return np.asarray(cache + prompts + drawn + sharded * gathered * s.held_bytes)


def _pages(task: Task, size: Dimensions, s: Settings, number: Column) -> Column:
    """Returns bytes of keys and values of continuous batching, by transformers' ``PagedAttentionMemoryHandler``: its
    share of the machine's memory goes to pages (one token each) and to the tokens of a batch."""
    there = task.resources.device_memory or TYPICAL_DEVICE if task.resources.gpus else task.resources.host_memory or 0
    share = s.columns.number("continuous_batching_memory", 0.5) * float(there)
    page, token = size.kv_values * number, size.width * number + 4.0 * size.vocabulary
    batch = np.clip(share / (page / BATCH_OF_PAGES + token), *BATCH_TOKENS)
    read = page * (1.0 + 1.0 / size.layers)
    return np.asarray(np.maximum(0.0, np.minimum((share - batch * token) / page, share / read) * page))


MIB = 1 << 20
MERGED = "actor_rollout_ref.model.lora.merge"


@dataclass(frozen=True)
class Sync:
    """Bytes, and shares, on one rank."""

    whole: Column
    """Weights that are whole beside the shards, and buffers they are copied into."""
    weights_away: Column
    """1 where trained weights that wait on the host during generation do so during the sync too."""
    states_away: float
    """The same of optimizer state."""


def sync(task: Task, size: Dimensions, s: Settings) -> Sync:
    """Bytes that the framework's weight sync holds, where vLLM generates."""
    stored = stored_bytes(task.passthrough)
    held = s.held_bytes if stored is None else s.columns.full(stored)
    lora = is_lora(task.passthrough, task.resources.framework)
    way = facts_of(task.resources.framework).weight_sync
    sharded = ((s.stage >= 3) | (s.fsdp > 0) | (s.megatron > 0)) & (s.ranks > 1)
    if way is WeightSync.BATCHES:
        # Megatron-SWIFT gathers one parameter after the other (``swift/megatron/trainers/rollout_mixin.py:623``).
        batch = np.where(s.megatron > 0, _largest(size), _batch(size, s))
        whole = sharded * held * batch * np.where(s.fsdp > 0, 1.0 + lora, 1.0) + _sent(s)
    elif way is WeightSync.BUCKETS:
        summoned = _summoned(task, size, s) if lora else _largest(size)
        whole = sharded * held * np.where(s.columns.has("fsdp", "fsdp1") * s.fsdp > 0, summoned, _largest(size))
        whole = whole + np.minimum(s.columns.number("weight_sync_bucket_mib", 2048.0) * MIB, size.parameters * held)
    else:
        whole = sharded * held * np.where((s.stage >= 3) & lora, size.parameters, _largest(size))
    buckets = way is WeightSync.BUCKETS
    lazily = s.columns.has("fsdp", "fsdp2") * float(buckets and not lora)
    return Sync(np.asarray(whole * s.vllm), lazily, float(buckets))


def _largest(size: Dimensions) -> float:
    """Weights of the largest parameter: the embedding, or a matrix of the MLP."""
    return max(size.vocabulary, size.inner) * size.width


def _batch(size: Dimensions, s: Settings) -> Column:
    """Weights of the largest batch of ms-swift's: some of the layers, or the embedding with the LM head."""
    batches = np.maximum(1.0, s.columns.number("weight_sync_batches", 1.0))
    layer = (size.parameters - size.vocabulary * size.width) / size.layers
    part = np.maximum(np.ceil(size.layers / batches) * layer, 2.0 * size.vocabulary * size.width)
    return np.where(batches > 1, np.minimum(part, size.parameters), size.parameters)


def _sent(s: Settings) -> Column:
    """ms-swift's flattened copy of what it sends a rollout server at a time (``rollout_mixin.py`` 784)."""
    return (s.vllm - s.colocated) * s.columns.number("weight_sync_bucket_mib", 512.0) * MIB


def _summoned(task: Task, size: Dimensions, s: Settings) -> Column | float:
    """Weights that FSDP1 makes whole to collect an adapter."""
    if task.passthrough.get(MERGED) is True:
        return _largest(size)
    layer = (size.parameters - size.vocabulary * size.width) / size.layers
    return np.where(s.columns.number("weight_sync_layered") > 0, layer, size.parameters)
