"""Seconds of each phase of a cycle, from the model's size, the batch and a device's figures; pure, before any trial.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009): whatever takes longer, moving bytes or multiplying.
2 N FLOP for a token forward and 4 N backward, attention 6 layers x width x context beside them (Kaplan et al.,
arXiv:2001.08361). Per device, with N weights, F FLOP/s, B bytes/s, k = 6, or 8 with checkpointing:

    generate  sum over decode steps of max((W + live (cache of a row)) / (e_b B), 2 N live / (e_f F)) + overhead
              + prefill 2 N (prompt tokens) / (e_f F)
    logprob   passes x (2 N + attention / 3) tokens / (e_f F) + weights read, logits
    update    (k N + k/6 attention) tokens / (e_t F) + weights read in each micro-batch, logits
              + bytes the optimizer moves / (e_b B) + gradients between ranks
    sync      bytes of the weights, read and written / (e_b B), or over the link to a server
    reward, idle   constants

Between ranks a ring moves (r - 1)/r of what is gathered or scattered, twice that of what is reduced for everybody. DDP
and ZeRO-1 reduce once an update, ZeRO-2 and 3 in every micro-batch, because no rank keeps gradients that are not its
own (``allreduce_gradients`` of DeepSpeed's engine). ZeRO-1 and 2 gather what was trained after the step; ZeRO-3 gathers
weights for every pass, but for those it uses again within its ``stage3_max_reuse_distance``.

The efficiencies were chosen by hand on one published point (8B on H100, 92.8 s a step) before this was written; the
constants of a CPU's phases on one recorded study of a 135M model on two cores. What is wrong with them for a machine is
what the learnt part is there for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Phase
from autotune.machine.data_sheets import KINDS, Hardware
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import Dimensions, dimensions
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.lengths import Lengths, load, longest_sum


@dataclass(frozen=True)
class World:
    """Inputs of a prior besides the configurations."""

    task: Task
    hardware: Hardware
    lengths: Lengths

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


Prior = Callable[[str, PhaseRows, World, Observed | None], Column]
"""Median seconds of a phase of a cycle, of each row; 0 where the phase does not occur."""


OF_BANDWIDTH = 0.65
OF_FORWARD = 0.45
OF_TRAINING = 0.40
"""Share of a data sheet's rate that decoding (bytes), forward passes and training (FLOP) reach."""
OF_MODEL = 11.0
"""A model's kernel takes so many times what one of the probe's chain does: modules, autograd and allocation are around
it. The same for decoding by either engine and for training (docs/decisions/0030-phase-times.md)."""
ON_CPU = 0.7
"""Of the last two, what a CPU reaches of what its probe's large product did: a model's products are thin."""
KERNELS = {"transformers": 25.0, "eager": 12.0, "compiled": 4.0, "graphs": 1.0}
"""Launches for each layer of a decode step: eager modules, vLLM's fused ones, what it compiles on a CPU, captured."""
TRAINING_KERNELS = 40.0
"""For each layer of a forward pass with its share of the backward pass."""
TILE_KERNELS = 7.0
"""For each tile of the LM head, the same."""
TILE_BYTES = 12.0
"""Moved for each entry of the LM head by a tile's part of its gradient, in fp32: written, read, added to."""
MAPPED, PAGE_S = 10.0, 1.9e-6
"""Tensors as large as a tile of logits that a CPU maps anew in a backward pass, and seconds of a page of 4 KiB."""
OF_SMALL = 0.2
"""Share of that where a tile is below glibc's largest threshold for mapping, 32 MiB."""
LARGE = 32 * 2**20
STEP_S = {"transformers": 1e-3, "vllm": 2e-3}
"""Host's part of a decode step: logits processors; scheduler, sampler and detokenizer."""
LOGITS_BYTES = 16.0
"""Moved for each entry of the logits: fp32 written, read, normalised."""
SAMPLED_BYTES = 24.0
"""The same of a decode step, with its random numbers."""
DRAWN_S = {"transformers": 3e-8, "vllm": 7e-9}
"""Seconds of one logit in a decode step on a CPU, where the next token is drawn by one thread."""
SYNC_PARTS, SYNC_PART_S = 10.0, 1e-4
"""Tensors of a layer sent to an engine, and the host's seconds for each."""
REPACK_S = 2e-9
"""Seconds of each byte a CPU's engine lays out anew for its products."""
REWARD_S, REWARD_ROW_S = 1e-3, 1e-4
HOST_S, HOST_TOKEN_S = 8e-3, 2e-6
"""Host's work outside all phases, of a cycle and of each token."""
WAITING = 0.03
"""Of a rank's generation, where ranks wait for each other."""


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
        once = once + PARTS_OF_LAYER * world.size.layers * GLOO_TENSOR_S
    return np.where((facts["shards"] >= 2) & (facts["ranks"] > 1), once, 0.0)


def gathers(facts: Mapping[str, Column], world: World, k: Column) -> Column:
    """Number of times a micro-batch gathers the weights; ``k`` as of the update, 2 without a backward pass."""
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


def roofline(phase: str, rows: PhaseRows, world: World, observed: Observed | None = None) -> Column:
    """The prior; what ``observed`` tells of single rows is used instead of what the lengths lead one to expect."""
    facts = rows.facts
    size = len(rows.keys)
    seconds = {
        Phase.GENERATE.value: _generate,
        Phase.LOGPROB.value: _logprob,
        Phase.UPDATE.value: _update,
        Phase.SYNC.value: _sync,
        Phase.REWARD.value: _reward,
        Phase.WAIT.value: _wait,
        Phase.IDLE.value: _idle,
    }[phase](facts, world, observed)
    return np.broadcast_to(np.asarray(seconds, dtype=np.float64), (size,)).copy()


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


def _computed(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Column:
    """Tokens of one pass over a cycle's rows, all ranks; with padding to the longest of a generation, if there is any.

    What a cycle told counts each of the iterations over a generation.
    """
    pairs, place = _different(facts, ("generations", "rows"))
    longest = [longest_sum(world.lengths.completions, int(g), r) / max(1.0, g) for g, r in pairs]
    padded = facts["rows"] * (world.lengths.width + np.array(longest, dtype=np.float64)[place])
    packed = facts["rows"] * (world.lengths.prompt + float(np.mean(world.lengths.completions)))
    expected = np.where(facts["packed"] > 0, packed, padded)
    if observed is None:
        return expected
    return np.where(np.isfinite(observed.computed), observed.computed / world.iterations, expected)


def _prompt(world: World, observed: Observed | None) -> Column | float:
    if observed is None:
        return world.lengths.prompt
    return np.where(np.isfinite(observed.prompt), observed.prompt, world.lengths.prompt)


def _generate(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Column:
    vllm, tensor = facts["vllm"] > 0, facts["tensor"]
    steps, live, context = _loads(facts, world)
    part = (_share(facts, world) / np.where(vllm & world.hardware.shared, facts["replicas"] / facts["ranks"], 1.0))[
        :, None
    ]
    each = np.where(vllm, facts["engine_bytes"], _forward_bytes(facts))
    kinds = np.where(vllm, _engine_rate(facts, world), _rate(facts, world))[:, None]
    weights = (world.weights * each / tensor)[:, None]
    cache = (world.size.kv_values * np.where(vllm, facts["cache_bytes"], facts["master_bytes"]) / tensor)[:, None]
    prompt = np.broadcast_to(np.asarray(_prompt(world, observed), dtype=np.float64), vllm.shape)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * part
    sampled = live * world.size.vocabulary * SAMPLED_BYTES
    moved = (weights + live * cache * (prompt[:, None] + context) + sampled) / memory
    multiplied = 2.0 * world.weights / tensor[:, None] * live / (OF_FORWARD * kinds * part)
    between = _tensor_parallel(live, tensor[:, None], world)
    host = np.broadcast_to(_step(facts, world)[:, None], live.shape)
    if world.hardware.shared:
        host = host + live * world.size.vocabulary * np.where(vllm, DRAWN_S["vllm"], DRAWN_S["transformers"])[:, None]
    decode: Column = np.sum(steps * (np.maximum(moved, multiplied) + between + host), axis=1)
    tokens = facts["rows"] / facts["replicas"] * prompt / np.where(facts["prefix"] > 0, facts["group"], 1.0)
    rate = OF_FORWARD * kinds[:, 0] * part[:, 0]
    prefill = 2.0 * world.weights * tokens / tensor / rate + facts["generations"] * weights[:, 0] / memory[:, 0]
    woken = np.where(facts["sleep"] > 0, world.weights * facts["engine_bytes"] / world.hardware.host_link, 0.0)
    whole = np.where(vllm, 0.0, gathered(facts, world))
    return decode + prefill + woken + facts["generations"] * whole


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
) -> Column:
    """Of one rank: ``tokens`` in ``count`` micro-batches, with k N FLOP a token."""
    part = _share(facts, world)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * part
    kernel = OF_MODEL * world.hardware.kernel_s
    context = tokens / np.maximum(1.0, facts["rows"] / facts["ranks"])
    attention = 6.0 * world.size.layers * world.size.width * context
    reached = efficiency * (ON_CPU if world.hardware.shared else 1.0)
    multiplied = tokens * (k * world.weights + k / 6.0 * attention) / (reached * _rate(facts, world) * part)
    read = count * k / 2.0 * world.weights * _forward_bytes(facts) / memory
    launched = count * k / 2.0 * TRAINING_KERNELS * world.size.layers * kernel
    logits = tokens * world.size.vocabulary * LOGITS_BYTES * k / 2.0 / memory
    # Every tile goes through the whole LM head, which is not checkpointed; for a micro-batch's first it is read anyhow.
    backward = k > 2.0
    uses = np.where(backward, 3.0, 1.0)
    head = world.size.vocabulary * world.size.width
    moved = head * (uses * _forward_bytes(facts) + np.where(backward, TILE_BYTES, 0.0))
    tiles = count * (np.ceil(tokens / count / facts["tile"]) - 1.0) * (moved / memory + uses * TILE_KERNELS * kernel)
    whole = count * gathers(facts, world, k) * gathered(facts, world)
    if world.hardware.shared:
        # Summed: casting weights and adding to gradients is work of its own, not hidden behind the products.
        return multiplied + read + launched + logits + tiles + whole
    # A GPU works while the host launches what comes next.
    return np.maximum(multiplied + read + logits + tiles, launched) + whole


def _mapped(facts: Mapping[str, Column], world: World, tokens: Column, count: Column) -> Column:
    """Seconds in which a CPU's kernel maps memory that was given back to it a moment before."""
    tile = np.minimum(facts["tile"], tokens / count) * world.size.vocabulary * 4.0
    share = np.where(tile > LARGE, 1.0, OF_SMALL)
    return facts["mapped"] * share * MAPPED * tokens * world.size.vocabulary * 4.0 / 4096.0 * PAGE_S


def _logprob(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Column:
    tokens = _computed(facts, world, observed) / facts["ranks"]
    count = np.ceil(facts["rows"] / facts["ranks"] / np.maximum(1.0, facts["logprob_rows"]))
    once = _passes(facts, world, tokens, count, OF_FORWARD, np.full_like(tokens, 2.0))
    return facts["logprob_passes"] * once / facts["together"]


def _update(facts: Mapping[str, Column], world: World, observed: Observed | None) -> Column:
    tokens = _computed(facts, world, observed) / facts["ranks"]
    count = np.ceil(facts["rows"] / facts["ranks"] / facts["micro"])
    frozen = np.where(facts["trainable"] < 1, 2.0, 0.0)
    k = np.where(facts["checkpointing"] > 0, 8.0, 6.0) - frozen
    passes = world.iterations * _passes(facts, world, tokens, count, OF_TRAINING, k) / facts["together"]
    trained = world.weights * facts["trainable"]
    here = trained / np.where(facts["shards"] >= 1, facts["ranks"], 1.0)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * _share(facts, world)
    each = 6.0 * facts["master_bytes"] + 2.0 * facts["state_bytes"]
    stepped = here * each * np.where(facts["fused"] > 0, 1.0, 1.5) / memory
    offloaded = here * facts["host_bytes"] / world.hardware.host_link
    launched = facts["step_kernels"] * PARTS_OF_LAYER * world.size.layers * OF_MODEL * world.hardware.kernel_s
    exchanged = reduced(facts, world, world.iterations * count)
    mapped = world.iterations * _mapped(facts, world, tokens, count)
    return passes + mapped + facts["updates"] * (stepped + launched + offloaded) + exchanged


def _sync(facts: Mapping[str, Column], world: World, _: Observed | None) -> Column:
    written = facts["engine_bytes"] * np.where(facts["quantized"] > 0, 2.0, 1.0)
    memory = OF_BANDWIDTH * world.hardware.bytes_s * _share(facts, world)
    moved = world.weights * (facts["master_bytes"] + written) / memory
    if world.hardware.shared:
        moved = moved + world.weights * facts["engine_bytes"] * REPACK_S
    sent = np.where(facts["server"] > 0, world.weights * facts["master_bytes"] / world.hardware.link, 0.0)
    times = np.minimum(facts["generations"], facts["updates"])
    each = moved + sent + gathered(facts, world) + SYNC_PARTS * world.size.layers * SYNC_PART_S
    return np.where(facts["vllm"] > 0, times * each, 0.0)


def _reward(facts: Mapping[str, Column], _: World, __: Observed | None) -> Column:
    return REWARD_S + REWARD_ROW_S * facts["rows"]


def _wait(facts: Mapping[str, Column], world: World, _: Observed | None) -> Column:
    tokens = facts["rows"] / facts["ranks"] * (world.lengths.width + np.mean(world.lengths.completions))
    part = 1.0 / facts["ranks"] if world.hardware.shared else 1.0
    whole = 8.0 * world.weights * tokens / (OF_TRAINING * _rate(facts, world) * part)
    return np.where(facts["ranks"] > 1, WAITING * whole, 0.0)


def _idle(facts: Mapping[str, Column], world: World, _: Observed | None) -> Column:
    tokens = facts["rows"] * (world.lengths.width + np.mean(world.lengths.completions))
    return HOST_S + HOST_TOKEN_S * tokens
