"""Seconds ranks take to send each other gradients and shared weights. Pure.

A ring moves (r - 1)/r of what is gathered or scattered, twice that of what is reduced for everybody. DDP and ZeRO-1
reduce once an update, ZeRO-2 and 3 in every micro-batch, because no rank keeps gradients that are not its own
(``allreduce_gradients`` of DeepSpeed's engine). ZeRO-1 and 2 gather what was trained after the step; ZeRO-3
gathers weights for every pass, but for those it uses again within its ``stage3_max_reuse_distance``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.proposals.forecasts import Column
from autotune.proposals.times.world import World

GLOO_BYTES_S = 3.5e8
"""What two processes of a CPU exchange in a second; measured, docs/decisions/0030-phase-times.md."""
GLOO_TENSOR_S = 1.5e-3
"""For each tensor that is gathered there, beside."""
PARTS_OF_LAYER = 12.0
"""Tensors of weights."""
SEEN = 0.2
"""Share of DDP's exchange that a CPU does not hide behind the backward pass; of ZeRO's it hides nothing."""
KEPT = 5e8
"""Weights ZeRO-3 keeps whole between a forward and a backward pass: half of its distance, there and back."""


def between_ranks(facts: Mapping[str, Column], world: World, amount: Column | float) -> Column:
    """Seconds to share ``amount`` bytes among all ranks."""
    hardware, nodes = world.hardware, world.task.resources.nodes
    link = GLOO_BYTES_S if hardware.shared else hardware.network if nodes > 1 else hardware.link
    return np.where(facts["ranks"] > 1, amount * (facts["ranks"] - 1.0) / facts["ranks"] / link, 0.0)


def gathered(facts: Mapping[str, Column], world: World) -> Column:
    """Seconds until weights that are shared out are whole, once; 0 where every rank has them."""
    once = between_ranks(facts, world, world.weights * facts["sent_bytes"])
    if world.hardware.shared:
        once = once + PARTS_OF_LAYER * world.layers * GLOO_TENSOR_S
    return np.where((facts["shards"] >= 2) & (facts["ranks"] > 1), once, 0.0)


def gathers(facts: Mapping[str, Column], world: World, k: Column) -> Column:
    """How often a micro-batch needs them; ``k`` as of the update, 2 without a backward pass."""
    kept = (facts["zero"] >= 3) & (world.weights <= KEPT)
    return np.where((k > 2.0) & ~kept, 2.0, 1.0)


def reduced(facts: Mapping[str, Column], world: World, count: Column) -> Column:
    """Seconds of a cycle's gradients and of what is gathered after a step; ``count``: micro-batches of a rank."""
    trained = world.weights * facts["trainable"]
    zero = facts["zero"] >= 1
    # Over gloo what is scattered takes as long as what everybody gets. GPUs overlap ZeRO's exchange as they do DDP's;
    # how much of either is seen there was not measured, so all of both counts.
    ways = np.where(zero, 2.0, 2.0 * SEEN) if world.hardware.shared else np.where(zero, 1.0, 2.0)
    width = np.where(zero, facts["sent_bytes"], facts["reduce_bytes"])
    times = np.where(facts["zero"] >= 2, count, facts["updates"])
    after = np.where(zero & (facts["shards"] < 2), facts["updates"] * trained * facts["sent_bytes"], 0.0)
    return between_ranks(facts, world, times * ways * trained * width + after)
