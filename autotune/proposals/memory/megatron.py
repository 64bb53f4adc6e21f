"""Bytes of training with Megatron-Core on one GPU, in the largest stage of the pipeline.

Weights, gradients and optimizer state are those of Megatron's mixed precision with its distributed optimizer: 2 bytes
of a weight, 4 of its gradient, 12 of its state, which data-parallel ranks share (Megatron-LM's page on its distributed
optimizer: 6 + 12/d). Activations follow Korthikanti et al. (arXiv 2205.05198, equations 1 to 5), for flash attention, a
gated MLP and fused kernels. The first of several stages keeps those of as many micro-batches as there are stages
(Narayanan et al., arXiv 2104.04473, 1F1B), and (p - 1)/(p v) more if stages have v parts.
"""

from __future__ import annotations

import numpy as np

from autotune.proposals.forecasts import Column
from autotune.proposals.memory.settings import Settings

WEIGHT, GRADIENT, STATE = 2.0, 4.0, 12.0
"""Bytes of each weight: bf16; an fp32 buffer; fp32 copy and two moments."""
TOKENS_APART, TOKENS_SPLIT, EXPERT_COPIES = 8.0, 4.0, 2.0
"""Bytes of activations per token and hidden unit in a layer: inputs of both norms and of the parts behind them (divided
by sequence parallelism only); queries and attention's output (by tensor parallelism); input of each chosen expert."""
KEPT = 2.0
"""Bytes per token and hidden unit of the kept input of a layer that is computed again."""
LOGITS = (6.0, 8.0)
"""Bytes of a logit, without and with gradients: in bf16, and in fp32, where the softmax and its gradient take the place
of their sources (``tensor_parallel/cross_entropy.py`` of Megatron-Core); with gradients one more in bf16."""
FUSED = 0.15
"""Share of logits that is left if the head and the loss are one kernel."""


def states(s: Settings) -> dict[str, Column]:
    """Returns bytes of weights, gradients and optimizer state, and of those offloaded to the host."""
    size, c = s.size, s.columns
    tensor, stages = _split(s)
    expert = np.maximum(1.0, c.number("expert_parallel_size", 1.0))
    expert = expert * np.maximum(1.0, c.number("expert_tensor_parallel_size", tensor))
    share = _layers(s) / size.layers
    every_expert = min(float(s.task.resources.model.expert_parameters or 0), size.parameters)
    # The first and the last stage have an embedding or a head.
    dense = ((size.parameters - every_expert - size.embedding) * share + size.embedding) / tensor
    experts = every_expert * share / expert
    shared = c.number("distributed_optimizer", 1.0) > 0
    sharing, expert_sharing = (np.maximum(1.0, s.ranks / (each * stages)) for each in (tensor, expert))
    part = s.trained / size.parameters
    optimizer = STATE * part * np.where(shared, dense / sharing + experts / expert_sharing, dense + experts)
    second = s.framework.megatron_holds_reference and not s.lora
    away = np.clip(c.number("optimizer_offload_share", 0.0), 0.0, 1.0)
    return {
        "weights": WEIGHT * (1.0 + second) * (dense + experts),
        "gradients": GRADIENT * part * (dense + experts),  # a buffer that is there from the start
        "optimizer": optimizer * (1.0 - away),
        "offloaded": optimizer * away,
    }


def passes(s: Settings, tokens: Column, passed: Column) -> dict[str, Column]:
    """Returns bytes of activations and logits. ``tokens``: of an update's micro-batch on a GPU; ``passed``: of the
    log-prob pass's."""
    size, c = s.size, s.columns
    tensor, stages = _split(s)
    apart = np.where(c.number("megatron_sequence_parallel", 1.0) > 0, tensor, 1.0)
    each = size.width * (TOKENS_APART / apart + _split_units(s) / tensor)
    stage, alive = _recomputed(s, each, KEPT * size.width / apart)
    # As many micro-batches as stages are under way on the first; the last has one, and the logits.
    count = np.where(c.number("dynamic_batching") > 0, stages, np.minimum(stages, s.accumulation))
    parts = np.maximum(1.0, c.number("virtual_pipeline_size", 1.0))
    turns = np.where(parts > 1, 1.0 + (stages - 1.0) / (stages * parts), 1.0)
    first, last = tokens * (stage * count * turns + alive), tokens * (stage + alive)
    logits = size.vocabulary / tensor * np.where(c.number("fused_loss") > 0, FUSED, 1.0)
    ahead = (stages > 1) & (first > last + tokens * logits * LOGITS[1])
    return {
        "activations": np.where(ahead, first, last),
        "logits": np.where(ahead, 0.0, tokens * logits * LOGITS[1]),
        "passed_activations": passed * each,
        "passed_logits": passed * logits * LOGITS[0],
    }


def _split(s: Settings) -> tuple[Column, Column]:
    """Returns the ranks that share each matrix, and the number of pipeline stages."""
    return s.columns.number("training_tensor_parallel_size", 1.0), s.columns.number("pipeline_parallel_size", 1.0)


def _layers(s: Settings) -> Column:
    """Returns the number of layers of the largest stage."""
    stages, layers = _split(s)[1], s.size.layers
    first, last = s.columns.number("first_stage_layers", 0.0), s.columns.number("last_stage_layers", 0.0)
    between = np.maximum(1.0, stages - (first > 0) - (last > 0))
    most = np.maximum(np.maximum(first, last), np.ceil(np.maximum(0.0, layers - first - last) / between))
    return np.where(stages > 1, np.minimum(most, layers), layers)


def _recomputed(s: Settings, each: Column, kept: Column) -> tuple[Column, Column]:
    """Returns bytes per token that a stage keeps, and bytes of the layers that are being recomputed."""
    layers = _layers(s)
    full = s.columns.has("recompute_granularity", "full") > 0
    block = s.columns.has("recompute_method", "block") > 0
    number = np.clip(s.columns.number("recompute_layers", 1.0), 1.0, layers)
    stage = np.where(block, kept * number + each * (layers - number), kept * np.ceil(layers / number))
    alive = np.where(block, each, each * number)
    return np.where(full, np.minimum(stage, each * layers), each * layers), np.where(full, alive, 0.0)


def _split_units(s: Settings) -> float:
    """Returns the units, per token and hidden unit, that tensor parallelism divides: both products of a gated MLP and
    their outputs, in the width that a token uses."""
    facts, size = s.task.resources.model, s.size
    chosen, inner = float(facts.chosen_experts or 0), size.inner
    if facts.experts and facts.expert_parameters:
        inner = facts.expert_parameters * chosen / facts.experts / (3.0 * size.width * size.layers)
    return TOKENS_SPLIT + 4.0 * size.kv_heads / size.heads + 6.0 * inner / size.width + EXPERT_COPIES * chosen
