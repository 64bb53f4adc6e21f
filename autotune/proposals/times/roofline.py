"""Seconds of each phase of a cycle by part, from the model's size, the batch and a device's figures; pure.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009): whatever takes longer, moving bytes or multiplying.
2 N FLOP for a token forward and 4 N backward, attention 6 layers x width x context beside them (Kaplan et al.,
arXiv:2001.08361). With N weights, F FLOP/s and B bytes/s:

    generate  decoding: the longer of (weights + live rows' cache) / B and 2 N live / F, step by step; prefill 2 N / F
    logprob   passes x (2 N + attention / 3) tokens / F, weights read, logits
    update    6 N tokens / F, or 8 N with checkpointing; optimizer's bytes / B; gradients between ranks
    sync      bytes of the weights / B, or over the link to a server

What it is for is the *order* of configurations. Every part is known to a factor only (``PARTS``), which is learnt from
trials (``learning``): one constant for a launch, an efficiency or an overlap holds on one machine and not on the next.

Between ranks a ring moves (r - 1)/r of what is gathered or scattered, twice that of what is reduced for everybody. DDP
and ZeRO-1 reduce once an update, ZeRO-2 and 3 in every micro-batch (``allreduce_gradients`` of DeepSpeed's engine).
ZeRO-1 and 2 gather what was trained after the step; ZeRO-3 gathers weights for every pass, but for those it uses again
within its ``stage3_max_reuse_distance``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.machine.data_sheets import KINDS, Hardware
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import Dimensions, dimensions
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.lengths import Lengths, load, longest_sum

PARTS: Mapping[str, float] = {
    "compute": 0.3,
    "launch": 0.7,
    "decode": 0.3,
    "steps": 0.7,
    "prefill": 0.7,
    "gathers": 0.7,
    "exchange": 0.7,
    "optimizer": 0.7,
    "logits": 0.7,
    "moved": 0.7,
    "offload": 0.7,
    "wake": 0.7,
}
"""Standard deviation of the logarithm of each part's factor: what a device reaches, and how much of it is hidden."""
SHARPNESS = 6.0
"""Of overlapping parts the longer counts, smoothly: the sum of their powers to the inverse power."""


@dataclass(frozen=True)
class World:
    """Inputs of a prior besides the configurations."""

    task: Task
    hardware: Hardware
    lengths: Lengths
    padding: float = 1.0
    """Tokens that passes work on, over what lengths and padding lead one to expect; as trials show."""

    @cached_property
    def size(self) -> Dimensions:
        """Of the model, with guesses where something is not known."""
        return dimensions(self.task.resources.model)

    @property
    def weights(self) -> float:
        return self.size.parameters

    @property
    def iterations(self) -> float:
        """Times a generation is trained on."""
        given = self.task.passthrough.get("num_iterations")
        return float(given) if isinstance(given, int) and not isinstance(given, bool) and given > 1 else 1.0

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of what is not known of machine and model."""
        facts = self.task.resources.model
        unknown = 1.5 if not facts.parameters else 0.3 if not (facts.layers and facts.hidden_size) else 0.0
        return float(np.hypot(np.hypot(self.hardware.spread, unknown), 0.3 if self.lengths.presumed else 0.0))


@dataclass(frozen=True)
class Observed:
    """Tokens the update's forward passes worked on, padding included, where a cycle tells of them; else NaN."""

    computed: Column
    prompt: Column
    """Mean tokens of a prompt."""


@dataclass(frozen=True)
class Parts:
    """Seconds of one phase by part, an array element for each row; a phase of no parts does not occur."""

    device: Mapping[str, Column] = field(default_factory=dict)
    """What the device does ..."""
    host: Mapping[str, Column] = field(default_factory=dict)
    """... and what the host does meanwhile: the longer counts."""
    beside: Mapping[str, Column] = field(default_factory=dict)
    """What overlaps with neither."""

    def seconds(self, factors: Mapping[str, float]) -> Column:
        """Sum of the parts, each times its factor (1 where none is given)."""
        return self.shares(factors)[0]

    def shares(self, factors: Mapping[str, float]) -> tuple[Column, dict[str, Column]]:
        """``seconds``, and of each part the derivative of their logarithm by its factor's."""
        sums, each = [], []
        for group in (self.device, self.host, self.beside):
            scaled = {name: factors.get(name, 1.0) * column for name, column in group.items()}
            each.append(scaled)
            sums.append(sum(scaled.values(), start=np.zeros(1)))
        device, host, beside = sums
        longer = np.maximum(np.maximum(device, host), 1e-12)
        powers = (device / longer) ** SHARPNESS, (host / longer) ** SHARPNESS
        overlapped = longer * (powers[0] + powers[1]) ** (1.0 / SHARPNESS)
        total = np.where(device + host > 0, overlapped, 0.0) + beside
        both = np.maximum(powers[0] + powers[1], 1e-12)
        weights = [overlapped * p / both / np.maximum(s, 1e-12) for p, s in zip(powers, sums[:2], strict=True)]
        found: dict[str, Column] = {}
        for scaled, weight in zip(each, (*weights, np.ones(1)), strict=True):
            for name, column in scaled.items():
                found[name] = found.get(name, 0.0) + column * weight / np.maximum(total, 1e-12)
        return total, found


Prior = Callable[[str, PhaseRows, World, Observed | None], Parts]
"""Parts of a phase of a cycle, of each row."""

OF_BANDWIDTH = 0.65
OF_FORWARD = 0.45
OF_TRAINING = 0.40
"""Share of a data sheet's rate that decoding (bytes), forward passes and training (FLOP) reach; chosen by hand on one
published point (8B on H100, 92.8 s a step)."""
OF_MODEL = 11.0
"""A model's kernel takes so many times what one of the probe's chain does: modules, autograd and allocation are around
it. As one H100 recorded it."""
KERNELS = {"transformers": 25.0, "eager": 12.0, "compiled": 4.0, "graphs": 1.0}
"""Launches for each layer of a decode step: eager modules, vLLM's fused ones, what it compiles on a CPU, captured."""
TRAINING_KERNELS = 40.0
"""For each layer of a forward pass with its share of the backward pass."""
TILE_KERNELS = 7.0
"""For each tile of the LM head, the same."""
TILE_BYTES = 12.0
"""Moved for each entry of the LM head by a tile's part of its gradient, in fp32: written, read, added to."""
STEP_S = {"transformers": 1e-3, "vllm": 2e-3}
"""Host's part of a decode step: logits processors; scheduler, sampler and detokenizer."""
LOGITS_BYTES = 16.0
"""Moved for each entry of the logits: fp32 written, read, normalised."""
SAMPLED_BYTES = 24.0
"""The same of a decode step, with its random numbers."""
SYNC_PARTS, SYNC_PART_S = 10.0, 1e-4
"""Tensors of a layer sent to an engine, and the host's seconds for each."""
WAKE_S = 0.2
"""Until a sleeping engine's memory is mapped again; presumed."""
REWARD_S, REWARD_ROW_S = 1e-3, 1e-4
HOST_S, HOST_TOKEN_S = 8e-3, 2e-6
"""Host's work outside all phases, of a cycle and of each token."""
WAITING = 0.03
"""Of a rank's generation, where ranks wait for each other."""
PARTS_OF_LAYER = 12.0
"""Tensors of weights."""
SEEN = 0.5
"""Share of what ranks exchange that work does not hide: nobody knows beforehand, so the middle."""
KEPT = 5e8
"""Weights ZeRO-3 keeps whole between a forward and a backward pass: half of its distance, there and back."""


def between_ranks(facts: Mapping[str, Column], world: World, amount: Column | float) -> Column:
    """Seconds to share ``amount`` bytes among all ranks."""
    hardware = world.hardware
    link = hardware.network if world.task.resources.nodes > 1 else hardware.link
    return np.where(facts["ranks"] > 1, amount * (facts["ranks"] - 1.0) / facts["ranks"] / link, 0.0)


def gathered(facts: Mapping[str, Column], world: World) -> Column:
    """Seconds until weights that are shared out are whole, once; 0 where every rank has them."""
    once = between_ranks(facts, world, world.weights * facts["sent_bytes"])
    return np.where((facts["shards"] >= 2) & (facts["ranks"] > 1), once, 0.0)


def gathers(facts: Mapping[str, Column], world: World, k: Column) -> Column:
    """Number of times a micro-batch gathers the weights; ``k`` as of the update, 2 without a backward pass."""
    kept = (facts["zero"] >= 3) & (world.weights <= KEPT)
    return np.where((k > 2.0) & ~kept, 2.0, 1.0)


def reduced(facts: Mapping[str, Column], world: World, count: Column) -> Column:
    """Seconds of a cycle's gradients and of what is gathered after a step; ``count``: micro-batches of a rank."""
    trained = world.weights * facts["trainable"]
    zero = facts["zero"] >= 1
    width = np.where(zero, facts["sent_bytes"], facts["reduce_bytes"])
    times = np.where(facts["zero"] >= 2, count, facts["updates"]) * np.where(zero, 1.0, 2.0)
    after = np.where(zero & (facts["shards"] < 2), facts["updates"] * trained * facts["sent_bytes"], 0.0)
    return between_ranks(facts, world, SEEN * (times * trained * width + after))


def parts_of(phase: str, rows: PhaseRows, world: World, observed: Observed | None = None) -> Parts:
    """The prior; what ``observed`` tells of single rows is used instead of what the lengths lead one to expect."""
    by_phase: Mapping[str, Callable[[Mapping[str, Column], World, Observed | None], Parts]] = {
        Phase.GENERATE.value: _generate,
        Phase.LOGPROB.value: _logprob,
        Phase.UPDATE.value: _update,
        Phase.SYNC.value: _sync,
        Phase.REWARD.value: _reward,
        Phase.WAIT.value: _wait,
        Phase.IDLE.value: _idle,
    }
    found = by_phase[phase](rows.facts, world, observed)
    if not world.hardware.shared:
        return found
    # A CPU launches what it computes itself.
    return Parts(beside={**found.device, **found.host, **found.beside})


def roofline(phase: str, rows: PhaseRows, world: World, observed: Observed | None = None) -> Column:
    """Seconds of a phase by the prior."""
    seconds = parts_of(phase, rows, world, observed).seconds({})
    return np.broadcast_to(seconds, (len(rows.keys),)).copy()


def _share(facts: Mapping[str, Column], world: World) -> Column:
    """Of the device, what one rank has."""
    return 1.0 / facts["ranks"] if world.hardware.shared else np.ones_like(facts["ranks"])


def _rate(facts: Mapping[str, Column], world: World) -> Column:
    rates = np.array([world.hardware.rate(kind) for kind in KINDS])
    return rates[facts["kind"].astype(np.intp)]


def _forward_bytes(facts: Mapping[str, Column]) -> Column:
    """Of a weight in one forward pass: autocast reads it, writes a copy in the lower type and reads that."""
    low = np.array([4.0, 4.0, 2.0, 2.0, 1.0])[facts["kind"].astype(np.intp)]
    held = facts["held_bytes"]
    return np.where(low < held, held + 2.0 * low, held)


def computed(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Column:
    """Returns tokens of one pass over a cycle's rows, all ranks; with padding to the longest of a generation, if there
    is any."""
    pairs, place = _different(facts, ("generations", "rows"))
    longest = [longest_sum(world.lengths.completions, int(g), r) / max(1.0, g) for g, r in pairs]
    padded = facts["rows"] * (world.lengths.width + np.array(longest, dtype=np.float64)[place])
    packed = facts["rows"] * (world.lengths.prompt + float(np.mean(world.lengths.completions)))
    expected = world.padding * np.where(facts["packed"] > 0, packed, padded)
    if observed is None:
        return expected
    return np.where(np.isfinite(observed.computed), observed.computed / world.iterations, expected)


def _generate(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Parts:
    vllm, tensor = facts["vllm"] > 0, facts["tensor"]
    steps, live, context = _loads(facts, world)
    part = _share(facts, world) / np.where(vllm & world.hardware.shared, facts["replicas"] / facts["ranks"], 1.0)
    each = np.where(vllm, facts["engine_bytes"], _forward_bytes(facts))
    rate = OF_FORWARD * np.where(vllm, _engine_rate(facts, world), _rate(facts, world)) * part
    weights = world.weights * each / tensor
    cache = world.size.kv_values * np.where(vllm, facts["cache_bytes"], facts["master_bytes"]) / tensor
    prompt = np.broadcast_to(np.asarray(_prompt(world, observed), dtype=np.float64), vllm.shape)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * part
    moved = weights[:, None] + live * (
        cache[:, None] * (prompt[:, None] + context) + world.size.vocabulary * SAMPLED_BYTES
    )
    multiplied = 2.0 * world.weights / tensor[:, None] * live / rate[:, None]
    decode = np.sum(steps * np.maximum(moved / memory[:, None], multiplied), axis=1)
    linked = np.sum(steps * _tensor_parallel(live, tensor[:, None], world), axis=1)
    tokens = facts["rows"] / facts["replicas"] * prompt / np.where(facts["prefix"] > 0, facts["group"], 1.0)
    prefill = 2.0 * world.weights * tokens / tensor / rate + facts["generations"] * weights / memory
    whole = facts["generations"] * np.where(vllm, 0.0, gathered(facts, world))
    host = np.sum(steps, axis=1) * _step(facts, world)
    beside = {"decode": decode, "steps": host, "prefill": prefill, "exchange": linked, "gathers": whole}
    return Parts(beside=beside)


def _prompt(world: World, observed: Observed | None) -> Column | float:
    if observed is None:
        return world.lengths.prompt
    return np.where(np.isfinite(observed.prompt), observed.prompt, world.lengths.prompt)


def _loads(facts: Mapping[str, Column], world: World) -> tuple[Column, Column, Column]:
    """Steps, rows and context of the pieces of each row's decoding, padded with pieces of no steps."""
    cases, place = _different(facts, ("generations", "replicas", "rows", "sequences", "continuous"))
    completions = world.lengths.completions
    found = [load(completions, int(c[0]), max(1, int(c[1])), c[2], int(c[3]), c[4] > 0) for c in cases]
    most = max((len(one.steps) for one in found), default=1)
    padded = [np.stack([np.pad(c, (0, most - len(c))) for c in (o.steps, o.live, o.context)]) for o in found]
    whole = np.stack(padded)[place] if padded else np.zeros((0, 3, most))
    return whole[:, 0], whole[:, 1], whole[:, 2]


def _different(facts: Mapping[str, Column], names: tuple[str, ...]) -> tuple[list[tuple[float, ...]], NDArray[np.intp]]:
    """The different rows of some columns, and of each row its place among them."""
    every = list(zip(*(facts[name].tolist() for name in names), strict=True))
    places = {case: place for place, case in enumerate(dict.fromkeys(every))}
    return list(places), np.array([places[case] for case in every], dtype=np.intp)


def _engine_rate(facts: Mapping[str, Column], world: World) -> Column:
    rates = {1.0: world.hardware.rate("fp8"), 2.0: world.hardware.rate("bf16"), 4.0: world.hardware.rate("fp32")}
    return np.array([rates.get(each, rates[2.0]) for each in facts["engine_bytes"].tolist()])


def _step(facts: Mapping[str, Column], world: World) -> Column:
    """Seconds of a decode step in which the device waits for the host."""
    kernel = OF_MODEL * world.size.layers * world.hardware.kernel_s
    launched = np.where(facts["compiled"] > 0, KERNELS["compiled"], KERNELS["eager"])
    engine = STEP_S["vllm"] + np.where(facts["graphs"] > 0, KERNELS["graphs"], launched) * kernel
    return np.where(facts["vllm"] > 0, engine, STEP_S["transformers"] + KERNELS["transformers"] * kernel)


def _tensor_parallel(live: Column, tensor: Column, world: World) -> Column:
    """Two all-reduces a layer among the GPUs of a replica."""
    once: Column = 2.0 * live * world.size.width * 2.0 * (tensor - 1.0) / tensor / world.hardware.link + 2e-5
    return np.where(tensor > 1, 2.0 * world.size.layers * once, 0.0)


def _passes(
    facts: Mapping[str, Column], world: World, tokens: Column, count: Column, efficiency: float, k: Column
) -> Parts:
    """Returns seconds of one rank for ``tokens`` in ``count`` micro-batches, with k N FLOP a token; launches overlap
    the GPU's work."""
    part = _share(facts, world)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * part
    kernel = OF_MODEL * world.hardware.kernel_s
    context = tokens / np.maximum(1.0, facts["rows"] / facts["ranks"])
    attention = 6.0 * world.size.layers * world.size.width * context
    multiplied = tokens * (k * world.weights + k / 6.0 * attention) / (efficiency * _rate(facts, world) * part)
    read = count * k / 2.0 * world.weights * _forward_bytes(facts) / memory
    logits = tokens * world.size.vocabulary * LOGITS_BYTES * k / 2.0 / memory
    # Every tile goes through the whole LM head, which is not checkpointed; for a micro-batch's first it is read anyhow.
    backward = k > 2.0
    uses = np.where(backward, 3.0, 1.0)
    head = world.size.vocabulary * world.size.width
    moved = head * (uses * _forward_bytes(facts) + np.where(backward, TILE_BYTES, 0.0))
    tiles = count * (np.ceil(tokens / count / facts["tile"]) - 1.0) * (moved / memory + uses * TILE_KERNELS * kernel)
    whole = SEEN * count * gathers(facts, world, k) * gathered(facts, world)
    launched = count * k / 2.0 * TRAINING_KERNELS * world.size.layers * kernel
    device = {"compute": multiplied + read, "logits": logits + tiles}
    return Parts(device=device, host={"launch": launched}, beside={"gathers": whole})


def _times(parts: Parts, by: Column | float) -> Parts:
    groups = (parts.device, parts.host, parts.beside)
    return Parts(*({name: column * by for name, column in group.items()} for group in groups))


def _logprob(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Parts:
    tokens = computed(facts, world, observed) / facts["ranks"]
    count = np.ceil(facts["rows"] / facts["ranks"] / np.maximum(1.0, facts["logprob_rows"]))
    once = _passes(facts, world, tokens, count, OF_FORWARD, np.full_like(tokens, 2.0))
    return _times(once, facts["logprob_passes"] / facts["together"])


def _update(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Parts:
    tokens = computed(facts, world, observed) / facts["ranks"]
    count = np.ceil(facts["rows"] / facts["ranks"] / facts["micro"])
    frozen = np.where(facts["trainable"] < 1, 2.0, 0.0)
    k = np.where(facts["checkpointing"] > 0, 8.0, 6.0) - frozen
    once = _passes(facts, world, tokens, count, OF_TRAINING, k)
    passes = _times(once, world.iterations / facts["together"])
    trained = world.weights * facts["trainable"]
    here = trained / np.where(facts["shards"] >= 1, facts["ranks"], 1.0)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * _share(facts, world)
    each = 6.0 * facts["master_bytes"] + 2.0 * facts["state_bytes"]
    stepped = here * each * np.where(facts["fused"] > 0, 1.0, 1.5) / memory
    launched = facts["step_kernels"] * PARTS_OF_LAYER * world.size.layers * OF_MODEL * world.hardware.kernel_s
    beside = {
        **passes.beside,
        "optimizer": facts["updates"] * (stepped + launched),
        "offload": facts["updates"] * here * facts["host_bytes"] / world.hardware.host_link,
        "exchange": reduced(facts, world, world.iterations * count),
    }
    return Parts(passes.device, passes.host, beside)


def _sync(facts: Mapping[str, Column], world: World, _: Observed | None) -> Parts:
    written = facts["engine_bytes"] * np.where(facts["quantized"] > 0, 2.0, 1.0)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * _share(facts, world)
    moved = world.weights * (facts["master_bytes"] + written) / memory
    sent = np.where(facts["server"] > 0, world.weights * facts["master_bytes"] / world.hardware.link, 0.0)
    times = np.where(facts["vllm"] > 0, np.minimum(facts["generations"], facts["updates"]), 0.0)
    parts = SYNC_PARTS * world.size.layers * SYNC_PART_S
    copied = np.where(facts["sleep"] == 1, world.weights * facts["engine_bytes"] / world.hardware.host_link, 0.0)
    woken = np.where(facts["sleep"] > 0, times * (WAKE_S + copied), 0.0)
    return Parts(
        beside={"moved": times * (moved + sent + parts), "gathers": times * gathered(facts, world), "wake": woken}
    )


def _reward(facts: Mapping[str, Column], _: World, __: Observed | None) -> Parts:
    return Parts(beside={"reward": REWARD_S + REWARD_ROW_S * facts["rows"]})


def _wait(facts: Mapping[str, Column], world: World, _: Observed | None) -> Parts:
    tokens = facts["rows"] / facts["ranks"] * (world.lengths.width + np.mean(world.lengths.completions))
    whole = 8.0 * world.weights * tokens / (OF_TRAINING * _rate(facts, world) * _share(facts, world))
    return Parts(beside={"wait": np.where(facts["ranks"] > 1, WAITING * whole, 0.0)})


def _idle(facts: Mapping[str, Column], world: World, _: Observed | None) -> Parts:
    tokens = facts["rows"] * (world.lengths.width + np.mean(world.lengths.completions))
    return Parts(beside={"idle": HOST_S + HOST_TOKEN_S * tokens})
