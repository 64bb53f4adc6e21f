"""Bytes of generation, and of the preceding weight sync, on one rank.

The weight sync follows the sources of TRL 1.16 (and 0.18, which Open-R1 pins), ms-swift at 3602360 and verl at 1dda039.
A rollout server changes nothing here: the training ranks gather the same before they send it.

* TRL gathers ZeRO-3's weights one by one, and all at once to merge an adapter (``vllm_generation.py`` 478 and 447;
  0.18: ``grpo_trainer.py`` 937 and 903); of FSDP2 one by one, adapter or not (``_iter_fsdp_params``).
* ms-swift gathers all weights at once, adapter or not, unless ``move_model_batches`` cuts them (``rollout_mixin.py``
  564, 674 and 1010), and sends a server a flattened copy at a time (784). Of FSDP2 it holds the whole of a batch too,
  and merges an adapter into a copy (839 and 909). Megatron-SWIFT gathers one parameter after the other
  (``swift/megatron/trainers/rollout_mixin.py:623``).
* verl makes one parameter whole at a time (``engine/fsdp/transformer_impl.py`` 1009) and copies it into a buffer
  (``bucketed_weight_transfer.py`` 178). For an adapter FSDP1 makes the whole model whole, with ``weight_sync_layered``
  one layer (``fsdp_utils.py`` 752 and 690).

Meanwhile the engine's weights are awake; its cache, if it was asleep, stays asleep (TRL 491, ms-swift 1191, verl
``engine_workers.py`` 781).
"""

from __future__ import annotations

import numpy as np

from autotune.proposals.forecasts import Column
from autotune.proposals.memory.parts import Ledger, Moment, Part
from autotune.proposals.memory.settings import Settings
from search_spaces.frameworks import WeightSync

GIB, MIB = 1 << 30, 1 << 20
TYPICAL_DEVICE = 80 * GIB
"""Presumed memory of a GPU, where it is not known."""
GRAPHS, ASLEEP = 0.4 * GIB, 0.6 * GIB
"""Bytes of an engine's CUDA graphs outside its share (0.3 to 0.5 GiB, reference notes on vLLM); of context and
workspaces that it keeps while it sleeps."""
COMPILED = 45e6
"""Bytes of compiled code that an engine on a CPU holds (recorded tables)."""
BATCH_TOKENS, BATCH_OF_PAGES = (256.0, 8192.0), 0.1
"""Least and most tokens in a batch of continuous batching; most tokens per page (transformers)."""
SAMPLED_BYTES = 12.0
"""Bytes of a logit while the next token is drawn: fp32, its softmax, a copy."""
MERGED = "actor_rollout_ref.model.lora.merge"
"""Key of verl by which an adapter is merged before it is sent."""


def add_rollout(s: Settings, ledger: Ledger) -> None:
    """Adds generation at the longest prompt and completion, by transformers or by a colocated engine."""
    weights = _engine_weights(s)
    cache, workspace = _cache(s, weights), _workspace(s)
    # trl 0.18 never calls ``sleep``, whatever the engine was built with.
    level = s.columns.number("sleep_level") * s.colocated * float(s.gpus and s.framework.puts_engine_to_sleep)
    awake = (level <= 0) * s.colocated
    ledger.add(Part.GENERATION, _generation(s) * (1.0 - s.vllm), Moment.GENERATE)
    ledger.add(Part.ROLLOUT, (weights + cache + workspace) * s.colocated, Moment.GENERATE)
    ledger.add(Part.ROLLOUT, (cache + workspace) * awake + ASLEEP * (level > 0) + weights * s.colocated, Moment.SYNC)
    rest = (weights + cache + workspace) * awake + ASLEEP * (level > 0)
    ledger.add(Part.ROLLOUT, rest, Moment.LOGPROB, Moment.UPDATE, Moment.STEP)
    ledger.add_beside(Part.OFFLOADED, weights * (level == 1))
    ledger.add(Part.SYNC, _sync(s) * s.vllm, Moment.SYNC)


def _engine_weights(s: Settings) -> Column:
    tensor = np.maximum(1.0, s.columns.number("tensor_parallel_size", 1.0)) if s.gpus else 1.0
    # On a CPU every weight is repacked, the LM head beside the embedding it shares, and the loaded ones stay
    # (vLLM's ``dispatch_cpu_unquantized_gemm``).
    copies = 1.0 if s.gpus else 2.0
    each = copies * s.columns.level("rollout_dtype", {"fp32": 4.0}, 2.0)
    each = np.where(s.columns.has("rollout_quantization", "fp8") > 0, np.minimum(each, 1.1), each)
    return np.asarray(s.size.parameters * each / tensor)


def _cache(s: Settings, weights: Column) -> Column:
    """Returns the bytes of the engine's KV cache: the requested ones, else its memory share minus its weights."""
    asked = s.columns.number("kv_cache_memory_bytes", float(GIB))
    if not s.gpus:
        return asked
    total = float(s.task.resources.device_memory or TYPICAL_DEVICE)
    share = s.columns.number("gpu_memory_utilization", 0.3) * total
    return np.where(s.columns.given("kv_cache_memory_bytes") > 0, asked, np.maximum(share - weights, 0.0))


def _workspace(s: Settings) -> Column:
    """Returns bytes of CUDA graphs and buffers outside the engine's share."""
    if s.gpus:
        captured = np.sqrt(s.columns.number("cuda_graph_max_batch", 512.0) / 512.0)
        return GRAPHS * (1.0 - s.columns.number("enforce_eager")) * captured
    sequences = np.minimum(s.columns.number("max_num_seqs", s.generation_rows), 65536.0)
    tokens = np.minimum(s.columns.number("max_num_batched_tokens", 4096.0), s.generation_rows * s.length)
    compiled = COMPILED * (1.0 - s.columns.number("enforce_eager"))
    return np.asarray(sequences * s.size.vocabulary * SAMPLED_BYTES + compiled + tokens * s.size.width * 20.0)


def _generation(s: Settings) -> Column:
    """Returns bytes of generation by transformers: KV cache, the pass over the prompts, the last logits, and gathered
    weights."""
    size, rows = s.size, s.generation_rows
    number = 2.0 + 2.0 * s.wide * (1.0 - s.low)
    # The cache grows by concatenation: the old and the new of one layer are there at once, rounded up to a fifth.
    cache = rows * s.length * size.kv_values * number * 1.2
    paged = _pages(s, number)
    cache = np.where((s.columns.number("continuous_batching") > 0) & (paged > 0), paged, cache)
    drawn = rows * (float(s.task.max_prompt_length) * size.width * 20.0 + size.vocabulary * SAMPLED_BYTES)
    sharded = ((s.stage >= 3) | (s.fsdp > 0)) & (s.ranks > 1)
    whole = sharded & (s.columns.number("zero3_gather_for_generation", 1.0) > 0)
    return np.asarray(cache + drawn + whole * size.parameters * s.weight_bytes)


def _pages(s: Settings, number: Column) -> Column:
    """Returns bytes of keys and values of continuous batching, by transformers' ``PagedAttentionMemoryHandler``: it
    divides its share of the memory between pages (one token each) and the tokens of a batch."""
    machine, size = s.task.resources, s.size
    there = machine.device_memory or TYPICAL_DEVICE if s.gpus else machine.host_memory or 0
    share = s.columns.number("continuous_batching_memory", 0.5) * float(there)
    page, token = size.kv_values * number, size.width * number + 4.0 * size.vocabulary
    batch = np.clip(share / (page / BATCH_OF_PAGES + token), *BATCH_TOKENS)
    read = page * (1.0 + 1.0 / size.layers)
    return np.asarray(np.maximum(0.0, np.minimum((share - batch * token) / page, share / read) * page))


def _sync(s: Settings) -> Column:
    """Returns bytes of weights gathered from shards, and of the buffers they are copied into."""
    size, c, way = s.size, s.columns, s.framework.weight_sync
    stored = s.stored_bytes
    sharded = ((s.stage >= 3) | (s.fsdp > 0) | (s.megatron > 0)) & (s.ranks > 1)
    if way is WeightSync.PARAMETERS:
        return sharded * stored * np.where((s.stage >= 3) & s.lora, size.parameters, size.largest)
    if way is WeightSync.BUCKETS:
        layered = np.where(c.number("weight_sync_layered") > 0, size.layer, size.parameters)
        summons = (c.has("fsdp", "fsdp1") * s.fsdp > 0) & s.lora & (s.task.passthrough.get(MERGED) is not True)
        bucket = np.minimum(c.number("weight_sync_bucket_mib", 2048.0) * MIB, size.parameters * stored)
        return sharded * stored * np.where(summons, layered, size.largest) + bucket
    batches = np.maximum(1.0, c.number("weight_sync_batches", 1.0))
    part = np.maximum(np.ceil(size.layers / batches) * size.layer, 2.0 * size.embedding)
    batch = np.where(batches > 1, np.minimum(part, size.parameters), size.parameters)
    whole = np.where(s.megatron > 0, size.largest, batch) * np.where(s.fsdp > 0, 1.0 + s.lora, 1.0)
    sent = (s.vllm - s.colocated) * c.number("weight_sync_bucket_mib", 512.0) * MIB
    return np.asarray(sharded * stored * whole + sent)
