"""Bytes of the training side, on one rank: what stays, and what comes and goes with a micro-batch.

``reference`` formulas (docs/decisions/0029-memory-model.md says which constants are from where): states after ZeRO
(Rajbhandari et al., SC20), activations counted as Korthikanti et al. (arXiv 2205.05198) do, of a gated MLP, TRL's tiled
LM head as in the source of ``trl.kernels.chunked_logprob``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory import megatron
from autotune.proposals.memory.settings import Dimensions, Settings, has_reference, stored_bytes, trainable
from search_spaces.frameworks import facts_of

MIB = 1 << 20
GPU_TILE_BACKWARD, GPU_TILE_FORWARD = 6.0, 4.0
"""Bytes of an element of TRL's tile by Triton, which works in place."""
CPU_TILE_BACKWARD, CPU_TILE_FORWARD = 29.0, 12.0
"""The same as torch operations, the tile itself left aside: seven fp32 tensors and one of truth values at once, or
three fp32 ones. Where the tile is in half precision, the forward pass has it in fp32 once more."""
CPU_PRODUCT = 4.0
"""After that the weight's gradient is a product in fp32 there: of an element of the tile, and of the LM head's part
that the tile is as wide as, where those are in half precision."""
FP32_LOGITS, BF16_LOGITS, FUSED_LOGITS = 12.0, 6.0, 6.0
"""Of a logit while gradients are there, of frameworks that hold all of them.

fp32 (``_get_per_token_logps`` of trl 0.18): scaled by the temperature, beside a reference model's as they come and
scaled. bf16: a log-softmax in the place of the first, as many gradients by row and stacked. Fused (verl's
``logprobs_from_logits``, flash attention in place): logits, scaled ones, one gradient.
"""
FP32_LOGITS_READ, BF16_LOGITS_READ = 8.0, 6.0
"""The same without gradients: as they come and scaled, in bf16 a log-softmax beside."""
WRITTEN_SCORES_BYTES = 6.0
"""Of one attention weight kept for the backward pass: before and after softmax, and for the product."""

EARLY = 0.25
"""Share of the gradients."""
LIVE = 5e8
"""Weights ZeRO-3 keeps whole from the forward pass to the backward pass: those it uses again within DeepSpeed's
``stage3_max_reuse_distance`` of 1e9 elements, counted there and back (its ``PartitionedParameterCoordinator``)."""

_STATE_BYTES: dict[str, float] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "paged_adamw_32bit", "stable_adamw"), 2.0),
    "schedule_free_adamw": 2.0,
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"), 0.52),
    "adamw_torch_4bit": 0.27,
    **dict.fromkeys(("lion_32bit", "paged_lion_32bit", "rmsprop", "adagrad", "muon"), 1.0),
    **dict.fromkeys(("lion_8bit", "paged_lion_8bit"), 0.26),
    **dict.fromkeys(("galore_adamw", "apollo_adamw"), 0.5),
    "adafactor": 0.05,
    "sgd": 0.0,
}
"""Optimizer state in copies of the trained weights."""


@dataclass(frozen=True)
class States:
    """Bytes a rank holds from the first update on."""

    weights: Column
    casts: Column
    gradients: Column
    early: Column
    """Of the gradients, those there are when the activations are."""
    gathered: Column
    """Weights that are whole for a moment."""
    live: Column
    """The same while the update's passes run."""
    buckets: Column
    """DDP's, which stay."""
    sent: Column
    """ZeRO's, while gradients come."""
    sent_early: Column
    """Of these, those there are when the activations are."""
    optimizer: Column
    step: Column
    offloaded: Column
    """Of these, waiting in host memory."""


def states(task: Task, size: Dimensions, s: Settings) -> States:
    """Weights, gradients and optimizer state after sharding and offloads."""
    passthrough, framework = task.passthrough, task.resources.framework
    trained = trainable(passthrough, framework, size)
    stored = stored_bytes(passthrough)
    held = s.held_bytes if stored is None else np.full_like(s.rows, stored)
    # What ZeRO-3 has to have whole at a time: two layers, one of them fetched ahead.
    layer = (size.parameters - size.vocabulary * size.width) / size.layers
    # FSDP makes them whole in what products are computed in, and casts no more than that.
    whole = np.where((s.fsdp > 0) & (s.low > 0), np.minimum(held, 2.0), held)
    gathered = np.where(_sharded(s, 3) > 1, max(layer, size.parameters * 0.02) * whole * 2.0, 0.0)
    live = np.where((s.stage >= 3) & (s.ranks > 1), np.maximum(gathered, min(size.parameters, LIVE) * held), gathered)
    # A reference model is shared out as the trained one is (``prepare_deepspeed`` of ``trl/models/utils.py`` 266).
    models = 1.0 + float(has_reference(passthrough, framework))
    weights = size.parameters * held * models / _sharded(s, 3)
    gradients = trained * s.held_bytes / _sharded(s, 2)
    # Without accumulation the last update's are gone, and this one's come as the activations go.
    early = np.where(s.accumulation <= 1, EARLY, 1.0)
    # Stages 1 and 2 always train a copy in fp32, 3 where the weights are not in fp32 already; torch trains the weights.
    deepspeed = s.stage > 0
    state_bytes = np.where(deepspeed, 4.0, s.held_bytes)
    copies = s.columns.level("optimizer", _STATE_BYTES, 2.0)
    trained_apart = deepspeed & ((s.wide == 0) | (s.stage < 3))
    optimizer = trained * (copies * state_bytes + np.where(trained_apart, 4.0, 0.0)) / _sharded(s, 1)
    casts = 2.0 * trained * s.wide * s.low * (1.0 - s.fsdp) / _sharded(s, 3)
    step = trained * s.held_bytes * s.columns.has("optimizer", "adamw_torch") / _sharded(s, 1)
    if not task.resources.gpus:
        step = step * (size.vocabulary * size.width / size.parameters)  # a tensor at a time, the embedding is largest
    # DeepSpeed flattens its part of the gradients into one fp32 tensor.
    step = np.where(deepspeed, 4.0 * trained / _sharded(s, 1), step)
    weights, gradients, optimizer, step, away = _offloaded(s, weights, gradients, optimizer, step)
    lasting, passing = _buckets(s, trained)
    found = States(
        weights=weights,
        casts=casts,
        gradients=gradients,
        early=gradients * early,
        gathered=gathered,
        live=live,
        buckets=lasting,
        sent=passing,
        sent_early=passing * early,
        optimizer=optimizer,
        step=step,
        offloaded=away,
    )
    return States(**_with_megatron(s, found, megatron.held(task, size, s))) if s.megatron.any() else found


def _with_megatron(s: Settings, found: States | Transients, theirs: Mapping[str, Column]) -> dict[str, Column]:
    """``found`` with Megatron's bytes in its place where it trains."""
    return {name: np.where(s.megatron > 0, theirs.get(name, 0.0), value) for name, value in vars(found).items()}


def _sharded(s: Settings, stage: int) -> Column:
    """Ranks that share what ZeRO shares from ``stage`` on; FSDP shares everything."""
    return np.where((s.stage >= stage) | (s.fsdp > 0), s.ranks, 1.0)


def _offloaded(
    s: Settings, weights: Column, gradients: Column, optimizer: Column, step: Column
) -> tuple[Column, Column, Column, Column, Column]:
    """The four without what waits elsewhere, and what waits in host memory (NVMe holds the rest)."""
    everything = s.fsdp * s.columns.number("fsdp_offload")
    zero2, zero3 = (s.stage >= 2).astype(float), (s.stage >= 3).astype(float)
    states_there = zero2 * s.columns.has("offload_optimizer", "cpu", "nvme")
    weights_there = zero3 * s.columns.has("offload_parameters", "cpu", "nvme")
    states_host = zero2 * s.columns.has("offload_optimizer", "cpu")
    weights_host = zero3 * s.columns.has("offload_parameters", "cpu")
    host = everything * (weights + gradients + optimizer)
    host = host + (1.0 - everything) * (states_host * (optimizer + gradients) + weights_host * weights)
    states_left = 1.0 - np.maximum(everything, states_there)
    weights_left = 1.0 - np.maximum(everything, weights_there)
    return weights * weights_left, gradients * (1.0 - everything), optimizer * states_left, step * states_left, host


def _buckets(s: Settings, trained: float) -> tuple[Column, Column]:
    """Bytes of the buckets that ranks exchange, DDP and ZeRO; nothing on one rank."""
    several = (s.ranks > 1).astype(float)
    plain = several * (s.stage == 0) * (s.fsdp == 0)
    # DDP's buckets hold every gradient once more.
    bytes_ = plain * trained * s.held_bytes
    reduce_, gather = s.columns.number("zero_reduce_bucket", 5e8), s.columns.number("zero_allgather_bucket", 5e8)
    twice = 1.0 + s.columns.number("zero_overlap")
    moved = np.minimum(reduce_, trained) * twice + np.minimum(gather, trained)
    moved = moved + (s.stage >= 3) * np.minimum(s.columns.number("zero_prefetch_bucket", 5e7), trained)
    return bytes_, np.asarray((s.stage >= 1) * several * moved * 2.0)


@dataclass(frozen=True)
class Transients:
    """Bytes of one micro-batch on a rank, in the update and in the log-prob pass."""

    activations: Column
    activations_host: Column
    """Of these, waiting on the host of a GPU run."""
    scores: Column
    logits: Column
    logprob_activations: Column
    logprob_scores: Column
    logprob_logits: Column


def transients(task: Task, size: Dimensions, s: Settings) -> Transients:
    """Activations, attention scores and logits at maximum prompt and completion."""
    c = s.columns
    dynamic = c.number("dynamic_batching")
    # A budget is of one GPU: verl multiplies it by the ranks that share a sequence (``engine/utils.py`` 111).
    tokens = np.where(dynamic > 0, c.number("update_tokens", 16384.0), s.rows * s.length / s.parallel)
    rows = c.number("logprob_rows", s.rows)
    # One longest row has to fit whatever the budget is.
    tokens = np.maximum(tokens, s.length / s.parallel)
    budget = c.number("logprob_tokens", c.number("update_tokens", 16384.0))
    passed = np.where(dynamic > 0, budget, rows * s.length / s.parallel)
    passed = np.maximum(passed, s.length / s.parallel)
    layer = _layer_bytes(size, s) * size.width
    kept = np.minimum(layer, (2.0 + 2.0 * s.wide) * size.width) * tokens * size.layers
    one = layer * tokens
    whole = layer * tokens * size.layers
    activations = np.where(s.checkpointed > 0, np.minimum(kept + one, whole), whole)
    away = c.number("activation_offload") * float(task.resources.gpus > 0)
    eager = c.has("attn_implementation", "eager")
    each = eager * size.heads * s.length / s.parallel
    kept_layers = np.where(s.checkpointed > 0, 2.0, np.maximum(2.0, size.layers))
    found = Transients(
        activations=activations * (1.0 - 0.85 * away),
        activations_host=activations * 0.85 * away,
        scores=each * tokens * WRITTEN_SCORES_BYTES * kept_layers,
        logits=_logits(task, size, s, tokens, backward=True),
        logprob_activations=layer * passed,
        logprob_scores=each * passed * WRITTEN_SCORES_BYTES * 2.0,
        logprob_logits=_logits(task, size, s, passed, backward=False),
    )
    if not s.megatron.any():
        return found
    return Transients(**_with_megatron(s, found, megatron.passing(task, size, s, tokens, passed)))


def _layer_bytes(size: Dimensions, s: Settings) -> Column:
    """Returns bytes of activations per token and hidden unit that PyTorch saves of one layer: two norms in fp32 with
    input and output, five units of attention, four of the MLP's own width."""
    inner = 4.0 * size.inner / size.width
    half = np.where(s.wide > 0, 30.0, 26.0) + 2.0 * inner
    return np.where(s.low > 0, half, 4.0 * (10.0 + inner)) * (1.0 - 0.15 * s.columns.number("hub_kernels"))


def _logits(task: Task, size: Dimensions, s: Settings, tokens: Column, *, backward: bool) -> Column:
    """Tiles of the LM head, or all of the logits; ``tokens`` of the pass, prompts included."""
    machine, c = task.resources, s.columns
    completion = task.max_completion_length / max(1.0, task.max_prompt_length + task.max_completion_length)
    # On a GPU only completions are projected; torch operations of fixed shapes, and packed rows, project all.
    positions = tokens * (np.where(c.number("remove_padding") > 0, 1.0, completion) if machine.gpus else 1.0)
    if facts_of(machine.framework).tiles_lm_head:
        wide = np.minimum(size.vocabulary, c.number("logprob_vocab_chunk", 32768.0))
        high = np.minimum(positions, c.number("logprob_token_chunk", 4096.0))
        if machine.gpus:
            bytes_ = wide * high * (GPU_TILE_BACKWARD if backward else GPU_TILE_FORWARD)
        else:
            bytes_ = _cpu_tile(size, s, wide, high, backward=backward)
    else:
        chunked = 1.0 - 0.5 * c.number("entropy_chunking")
        whole = positions * size.vocabulary * _logit_bytes(task, s, backward=backward) * chunked
        bytes_ = whole * (1.0 - 0.85 * c.number("fused_loss"))
    if backward:
        trained = trainable(task.passthrough, machine.framework, size) >= size.parameters
        bytes_ = bytes_ + positions * size.width * 6.0 + size.vocabulary * size.width * 4.0 * float(trained)
    return np.asarray(bytes_)


def _logit_bytes(task: Task, s: Settings, *, backward: bool) -> Column:
    """Of one logit where all of them are held."""
    fp32, bf16 = (FP32_LOGITS, BF16_LOGITS) if backward else (FP32_LOGITS_READ, BF16_LOGITS_READ)
    if facts_of(task.resources.framework).casts_logits:
        return np.where((s.low > 0) & (s.stage > 0), bf16, fp32)
    return np.where(s.low > 0, FUSED_LOGITS if backward else bf16, fp32)


def _cpu_tile(size: Dimensions, s: Settings, wide: Column, high: Column, *, backward: bool) -> Column:
    """Of ``high`` tokens by ``wide`` words, and what the same of the LM head is copied into."""
    low = (s.low > 0).astype(float)
    tile, head = wide * high, wide * size.width
    held = tile * np.where(low > 0, 2.0, 4.0) + 2.0 * head * s.wide * low
    if not backward:
        return np.asarray(held + tile * (CPU_TILE_FORWARD + 4.0 * low))
    return np.asarray(held + np.maximum(CPU_TILE_BACKWARD * tile, CPU_PRODUCT * low * (tile + head)))
