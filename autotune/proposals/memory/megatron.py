"""Bytes of training with Megatron-Core on one GPU, the fullest of a pipeline.

Weights, gradients and optimizer state are those of Megatron's mixed precision with its distributed optimizer: 2 bytes
of a weight, 4 of its gradient, 12 of its state, which data-parallel ranks share (Megatron-LM's page on its distributed
optimizer: 6 + 12/d). Activations are counted as Korthikanti et al. do (arXiv 2205.05198, equations 1 to 5), for flash
attention, a gated MLP and fused kernels; the first of several stages keeps those of as many micro-batches as there are
stages (Narayanan et al., arXiv 2104.04473, 1F1B), and (p - 1)/(p v) more where stages have v parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import Dimensions, Settings, trainable
from search_spaces.adapters import is_lora
from search_spaces.configuration import ModelFacts
from search_spaces.frameworks import facts_of

WEIGHT, GRADIENT, STATE = 2.0, 4.0, 12.0
"""Bytes of each weight: bf16; an fp32 buffer; fp32 copy and two moments."""
TOKENS_APART, TOKENS_SPLIT, EXPERT_COPIES = 8.0, 4.0, 2.0
"""Of activations a token and hidden unit leave in a layer: inputs of both norms and of both parts behind them, shared
out by sequence parallelism only; queries and what attention made, by tensor parallelism; the input of
each chosen expert (what it makes is weighed before the last product, and nothing keeps it)."""
KEPT = 2.0
"""The input of a layer that is computed again."""
LOGITS, LOGITS_READ = 8.0, 6.0
"""Of a logit: in bf16, and in fp32, where the softmax and its gradient take the place of what they are made of
(``tensor_parallel/cross_entropy.py`` of Megatron-Core); with gradients one more in bf16."""
FUSED = 0.15
"""Of them, what is left where the head and the loss are one kernel."""


@dataclass(frozen=True)
class Split:
    """Layout of a model on the GPUs."""

    tensor: Column
    stages: Column
    parts: Column
    """Of each stage, dealt out in turn."""
    layers: Column
    """Of the fullest stage."""
    dense: Column
    """Weights of it on one GPU, without experts."""
    experts: Column
    """The same of experts."""
    sharing: Column
    """Ranks that share optimizer state of the dense weights."""
    expert_sharing: Column


def split(facts: ModelFacts, size: Dimensions, s: Settings) -> Split:
    """The split that the columns ask for."""
    c = s.columns
    tensor, stages = c.number("training_tensor_parallel_size", 1.0), c.number("pipeline_parallel_size", 1.0)
    expert = np.maximum(1.0, c.number("expert_parallel_size", 1.0))
    expert_tensor = np.maximum(1.0, c.number("expert_tensor_parallel_size", tensor))
    first, last = c.number("first_stage_layers", 0.0), c.number("last_stage_layers", 0.0)
    between = np.maximum(1.0, stages - (first > 0) - (last > 0))
    layers = np.maximum(np.maximum(first, last), np.ceil(np.maximum(0.0, size.layers - first - last) / between))
    layers = np.where(stages > 1, np.minimum(layers, size.layers), size.layers)
    experts = min(float(facts.expert_parameters or 0), size.parameters)
    outside = size.vocabulary * size.width  # the embedding, or the head: the first and the last stage have one
    inside = (size.parameters - experts - outside) * layers / size.layers
    return Split(
        tensor=tensor,
        stages=stages,
        parts=np.maximum(1.0, c.number("virtual_pipeline_size", 1.0)),
        layers=layers,
        dense=(inside + outside) / tensor,
        experts=experts * layers / size.layers / (expert * expert_tensor),
        sharing=np.maximum(1.0, s.ranks / (tensor * stages)),
        expert_sharing=np.maximum(1.0, s.ranks / (expert * expert_tensor * stages)),
    )


def held(task: Task, size: Dimensions, s: Settings) -> dict[str, Column]:
    """Bytes of weights, gradients and optimizer state, and those kept on the host, as ``training.States`` has them."""
    found = split(task.resources.model, size, s)
    part = trainable(task.passthrough, task.resources.framework, size) / size.parameters
    shared = s.columns.number("distributed_optimizer", 1.0) > 0
    states = np.where(
        shared, found.dense / found.sharing + found.experts / found.expert_sharing, found.dense + found.experts
    )
    states = STATE * part * states
    framework, passthrough = task.resources.framework, task.passthrough
    second = facts_of(framework).megatron_holds_reference and not is_lora(passthrough, framework)
    away = np.clip(s.columns.number("optimizer_offload_share", 0.0), 0.0, 1.0)
    weights = found.dense + found.experts
    gradients = GRADIENT * part * weights  # a buffer that is there from the start
    return {
        "weights": WEIGHT * (1.0 + second) * weights,
        "gradients": gradients,
        "early": gradients,
        "optimizer": states * (1.0 - away),
        "offloaded": states * away,
    }


def passing(task: Task, size: Dimensions, s: Settings, tokens: Column, passed: Column) -> dict[str, Column]:
    """Returns bytes of activations and logits with Megatron (``training.Transients``), for the ``tokens`` of an
    update's micro-batch on a GPU and the ``passed`` of the log-prob pass's."""
    found = split(task.resources.model, size, s)
    apart = np.where(s.columns.number("megatron_sequence_parallel", 1.0) > 0, found.tensor, 1.0)
    each = size.width * (TOKENS_APART / apart + _split_units(task.resources.model, size) / found.tensor)
    kept = KEPT * size.width / apart
    stage, alive = _recomputed(s, found.layers, each, kept)
    # As many micro-batches as stages are under way on the first; the last has one, and the logits.
    count = np.where(s.columns.number("dynamic_batching") > 0, found.stages, np.minimum(found.stages, s.accumulation))
    turns = np.where(found.parts > 1, 1.0 + (found.stages - 1.0) / (found.stages * found.parts), 1.0)
    first, last = tokens * (stage * count * turns + alive), tokens * (stage + alive)
    fused = np.where(s.columns.number("fused_loss") > 0, FUSED, 1.0)
    logits = tokens * size.vocabulary / found.tensor * LOGITS * fused
    ahead = (found.stages > 1) & (first > last + logits)
    return {
        "activations": np.where(ahead, first, last),
        "logits": np.where(ahead, 0.0, logits),
        "logprob_activations": passed * each,
        "logprob_logits": passed * size.vocabulary / found.tensor * LOGITS_READ * fused,
    }


def _recomputed(s: Settings, layers: Column, each: Column, kept: Column) -> tuple[Column, Column]:
    """Bytes of a token that a stage keeps, and those of layers that are being computed again."""
    full = s.columns.has("recompute_granularity", "full")
    number = np.clip(s.columns.number("recompute_layers", 1.0), 1.0, layers)
    uniform = kept * np.ceil(layers / number), each * number
    block = kept * number + each * (layers - number), each
    is_block = s.columns.has("recompute_method", "block") > 0
    stage, alive = (np.where(is_block, b, u) for b, u in zip(block, uniform, strict=True))
    return np.where(full > 0, np.minimum(stage, each * layers), each * layers), np.where(full > 0, alive, 0.0)


def _split_units(facts: ModelFacts, size: Dimensions) -> float:
    """Returns the units per token and hidden unit that tensor parallelism shares out: both products of a gated MLP and
    their outputs, in the width that a token meets."""
    chosen, inner = float(facts.chosen_experts or 0), size.inner
    if facts.experts and facts.expert_parameters:
        inner = facts.expert_parameters * chosen / facts.experts / (3.0 * size.width * size.layers)
    inner = inner / size.width
    return TOKENS_SPLIT + 4.0 * size.kv_heads / size.heads + 6.0 * inner + EXPERT_COPIES * chosen
