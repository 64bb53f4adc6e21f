"""Computes the seconds of each phase of a cycle by part, from the model's size, the batch and a device's figures; pure.

Follows the roofline of Williams, Waterman and Patterson (CACM 52(4), 2009): the longer of memory traffic and arithmetic
counts. A token takes 2 N FLOP forward and 4 N backward, plus 6 layers x width x context for attention (Kaplan et al.,
arXiv:2001.08361). With N weights, F FLOP/s and B bytes/s:

generate decoding: the longer of (weights + live rows' cache) / B and 2 N live / F, step by step; prefill 2 N / F
logprob passes x (2 N + attention / 3) tokens / F, weights read, logits update 6 N tokens / F, or 8 N with
checkpointing; optimizer's bytes / B; gradients between ranks sync bytes of the weights / B, or over the link to a
server; a sleeping engine wakes up

Its purpose is the *order* of configurations. Every part is only known up to a factor (``PARTS``), which is learnt from
trials (``learning``): a constant for a launch, an efficiency or an overlap holds only for one machine.

Between ranks a ring moves (r - 1)/r of the bytes of a gather or scatter, twice that for an all-reduce. DDP and ZeRO-1
reduce once an update, ZeRO-2 and 3 in every micro-batch (``allreduce_gradients`` of DeepSpeed's engine). ZeRO-1 and 2
gather the trained weights after the step; ZeRO-3 gathers weights for every pass, except those that it reuses within its
``stage3_max_reuse_distance``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.domain import Phase
from autotune.machine.data_sheets import KINDS, Hardware
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import Dimensions, dimensions
from autotune.proposals.times.features import PhaseRows, iterations_of
from autotune.proposals.times.lengths import Lengths, decoding, longest

PARTS: Mapping[str, float] = {
    **dict.fromkeys(("compute", "decode"), 0.3),
    **dict.fromkeys(("launch", "calls", "steps", "prefill", "gathers", "exchange", "optimizer"), 0.7),
    **dict.fromkeys(("logits", "moved", "wake", "offload"), 0.7),
}
"""Prior standard deviation of each part's log factor: the efficiency that a device reaches, and the share hidden."""
Parts = Mapping[str, Column]
"""Seconds of one phase by part, an array element for each row; a phase without parts does not occur."""
OVERLAPPED = ("compute", "logits")
"""Parts that the device computes while the host launches kernels ("launch"): the longer of both counts."""
SHARPNESS = 6.0
"""Exponent p of the smooth maximum of both times: (device^p + host^p)^(1/p)."""


@dataclass(frozen=True)
class World:
    """Inputs of the roofline besides the configurations."""

    task: Task
    hardware: Hardware
    lengths: Lengths

    @cached_property
    def size(self) -> Dimensions:
        """Sizes of the model, with guesses for unknown ones."""
        return dimensions(self.task.resources.model)

    @property
    def weights(self) -> float:
        return self.size.parameters

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of the unknown factors of machine and model."""
        facts = self.task.resources.model
        unknown = 1.5 if not facts.parameters else 0.3 if not (facts.layers and facts.hidden_size) else 0.0
        return float(np.hypot(np.hypot(self.hardware.spread, unknown), 0.3 if self.lengths.presumed else 0.0))


OF_BANDWIDTH = 0.65
OF_FORWARD = 0.45
OF_TRAINING = 0.40
"""Share of a data sheet's rate that decoding (bytes), forward passes and training (FLOP) reach; chosen by hand on one
published point (8B on H100, 92.8 s a step)."""
OF_MODEL = 11.0
"""Time of a model's kernel as a multiple of one in the probe's chain: modules, autograd and allocation are around it.
Recorded on one H100."""
KERNELS = {"transformers": 25.0, "eager": 12.0, "compiled": 4.0, "graphs": 1.0}
"""Kernel launches per layer of a decode step: eager modules, vLLM's fused ones, compiled on a CPU, captured."""
TRAINING_KERNELS = 40.0
"""Kernel launches per layer of a forward pass with its share of the backward pass."""
STEP_S = {"transformers": 1e-3, "vllm": 2e-3}
"""Host seconds per decode step: logits processors; scheduler, sampler and detokenizer."""
LOGITS_BYTES = 16.0
"""Bytes moved per logit: fp32 written, read, normalised."""
TILE_KERNELS, TILE_BYTES = 7.0, 12.0
"""Kernel launches per tile of logits and pass; bytes moved per weight of the LM head by a tile's gradient part."""
SAMPLED_BYTES = 24.0
"""Bytes moved per logit of a decode step, with its random numbers."""
SYNC_PARTS, SYNC_PART_S = 10.0, 1e-4
"""Tensors per layer sent to an engine, and the host's seconds for each."""
WAKE_S = 0.2
"""Seconds until a sleeping engine's memory is mapped again; presumed."""
REWARD_S, REWARD_ROW_S = 1e-3, 1e-4
HOST_S, HOST_TOKEN_S = 8e-3, 2e-6
"""Host seconds outside all phases, per cycle and per token."""
WAITING = 0.03
"""Share of a rank's generation during which ranks wait for each other."""
SEEN = 0.5
"""Share of the exchange between ranks that computation does not hide: unknown beforehand, so the middle."""
KEPT = 5e8
"""Most weights that ZeRO-3 keeps whole between a forward and a backward pass: half of its distance, there and back."""

Facts = Mapping[str, Column]


def parts_of(phase: str, rows: PhaseRows, world: World) -> Parts:
    """Returns the seconds of a phase by part."""
    return _PHASES[phase](rows.facts, world)


def seconds_of(parts: Parts, factors: Mapping[str, float], size: int) -> Column:
    """Returns the combined seconds of the parts, each times its factor (by default 1)."""
    return shares_of(parts, factors, size)[0]


def shares_of(parts: Parts, factors: Mapping[str, float], size: int) -> tuple[Column, Parts]:
    """Returns ``seconds_of``, and for each part the derivative of log seconds by its log factor."""
    scaled, none = {name: factors.get(name, 1.0) * column for name, column in parts.items()}, np.zeros(size)
    device = sum((scaled[name] for name in OVERLAPPED if name in scaled), start=none)
    host = scaled.get("launch", none)
    longer = np.maximum(np.maximum(device, host), 1e-12)
    powers = (device / longer) ** SHARPNESS, (host / longer) ** SHARPNESS
    both = powers[0] + powers[1]
    together = longer * both ** (1.0 / SHARPNESS)
    weights = {"launch": together * powers[1] / np.maximum(both * host, 1e-12)}
    weights |= dict.fromkeys(OVERLAPPED, together * powers[0] / np.maximum(both * device, 1e-12))
    others = sum((column for name, column in scaled.items() if name not in weights), start=none)
    whole = np.maximum(together + others, 1e-12)
    shares = {name: weights.get(name, 1.0) * column / whole for name, column in scaled.items()}
    return together + others, shares


def _between_ranks(facts: Facts, world: World, amount: Column | float) -> Column:
    """Returns the seconds to exchange ``amount`` bytes among all ranks."""
    hardware = world.hardware
    link = hardware.network if world.task.resources.nodes > 1 else hardware.link
    return np.where(facts["ranks"] > 1, amount * (facts["ranks"] - 1.0) / facts["ranks"] / link, 0.0)


def _gathered(facts: Facts, world: World) -> Column:
    """Returns the seconds of one gather of sharded weights; 0 where every rank has them."""
    once = _between_ranks(facts, world, world.weights * facts["sent_bytes"])
    return np.where(facts["shards"] >= 2, once, 0.0)


def _reduced(facts: Facts, world: World, count: Column) -> Column:
    """Returns the seconds of a cycle's gradient reductions and of gathers after a step; ``count``: micro-batches of a
    rank."""
    trained, zero = world.weights * facts["trainable"] * facts["sent_bytes"], facts["zero"] >= 1
    times = np.where(facts["zero"] >= 2, count, facts["updates"]) * np.where(zero, 1.0, 2.0)
    after = np.where(zero & (facts["shards"] < 2), facts["updates"], 0.0)
    return _between_ranks(facts, world, SEEN * trained * (times + after))


def _share(facts: Facts, world: World) -> Column:
    """Returns the share of the device that one rank has."""
    return 1.0 / facts["ranks"] if world.hardware.shared else np.ones_like(facts["ranks"])


def _memory(facts: Facts, world: World) -> Column:
    return OF_BANDWIDTH * world.hardware.bytes_s * _share(facts, world)


def _rate(facts: Facts, world: World) -> Column:
    rates = np.array([world.hardware.rate(kind) for kind in KINDS])
    return rates[facts["kind"].astype(np.intp)] * _share(facts, world)


def _forward_bytes(facts: Facts) -> Column:
    """Returns the bytes moved for a weight in a forward pass: autocast reads it, then writes and reads a cast copy."""
    low = np.array([4.0, 4.0, 2.0, 2.0, 1.0])[facts["kind"].astype(np.intp)]
    held = facts["held_bytes"]
    return np.where(low < held, held + 2.0 * low, held)


def computed(facts: Facts, world: World) -> Column:
    """Returns the tokens of one pass over a cycle's rows on all ranks, including padding to the longest row of a
    generation, if any."""
    whole = world.lengths.width + longest(world.lengths.completions, facts["rows"] / facts["generations"])
    return facts["rows"] * np.where(facts["packed"] > 0, world.lengths.prompt + world.lengths.mean, whole)


def _generate(facts: Facts, world: World) -> Parts:
    vllm, tensor, size = facts["vllm"] > 0, facts["tensor"], world.size
    prompt, once = world.lengths.prompt, facts["rows"] / facts["generations"]
    each, live, context = decoding(world.lengths, once, facts["replicas"], facts["sequences"], facts["continuous"])
    each = facts["generations"][:, None] * each
    steps = each.sum(axis=1)
    part = np.where(vllm & world.hardware.shared, facts["ranks"] / facts["replicas"], 1.0)
    memory = _memory(facts, world) * part
    rate = OF_FORWARD * np.where(vllm, _engine_rate(facts, world), _rate(facts, world)) * part
    weights = world.weights * np.where(vllm, facts["engine_bytes"], _forward_bytes(facts)) / tensor
    cache = size.kv_values * np.where(vllm, facts["cache_bytes"], facts["master_bytes"]) / tensor
    of_row = cache[:, None] * (prompt + context) + size.vocabulary * SAMPLED_BYTES
    read = (weights[:, None] + live * of_row) / memory[:, None]
    multiplied = 2.0 * world.weights * live / (tensor * rate)[:, None]
    decoded = (each * live).sum(axis=1)
    linked = decoded * size.width * 4.0 * (tensor - 1.0) / tensor / world.hardware.link + 2e-5 * steps
    prompts = facts["rows"] / facts["replicas"] * prompt / np.where(facts["prefix"] > 0, facts["group"], 1.0)
    return {
        "decode": (each * np.maximum(read, multiplied)).sum(axis=1),
        "steps": steps * _step(facts, world),
        "prefill": 2.0 * world.weights * prompts / tensor / rate + facts["generations"] * weights / memory,
        # Two all-reduces a layer among the GPUs of a replica.
        "exchange": np.where(tensor > 1, 2.0 * size.layers * linked, 0.0),
        "gathers": facts["generations"] * np.where(vllm, 0.0, _gathered(facts, world)),
    }


def _engine_rate(facts: Facts, world: World) -> Column:
    fp8, bf16, fp32 = (world.hardware.rate(kind) for kind in ("fp8", "bf16", "fp32"))
    held = facts["engine_bytes"]
    return np.where(held == 1.0, fp8, np.where(held == 4.0, fp32, bf16)) * _share(facts, world)


def _step(facts: Facts, world: World) -> Column:
    """Returns the seconds of a decode step during which the device waits for the host."""
    kernel = OF_MODEL * world.size.layers * world.hardware.kernel_s
    launched = np.where(facts["compiled"] > 0, KERNELS["compiled"], KERNELS["eager"])
    engine = STEP_S["vllm"] + np.where(facts["graphs"] > 0, KERNELS["graphs"], launched) * kernel
    return np.where(facts["vllm"] > 0, engine, STEP_S["transformers"] + KERNELS["transformers"] * kernel)


def _passes(
    facts: Facts, world: World, times: Column | float, count: Column, efficiency: float, k: Column
) -> dict[str, Column]:
    """Returns a rank's seconds by part for ``times`` passes over all tokens, at ``k`` FLOP per token and weight."""
    tokens = computed(facts, world) / facts["ranks"]
    context = tokens / np.maximum(1.0, facts["rows"] / facts["ranks"])
    attention = 6.0 * world.size.layers * world.size.width * context
    multiplied = tokens * (k * world.weights + k / 6.0 * attention) / (efficiency * _rate(facts, world))
    read = count * k / 2.0 * world.weights * _forward_bytes(facts)
    logits = tokens * world.size.vocabulary * LOGITS_BYTES * k / 2.0
    memory, kernel = _memory(facts, world), OF_MODEL * world.hardware.kernel_s
    # Every tile goes through the whole LM head, which no pass computes again; the first one's is read anyhow.
    further, uses = count * (np.ceil(tokens / count / facts["tile"]) - 1.0), np.minimum(k / 2.0, 3.0)
    logits += further * world.size.embedding * (uses * _forward_bytes(facts) + TILE_BYTES * (k > 2.0))
    kept = (facts["zero"] >= 3) & (world.weights <= KEPT)
    gathers = np.where((k > 2.0) & ~kept, 2.0, 1.0) * count * _gathered(facts, world)
    device = {"compute": multiplied + read / memory, "logits": logits / memory + further * uses * TILE_KERNELS * kernel}
    launch = count * k / 2.0 * TRAINING_KERNELS * world.size.layers * kernel
    # A CPU launches what it computes itself.
    found = {**device, "calls" if world.hardware.shared else "launch": launch, "gathers": SEEN * gathers}
    return {name: column * times for name, column in found.items()}


def _logprob(facts: Facts, world: World) -> Parts:
    count = np.ceil(facts["rows"] / facts["ranks"] / np.maximum(1.0, facts["logprob_rows"]))
    times = facts["logprob_passes"] / facts["together"]
    return _passes(facts, world, times, count, OF_FORWARD, np.full_like(count, 2.0))


def _update(facts: Facts, world: World) -> Parts:
    count = np.ceil(facts["rows"] / facts["ranks"] / facts["micro"])
    k = np.where(facts["checkpointing"] > 0, 8.0, 6.0) - np.where(facts["trainable"] < 1, 2.0, 0.0)
    here = world.weights * facts["trainable"] / np.where(facts["shards"] >= 1, facts["ranks"], 1.0)
    each = 6.0 * facts["master_bytes"] + 2.0 * facts["state_bytes"]
    return {
        **_passes(facts, world, iterations_of(world.task) / facts["together"], count, OF_TRAINING, k),
        "optimizer": facts["updates"] * here * each / _memory(facts, world),
        "offload": facts["updates"] * here * facts["host_bytes"] / world.hardware.host_link,
        "exchange": _reduced(facts, world, iterations_of(world.task) * count),
    }


def _sync(facts: Facts, world: World) -> Parts:
    written = facts["engine_bytes"] * np.where(facts["quantized"] > 0, 2.0, 1.0)
    moved = world.weights * (facts["master_bytes"] + written) / _memory(facts, world)
    sent = np.where(facts["server"] > 0, world.weights * facts["master_bytes"] / world.hardware.link, 0.0)
    times = np.where(facts["vllm"] > 0, np.minimum(facts["generations"], facts["updates"]), 0.0)
    parts = SYNC_PARTS * world.size.layers * SYNC_PART_S
    copied = np.where(facts["sleep"] == 1, world.weights * facts["engine_bytes"] / world.hardware.host_link, 0.0)
    return {
        "moved": times * (moved + sent + parts),
        "gathers": times * _gathered(facts, world),
        "wake": np.where(facts["sleep"] > 0, times * (WAKE_S + copied), 0.0),
    }


def _reward(facts: Facts, _: World) -> Parts:
    return {"reward": REWARD_S + REWARD_ROW_S * facts["rows"]}


def _wait(facts: Facts, world: World) -> Parts:
    tokens = facts["rows"] / facts["ranks"] * (world.lengths.width + world.lengths.mean)
    whole = 8.0 * world.weights * tokens / (OF_TRAINING * _rate(facts, world))
    return {"wait": np.where(facts["ranks"] > 1, WAITING * whole, 0.0)}


def _idle(facts: Facts, world: World) -> Parts:
    tokens = facts["rows"] * (world.lengths.width + world.lengths.mean)
    return {"idle": HOST_S + HOST_TOKEN_S * tokens}


_PHASES: Mapping[str, Callable[[Facts, World], Parts]] = {
    Phase.GENERATE.value: _generate,
    Phase.LOGPROB.value: _logprob,
    Phase.UPDATE.value: _update,
    Phase.SYNC.value: _sync,
    Phase.REWARD.value: _reward,
    Phase.WAIT.value: _wait,
    Phase.IDLE.value: _idle,
}
