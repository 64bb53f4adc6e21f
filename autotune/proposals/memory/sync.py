"""Bytes of the weight sync on one training rank: what is whole while trained weights go to the rollout engine.

Read in the sources of TRL 1.16 (and 0.18, which Open-R1 pins), ms-swift at 3602360 and verl at 1dda039.
A rollout server changes none of this: the ranks that train gather the same before they send it.

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
from autotune.proposals.memory.dimensions import Dimensions, stored_bytes
from autotune.proposals.memory.settings import Settings
from search_spaces.adapters import is_lora
from search_spaces.frameworks import WeightSync, facts_of

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
    """What the framework's way of syncing holds, where vLLM generates."""
    stored = stored_bytes(task.passthrough)
    held = s.held_bytes if stored is None else s.columns.full(stored)
    lora = is_lora(task.passthrough, task.resources.framework)
    way = facts_of(task.resources.framework).weight_sync
    sharded = ((s.stage >= 3) | (s.fsdp > 0)) & (s.ranks > 1)
    if way is WeightSync.BATCHES:
        whole = sharded * held * _batch(size, s) * np.where(s.fsdp > 0, 1.0 + lora, 1.0) + _sent(s)
    elif way is WeightSync.BUCKETS:
        summoned = _summoned(task, size, s) if lora else _largest(size)
        whole = sharded * held * np.where(s.columns.has("fsdp", "fsdp1") > 0, summoned, _largest(size))
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
