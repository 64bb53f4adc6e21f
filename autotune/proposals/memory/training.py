"""Bytes of the training side on one rank: permanent states, and activations and logits of a micro-batch.

States follow ZeRO (Rajbhandari et al., SC20). Activations follow Korthikanti et al. (arXiv 2205.05198), for a gated
MLP. TRL's tiled LM head follows the source of ``trl.kernels.chunked_logprob``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.proposals.forecasts import Column
from autotune.proposals.memory import megatron
from autotune.proposals.memory.parts import Ledger, Moment, Part
from autotune.proposals.memory.settings import Settings
from search_spaces.frameworks import WeightSync

GPU_TILE, CPU_TILE = (4.0, 6.0), (12.0, 29.0)
"""Bytes of an element of TRL's tile, without and with gradients: by Triton, which works in place; as torch operations,
the tile itself left aside: three fp32 tensors at once, or seven and one of truth values."""
CPU_PRODUCT = 4.0
"""Bytes of an element of a tile in half precision, and of its part of the LM head, while the head's gradient is a
product in fp32."""
FP32_LOGITS, BF16_LOGITS = (8.0, 12.0), (6.0, 6.0)
"""Bytes of a logit, without and with gradients, of frameworks that hold all of them.

fp32 (``_get_per_token_logps`` of trl 0.18): as they come and scaled by the temperature; with gradients a reference
model's as well. bf16: a log-softmax beside, or gradients (verl's ``logprobs_from_logits``).
"""
WRITTEN_SCORES_BYTES = 6.0
"""Bytes of an attention weight kept for the backward pass: before and after softmax, and for the product."""
MOVED = 0.85
"""Share of activations that ``activation_offload`` moves to the host, and of logits that a fused loss spares."""
FUSED_KERNELS = 0.15
"""Share of a layer's saved activations that fused norms and MLPs spare."""
EARLY = 0.25
"""Share of the gradients that coexists with the activations if an update has one micro-batch."""
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
"""Size of the optimizer state as a multiple of the trained weights'."""
_TRAINS = (Moment.UPDATE, Moment.STEP)
_PASSES = (Moment.LOGPROB, Moment.UPDATE)


def add_states(s: Settings, ledger: Ledger) -> None:
    """Adds weights, gradients and optimizer state."""
    found = _by_trainer(s, _states(s), megatron.states(s))
    model_away, states_away = (
        s.columns.number(name) * s.colocated * float(s.gpus)
        for name in ("rollout_offload_model", "rollout_offload_optimizer")
    )
    # In verl they wait on the host during the weight sync too; weights only where it fetches one after the other.
    late_states = float(s.framework.weight_sync is WeightSync.BUCKETS)
    late_weights = s.columns.has("fsdp", "fsdp2") * late_states * (not s.lora)
    # Nobody holds gradients between updates (verl's ``EngineTrainModeCtx``); with Megatron's weights go its gradients.
    between = 1.0 - s.fsdp * (s.generation_rows >= s.rows * s.accumulation)
    for part, name, moved, late in (
        (Part.WEIGHTS, "weights", model_away, late_weights),
        (Part.OPTIMIZER, "optimizer", states_away, late_states),
        (Part.GRADIENTS, "gradients", model_away * s.megatron, late_states),
    ):
        rest = found[name] * between if part is Part.GRADIENTS else found[name]
        ledger.add(part, rest * (1.0 - moved), Moment.GENERATE)
        ledger.add(part, rest * (1.0 - moved * late), Moment.SYNC)
        ledger.add(part, rest, Moment.LOGPROB)
    for part, name in ((Part.WEIGHTS, "weights"), (Part.OPTIMIZER, "optimizer")):
        ledger.add(part, found[name], *_TRAINS)
        ledger.add_beside(Part.OFFLOADED, found[name] * (model_away if part is Part.WEIGHTS else states_away))
    # Without accumulation the last update's are gone, and this one's come as the activations go.
    early = np.where((s.accumulation <= 1) & (s.megatron == 0), EARLY, 1.0)
    ledger.add(Part.GRADIENTS, found["buckets"])
    ledger.add(Part.GRADIENTS, found["gathered"] * (1.0 - s.fsdp), Moment.GENERATE, Moment.SYNC, Moment.STEP)
    ledger.add(Part.GRADIENTS, found["gathered"], Moment.LOGPROB)
    ledger.add(Part.GRADIENTS, found["live"] + (found["gradients"] + found["sent"]) * early, Moment.UPDATE)
    ledger.add(Part.GRADIENTS, found["gradients"] + found["sent"], Moment.STEP)
    ledger.add(Part.OPTIMIZER, found["step"], Moment.STEP)
    ledger.add_beside(Part.OFFLOADED, found["offloaded"])


def _by_trainer(s: Settings, torch: Mapping[str, Column], other: Mapping[str, Column]) -> dict[str, Column]:
    """Returns the bytes of each part: ``other`` in rows that Megatron trains, else ``torch``."""
    return {name: np.where(s.megatron > 0, other.get(name, 0.0), own) for name, own in torch.items()}


def _states(s: Settings) -> dict[str, Column]:
    """Returns bytes after sharding and offloads, by name. ``gathered`` weights are whole for a moment, ``live`` ones
    during the passes of the update."""
    size, c = s.size, s.columns
    deepspeed, several = s.stage > 0, (s.ranks > 1).astype(float)
    stored = s.stored_bytes
    # FSDP makes weights whole in what products are computed in, two layers at a time, one of them fetched ahead.
    whole = np.where((s.fsdp > 0) & (s.low > 0), np.minimum(stored, 2.0), stored)
    gathered = np.where(s.sharded(3) > 1, max(size.layer, size.parameters * 0.02) * whole * 2.0, 0.0)
    live = np.where((s.stage >= 3) & (s.ranks > 1), np.maximum(gathered, min(size.parameters, LIVE) * stored), gathered)
    casts = 2.0 * s.trained * s.wide * s.low * (1.0 - s.fsdp) / s.sharded(3)
    # Stages 1 and 2 always train a copy in fp32, 3 where the weights are not in fp32 already; torch trains the weights.
    copies = c.level("optimizer", _STATE_BYTES, 2.0) * np.where(deepspeed, 4.0, s.weight_bytes)
    copies = copies + 4.0 * (deepspeed & ((s.wide == 0) | (s.stage < 3)))
    step = s.trained * s.weight_bytes * c.has("optimizer", "adamw_torch")
    if not s.gpus:
        step = step * (size.embedding / size.parameters)  # a tensor at a time, the embedding is largest
    # DeepSpeed flattens its part of the gradients into one fp32 tensor.
    step = np.where(deepspeed, 4.0 * s.trained, step) / s.sharded(1)
    # DDP's buckets hold every gradient once more; ZeRO's are there while gradients come.
    plain = several * (s.stage == 0) * (s.fsdp == 0)
    sent = np.minimum(c.number("zero_reduce_bucket", 5e8), s.trained) * (1.0 + c.number("zero_overlap"))
    sent = sent + np.minimum(c.number("zero_allgather_bucket", 5e8), s.trained)
    sent = sent + (s.stage >= 3) * np.minimum(c.number("zero_prefetch_bucket", 5e7), s.trained)
    found = {
        "weights": size.parameters * stored * s.models / s.sharded(3) + casts,
        "gradients": s.trained * s.weight_bytes / s.sharded(2),
        "optimizer": s.trained * copies / s.sharded(1),
        "step": step,
    }
    return {
        **_offloaded(s, found),
        "gathered": gathered,
        "live": live,
        "buckets": plain * s.trained * s.weight_bytes,
        "sent": deepspeed * several * sent * 2.0,
    }


def _offloaded(s: Settings, found: Mapping[str, Column]) -> dict[str, Column]:
    """Returns the states that stay on the device, and the bytes offloaded to host memory (NVMe holds the rest)."""
    everything = s.fsdp * s.columns.number("fsdp_offload")

    def moved(name: str, stage: int, *places: str) -> Column:
        return np.maximum(everything, (s.stage >= stage) * s.columns.has(name, *places))

    states, weights = (moved(f"offload_{name}", stage, "cpu", "nvme") for name, stage in _OFFLOADS)
    states_host, weights_host = (moved(f"offload_{name}", stage, "cpu") for name, stage in _OFFLOADS)
    return {
        "weights": found["weights"] * (1.0 - weights),
        "gradients": found["gradients"] * (1.0 - everything),
        "optimizer": found["optimizer"] * (1.0 - states),
        "step": found["step"] * (1.0 - states),
        "offloaded": states_host * (found["optimizer"] + found["gradients"]) + weights_host * found["weights"],
    }


_OFFLOADS = (("optimizer", 2), ("parameters", 3))
"""State that DeepSpeed offloads, and the ZeRO stage from which it does."""


def add_passes(s: Settings, ledger: Ledger) -> None:
    """Adds activations, attention scores and logits of the update and the log-prob pass, for the longest rows."""
    c, size = s.columns, s.size
    # A budget is of one GPU: verl multiplies it by the ranks that share a sequence (``engine/utils.py`` 111). One
    # longest row has to fit whatever the budget is.
    budget, longest = c.number("update_tokens", 16384.0), s.length / s.parallel
    dynamic = c.number("dynamic_batching") > 0
    tokens = np.maximum(np.where(dynamic, budget, s.rows * longest), longest)
    passed = np.where(dynamic, c.number("logprob_tokens", budget), c.number("logprob_rows", s.rows) * longest)
    passed = np.maximum(passed, longest)
    layer = _layer_bytes(s) * size.width
    checkpointed = c.number("gradient_checkpointing") > 0
    kept = np.minimum(layer, s.weight_bytes * size.width) * size.layers + layer
    away = MOVED * c.number("activation_offload") * float(s.gpus)
    scores = c.has("attn_implementation", "eager") * size.heads * longest * WRITTEN_SCORES_BYTES
    activations = tokens * np.where(checkpointed, np.minimum(kept, layer * size.layers), layer * size.layers)
    torch = {
        "activations": activations * (1.0 - away),
        "away": activations * away,
        "scores": scores * tokens * np.where(checkpointed, 2.0, max(2.0, size.layers)),
        "logits": _logits(s, tokens, backward=True),
        "passed_activations": (layer + 2.0 * scores) * passed,
        "passed_logits": _logits(s, passed, backward=False),
    }
    found = _by_trainer(s, torch, megatron.passes(s, tokens, passed))
    ledger.add(Part.ACTIVATIONS, found["activations"] + found["scores"], Moment.UPDATE)
    ledger.add(Part.ACTIVATIONS, found["passed_activations"], Moment.LOGPROB)
    ledger.add(Part.LOGITS, found["logits"], Moment.UPDATE)
    ledger.add(Part.LOGITS, found["passed_logits"], Moment.LOGPROB)
    ledger.add_beside(Part.OFFLOADED, found["away"])


def _layer_bytes(s: Settings) -> Column:
    """Returns bytes of one layer's activations, per token and hidden unit, that PyTorch saves: two norms in fp32 with
    input and output, five units of attention, four of the MLP's width."""
    inner = 4.0 * s.size.inner / s.size.width
    whole = np.where(s.low > 0, np.where(s.wide > 0, 30.0, 26.0) + 2.0 * inner, 4.0 * (10.0 + inner))
    return whole * (1.0 - FUSED_KERNELS * s.columns.number("hub_kernels"))


def _logits(s: Settings, tokens: Column, *, backward: bool) -> Column:
    """Returns bytes of tiles of the LM head, or of all logits; ``tokens`` of the pass include prompts."""
    c, size, task = s.columns, s.size, s.task
    completion = task.max_completion_length / max(1.0, task.max_prompt_length + task.max_completion_length)
    # On a GPU only completions are projected; torch operations of fixed shapes, and packed rows, project all.
    positions = tokens * (np.where(c.number("remove_padding") > 0, 1.0, completion) if s.gpus else 1.0)
    if s.framework.tiles_lm_head:
        wide = np.minimum(size.vocabulary, c.number("logprob_vocab_chunk", 32768.0))
        tile = wide * np.minimum(positions, c.number("logprob_token_chunk", 4096.0))
        amount = tile * GPU_TILE[backward] if s.gpus else _cpu_tile(s, tile, wide * size.width, backward=backward)
    else:
        half = (s.low > 0) & (s.stage > 0) if s.framework.casts_logits else s.low > 0
        amount = positions * size.vocabulary * np.where(half, BF16_LOGITS[backward], FP32_LOGITS[backward])
        amount = amount * (1.0 - 0.5 * c.number("entropy_chunking")) * (1.0 - MOVED * c.number("fused_loss"))
    if backward:
        amount = amount + positions * size.width * 6.0 + size.embedding * 4.0 * (s.trained >= size.parameters)
    return np.asarray(amount)


def _cpu_tile(s: Settings, tile: Column, head: Column, *, backward: bool) -> Column:
    """Returns bytes of a tile's tensors, and of the copies of its part of the LM head."""
    held = tile * (4.0 - 2.0 * s.low) + 2.0 * head * s.wide * s.low
    at_once = np.maximum(CPU_TILE[1] * tile, CPU_PRODUCT * s.low * (tile + head)) if backward else CPU_TILE[0] * tile
    return held + at_once + 4.0 * tile * s.low * (not backward)
