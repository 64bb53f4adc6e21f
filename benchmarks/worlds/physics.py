"""What a configuration costs on a machine with one GPU or several: seconds by phase and memory by moment.

From first principles, with constants that a world sets. Times in seconds, memory in bytes. The effects:

* a pass over a micro-batch takes as long as the slower of host and device, and a little of the other: the host launches
  layer by layer, and the device's products need many tokens to be efficient; fp32 weights are cast for each pass;
* tiles of the LM head: small ones cost launches, large ones memory;
* an engine decodes step by step: the host's floor (lower with CUDA graphs), weights and cache read, products; sequences
  that the cache does not hold are preempted and computed again, with a cliff;
* all rows of TRL are padded to the longest of a rollout; verl packs rows or fills micro-batches by tokens;
* ranks reduce gradients and gather weights, partly hidden; ZeRO and FSDP shard; offloading takes the host's link;
* the allocator loses a share to fragmentation, drawn for each process, and retries near the limit, which is slow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from autotune.domain import Configuration, CycleKind, Phase, Pool
from benchmarks.decisions.machine import Noise
from benchmarks.decisions.recorded import Start
from benchmarks.worlds.reading import Run, schedule
from search_spaces.configuration import ModelFacts, Resources
from trainer.child.contract import Peaks, StartupPart

GENERATE, LOGPROB, UPDATE = Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value
REWARD, SYNC, IDLE = Phase.REWARD.value, Phase.SYNC.value, Phase.IDLE.value
GB = 1e9
UNCERTAIN = 12
"""Halvings by which the share of processes that hold a configuration is found."""


@dataclass(frozen=True)
class Chip:
    """A GPU, and its links."""

    name: str
    flops: float
    """Dense products in bf16, a second."""
    bandwidth: float
    memory: float
    capability: tuple[int, int]
    fp8: float = 1.0
    """FP8's products over bf16's."""
    fp32: float = 0.07
    """The same of fp32 without TF32."""
    link: float = 0.0
    """Bytes a second to the other GPUs."""
    host_link: float = 24 * GB


@dataclass(frozen=True)
class Model:
    """The shape of a decoder; the vocabulary is Qwen2.5's."""

    parameters: float
    layers: int
    width: int
    heads: int
    key_value: int
    vocabulary: int = 151_936

    @property
    def facts(self) -> ModelFacts:
        """As a study has them."""
        return ModelFacts(
            parameters=int(self.parameters), layers=self.layers, hidden_size=self.width, attention_heads=self.heads,
            key_value_heads=self.key_value, vocabulary=self.vocabulary, max_positions=32_768,
        )  # fmt: skip


@dataclass(frozen=True)
class Starts:
    """Seconds until a trial's first cycle: of the first process of a kind, and of a later one."""

    transformers: tuple[float, float] = (14.0, 12.0)
    engine: tuple[float, float] = (75.0, 55.0)
    """With compiled code and CUDA graphs."""
    eager_engine: tuple[float, float] = (45.0, 32.0)
    server: float = 25.0
    """Beside, for an engine on GPUs of its own."""
    kept: float = 4.0
    """Of a trial in a living process."""
    end: float = 1.5


RESTLESS = Noise(process=0.02, cycle=0.012, degrees=4.0, drift=0.025, outliers=0.02, outlier=1.8)
USUAL = Starts()


@dataclass(frozen=True)
class World:
    """A machine, a model and a workload. It is the ``Machine`` of ``benchmarks.decisions``."""

    name: str
    chip: Chip
    model: Model
    rows: int
    prompt: float
    """Tokens of a mean prompt."""
    max_prompt: int
    max_completion: int
    lengths: tuple[int, ...]
    """Of the recorded completions, in tokens."""
    baseline: Mapping[str, Any]
    preset: str = "single-gpu"
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Knobs that a user lists beside the preset's."""
    gpus: int = 1
    framework: str = "trl"
    group: int = 8
    budgets: tuple[float, ...] = (480.0, 900.0)

    noise: Noise = RESTLESS
    starts: Starts = USUAL
    first_cycles: tuple[float, ...] = (1.65, 1.22)
    """Of a new process, over a steady one."""
    fragmentation: tuple[float, float] = (0.03, 0.08)
    """Share of the allocator's memory lost to gaps: bounds of what a process draws."""
    others: tuple[float, float] = (0.0, 0.0)
    """Memory that others hold on the GPU: bounds of the same draw."""

    peak: float = 0.55
    """Share of the chip's products that large matrices reach."""
    half: float = 700.0
    """Tokens with which they reach half of it."""
    launch: float = 1.1e-3
    """The host's seconds for one layer's forward pass."""
    decode_launch: float = 1.0e-3
    """The same of a step in which transformers generates."""
    engine_step: float = 2.8e-3
    """The engine's host in a step with CUDA graphs."""
    engine_layer: float = 0.5e-3
    """Beside, for a layer without them."""
    attention: Mapping[str, float] = field(
        default_factory=lambda: {"sdpa": 1.0, "flash_attention_2": 0.72, "flash_attention_3": 0.5, "eager": 1.0}
    )
    """Seconds of attention's products over those of sdpa."""
    eager_reads: float = 12.0
    """Bytes that eager attention moves for each pair of tokens and head."""
    kept_bytes: float = 62.0
    """Of activations kept for each token, layer and unit of width."""
    hidden: float = 0.55
    """Share of gathers and reductions behind products."""
    wake: float = 0.6
    """Of an engine that sleeps in the update."""
    reward_row: float = 4e-4

    @cached_property
    def resources(self) -> Resources:
        """The machine's share, as a study has it."""
        return Resources(
            gpus=self.gpus, cpu_cores=16 * self.gpus, device="cuda", device_memory=int(self.chip.memory),
            host_memory=int(200 * GB * self.gpus), compute_capability=self.chip.capability, framework=self.framework,
            rows_per_update=self.rows, num_generations=self.group, max_prompt_length=self.max_prompt,
            max_completion_length=self.max_completion, model=self.model.facts,
        )  # fmt: skip

    # seconds ----------------------------------------------------------------------------------------------------------

    def phases(self, configuration: Configuration) -> Mapping[str, float]:
        """Of a steady cycle at the recorded lengths."""
        run = self.run(configuration)
        slow = self._retries(run)
        return {
            GENERATE: self.generate(run),
            REWARD: self.rows * self.reward_row,
            LOGPROB: self.logprob(run),
            UPDATE: self.update(run) * slow,
            SYNC: self.sync(run),
            IDLE: 0.05 + 0.01 * self.gpus,
        }

    def seconds(self, configuration: Configuration) -> float:
        """Of a steady cycle."""
        return sum(self.phases(configuration).values())

    @lru_cache(maxsize=100_000)  # noqa: B019 - worlds live as long as the program
    def run(self, configuration: Configuration) -> Run:
        """``configuration`` as the physics reads it."""
        return Run(configuration, self)

    def generate(self, run: Run) -> float:
        """All completions of an update, in as many rollouts as ``steps_per_generation`` makes of them."""
        calls = max(1, run.batch.accumulation // max(1, run.batch.steps))
        return calls * (self._engine(run, calls) if run.engine else self._transformers(run, calls))

    def _engine(self, run: Run, calls: int) -> float:
        """One rollout by vLLM, on the replica that has the longest rows."""
        m, tp = self.model, run.tensor
        rows = max(1, self.rows // calls // run.replicas)
        slots = min(run["max_num_seqs"] or 256, rows)
        room = max(1.0, self.cache_tokens(run) / (self.prompt + self.mean))
        held = max(1, min(slots, int(room)))
        steps, batch, tokens = schedule(self._dealt(run.replicas * calls, rows), held, self.prompt)
        quantized, cached = run["rollout_quantization"] == "fp8", run["kv_cache_dtype"] == "fp8"
        weights = 2.0 * self.model.parameters * (0.55 if quantized else 1.0) / tp
        flops = self.chip.flops * self.peak * (self.chip.fp8**0.5 if quantized else 1.0)
        read = (weights + tokens * self._cache_bytes * (0.5 if cached else 1.0) / tp) / (0.75 * self.chip.bandwidth)
        products = 2.0 * self.model.parameters * (batch + 24.0) / tp / flops
        across = 2 * m.layers * (14e-6 + batch * m.width * 4 / (self.chip.link or GB)) if tp > 1 else 0.0
        host = self.engine_step + 7e-6 * batch + (m.layers * self.engine_layer if run["enforce_eager"] else 0.0)
        step = _slower(host, np.maximum(read, products) + 0.25 * np.minimum(read, products) + across)
        decode = float(np.sum(steps * step))
        over = slots * (self.prompt + self.mean) / max(1.0, self.cache_tokens(run))
        decode *= 1.0 + (min(0.9, 0.12 + 0.6 * (over - 1.0)) if over > 1.0 else 0.0)
        return decode + self._prefill(run, rows, flops / tp) + 0.15

    def _prefill(self, run: Run, rows: int, flops: float) -> float:
        known = run["prefix_caching"]
        tokens = rows * self.prompt / (self.group if known else 1) + (rows if known else 0)
        passes = math.ceil(tokens / (run["max_num_batched_tokens"] or 8192))
        return 2.0 * self.model.parameters * (tokens + passes * self.half / 2) / flops + passes * 3 * self.engine_step

    def _transformers(self, run: Run, calls: int) -> float:
        """One rollout by transformers: all rows at once, until the longest ends; or refilled as rows end."""
        m, rows = self.model, max(1, self.rows // calls // run.ranks)
        held = rows
        host = m.layers * self.decode_launch + 4e-3
        if run["continuous_batching"]:
            room = run["continuous_batching_memory"] * max(0.0, self.chip.memory - self.resident(run))
            held = max(1, min(rows, int(room / self._cache_bytes / (self.prompt + self.mean))))
            host *= 1.2
        lengths = self._dealt(run.ranks * calls, rows)
        if not run["continuous_batching"]:
            lengths = (max(lengths),) * rows
        steps, batch, tokens = schedule(lengths, held, self.prompt)
        cast = 8.0 if run["master_weights"] == "fp32" and run.ranks == 1 else 2.0
        read = (cast * self.model.parameters + 1.6 * tokens * self._cache_bytes) / (0.7 * self.chip.bandwidth)
        products = 2.0 * self.model.parameters * (batch + 24.0) / (self.chip.flops * self.peak)
        prompts = 2.0 * self.model.parameters * (rows * self.prompt + self.half) / (self.chip.flops * self.peak)
        gathered = 2.0 * self.model.parameters / self.chip.link if run.zero == 3 and self.chip.link else 0.0
        return float(np.sum(steps * _slower(host, read + products))) + prompts + gathered

    def logprob(self, run: Run) -> float:
        """The pass without gradients over all rows: where an engine generates, or a rollout serves several updates."""
        if not run.engine and run.batch.steps <= run.batch.accumulation and not run.verl:
            return 0.0
        rows = self.rows / run.ranks
        passes, padded = run.passes(rows, run["logprob_rows"] or run.batch.micro, run["logprob_tokens"] or 0)
        return passes * (self._pass(run, padded, rows / passes, 1.0) + self._gathers(run, 1))

    def update(self, run: Run) -> float:
        """Forward and backward passes of every micro-batch, the ranks' exchange, and the optimizer's step."""
        rows = self.rows / run.ranks
        passes, padded = run.passes(rows, run.batch.micro, run["update_tokens"] or 0)
        again = 1.0 if run.saves else 0.0
        each = self._pass(run, padded, rows / passes, 3.0 + again, 2.0 + again)
        added = (
            8.0 * self.model.parameters / (run.ranks if run.zero >= 2 else 1)
        )  # gradients, to those of the passes before
        each += added / self.chip.bandwidth
        each += self._gathers(run, 2) + self._reduction(run, each_pass=True)
        return passes * each + self._reduction(run, each_pass=False) + self._optimizer(run)

    def _pass(self, run: Run, tokens: float, rows: float, work: float, launches: float = 1.0) -> float:
        """One micro-batch; ``work`` in forward passes of the device, ``launches`` in those of the host."""
        m, chip = self.model, self.chip
        gain, half = {"fp8": (chip.fp8 * 0.72, 2.5 * self.half), "fp32": (chip.fp32, self.half / 4)}.get(
            run["precision"], (1.0, self.half)
        )
        products = 2.0 * self._body * (tokens + half) / (chip.flops * self.peak * gain)
        length = tokens / max(1.0, rows)
        products *= self.rows_slow(rows) * (0.93 if run["hub_kernels"] else 1.0)
        attended = 2.0 * m.layers * m.width * tokens * length / (chip.flops * 0.3)
        attended *= self.attention.get(run["attn_implementation"], 1.0)
        if run["attn_implementation"] == "eager":
            attended += m.layers * m.heads * tokens * length * self.eager_reads / chip.bandwidth
        device = work * (products + attended) + max(1.0, work - 1.0) * self._head(run, tokens)
        if run["master_weights"] == "fp32" and run["precision"] != "fp32" and run.ranks == 1:
            device += 6.0 * self.model.parameters / chip.bandwidth
        if not run.saves and work > 1.0:
            device *= self.kept_slow(run, tokens)
        return float(_slower(m.layers * self.launch * launches, device))

    def rows_slow(self, rows: float) -> float:  # noqa: ARG002
        """Factor of products in a pass of so many rows."""
        return 1.0

    def kept_slow(self, run: Run, tokens: float) -> float:  # noqa: ARG002
        """Factor of a pass that keeps its activations."""
        return 1.0

    def _head(self, run: Run, tokens: float) -> float:
        """The LM head and log-probs of a pass, tile by tile."""
        m = self.model
        tile, words = min(tokens, run["logprob_token_chunk"] or tokens), run["logprob_vocab_chunk"] or m.vocabulary
        tiles = math.ceil(tokens / tile) * math.ceil(m.vocabulary / min(words, m.vocabulary))
        products = 2.0 * m.vocabulary * m.width * (tokens + self.half) / (self.chip.flops * self.peak)
        logits = tokens * m.vocabulary * 10.0 / self.chip.bandwidth
        return products + logits + tiles * 1.5e-4

    def _gathers(self, run: Run, times: int) -> float:
        """Weights that a sharded pass collects."""
        if run.zero < 3:
            return 0.0
        size = 2.0 * self.model.parameters
        exposed = (1.0 - self.hidden) * size * (run.ranks - 1) / run.ranks / self.chip.link
        if run["offload_parameters"] == "cpu" or run["fsdp_offload"]:
            exposed += size / run.ranks / self.chip.host_link
        return times * (exposed + self.model.layers * 4e-5)

    def _reduction(self, run: Run, *, each_pass: bool) -> float:
        """Gradients over ranks: after each pass where they are sharded, else once."""
        if run.ranks == 1 or each_pass is (run.zero < 2):
            return 0.0
        size = 2.0 * self.model.parameters
        there_and_back = 2.0 if not each_pass and run.zero < 3 else 1.0
        bucket = run["zero_reduce_bucket"] or 2e8
        return there_and_back * (1.0 - self.hidden) * size / self.chip.link + self.model.parameters / bucket * 2.5e-4

    def _optimizer(self, run: Run) -> float:
        own = self.model.parameters / self._shards(run)
        if run["offload_optimizer"] == "cpu":
            return 4.0 * own / self.chip.host_link + own / 0.9e9
        fused = run["optimizer"] == "adamw_torch_fused"
        moved = 28.0 if run["master_weights"] == "fp32" or run.ranks > 1 else 16.0
        step = moved * (1.0 if fused else 1.9) * own / (0.8 * self.chip.bandwidth) + (0.01 if fused else 0.05)
        return step + (2.0 * self.model.parameters / self.chip.link if run.zero in (1, 2) else 0.0)

    def sync(self, run: Run) -> float:
        """Weights to the engine."""
        if not run.engine:
            return 0.0
        m, size = self.model, 2.0 * self.model.parameters
        names = 12 * m.layers
        found = size * 3 / self.chip.bandwidth + names * 1.5e-4
        if run.served:
            found = size / (0.4 * self.chip.link) + names * 5e-3
        elif run.zero == 3:
            found += size / self.chip.link + names * 4e-4
        if run["rollout_quantization"] == "fp8":
            found += size * 6 / self.chip.bandwidth + names * 2e-4
        return found + (self.wake if run["sleep_level"] and not run.served else 0.0)

    def _retries(self, run: Run) -> float:
        """Factor of an update whose memory comes near the limit."""
        full = self.used(run, 0.5)[UPDATE] / self.capacity(0.5)
        return 1.0 + 0.2 * min(1.0, max(0.0, (full - 0.9) / 0.06))

    # memory -----------------------------------------------------------------------------------------------------------

    @lru_cache(maxsize=100_000)  # noqa: B019 - worlds live as long as the program
    def resident(self, run: Run) -> float:
        """Weights, gradients and optimizer of a rank."""
        n, saved = self.model.parameters, run["master_weights"] == "bf16"
        if run.verl:
            return (10.0 if saved else 16.0) * n / self._shards(run)
        if run.ranks == 1 or run.zero == 0:
            return (8.0 if saved else 16.0) * n
        away = run["offload_optimizer"] == "cpu"
        optimizer = 0.0 if away else 12.0 * n / run.ranks
        weights = 0.0 if run["offload_parameters"] == "cpu" else 2.0 * n / (run.ranks if run.zero == 3 else 1)
        return weights + 2.0 * n / (run.ranks if run.zero >= 2 else 1) + optimizer

    def moments(self, run: Run) -> dict[str, float]:
        """What the trainer's allocator holds at most, by phase."""
        base = self.resident(run)
        longest = self.max_prompt + self.max_completion
        rows = max(1.0, self.rows / run.ranks)
        cast = 2.0 * self.model.parameters if run.ranks == 1 and run["master_weights"] == "fp32" else 0.0
        gather = 0.0 if run.zero < 3 else 4.0 * self.model.parameters / self.model.layers + 0.5 * GB
        bucket = 8.0 * (run["zero_reduce_bucket"] or 0.0) if run.ranks > 1 and run.zero else 0.0
        found = {IDLE: base, REWARD: base, SYNC: base + (0.6 * GB if run.engine else 0.0), GENERATE: base}
        if not run.engine:
            rolled = rows * min(1.0, run.batch.steps / max(1, run.batch.accumulation))
            held = self._cache_bytes * 1.6 * rolled * longest + rolled * self.model.vocabulary * 8.0
            if run["continuous_batching"]:
                held = run["continuous_batching_memory"] * max(0.0, self.chip.memory - base)
            found[GENERATE] += held + cast / 3
        seen = run.most(run["logprob_rows"] or run.batch.micro, run["logprob_tokens"] or 0)
        found[LOGPROB] = base + gather + cast + self._forward(run, seen) + self._logits(run, seen)
        kept = run.most(run.batch.micro, run["update_tokens"] or 0)
        found[UPDATE] = base + gather + bucket + cast + self._kept(run, kept) + 2.0 * self._logits(run, kept)
        return found

    def _forward(self, run: Run, tokens: float) -> float:
        """Of one layer, while it is computed."""
        m = self.model
        working = 1.3 * self.kept_bytes * tokens * m.width * (0.75 if run["hub_kernels"] else 1.0)
        if run["attn_implementation"] == "eager":
            working += m.heads * tokens * (self.max_prompt + self.max_completion) * 8.0
        return working

    def _kept(self, run: Run, tokens: float) -> float:
        m = self.model
        one = self._forward(run, tokens) / 1.3
        if run.saves:
            return 2.0 * tokens * m.width * m.layers + 1.6 * one
        return one * m.layers

    def _logits(self, run: Run, tokens: float) -> float:
        tile = min(tokens, run["logprob_token_chunk"] or tokens)
        words = min(self.model.vocabulary, run["logprob_vocab_chunk"] or self.model.vocabulary)
        return 8.0 * tile * words + (2.0 * tokens * self.model.vocabulary if run.verl else 0.0)

    def engine_bytes(self, run: Run) -> float:
        """Of the engine beside the trainer; with the graphs, which its share does not hold."""
        if not run.engine or run.served:
            return 0.0
        return float(run["gpu_memory_utilization"] * self.chip.memory + (0.0 if run["enforce_eager"] else 0.7 * GB))

    @lru_cache(maxsize=100_000)  # noqa: B019 - as above
    def cache_tokens(self, run: Run) -> float:
        """Tokens the engine's cache holds."""
        quantized = 0.55 if run["rollout_quantization"] == "fp8" else 1.0
        weights = 2.0 * self.model.parameters * quantized / run.tensor
        each = 40.0 * self.model.width + 2.0 * self.model.vocabulary
        batched = (run["max_num_batched_tokens"] or 8192) * each
        left = run["gpu_memory_utilization"] * self.chip.memory - weights - batched - 0.8 * GB
        size = self._cache_bytes * (0.5 if run["kv_cache_dtype"] == "fp8" else 1.0) / run.tensor
        return float(max(0.0, left / size))

    def used(self, run: Run, draw: float) -> dict[str, float]:
        """What the driver sees at most, by phase; ``draw``: a process's luck with memory, from 0 to 1 (bad)."""
        lost = 1.0 + self.fragmentation[0] + draw * (self.fragmentation[1] - self.fragmentation[0])
        engine, context = self.engine_bytes(run), 0.9 * GB + (1.1 * GB if self.gpus > 1 else 0.0)
        asleep = 1.6 * GB if engine and run["sleep_level"] else engine
        awake = {GENERATE, SYNC}
        return {
            name: held * lost + context + (engine if name in awake else asleep)
            for name, held in self.moments(run).items()
        }

    def capacity(self, draw: float) -> float:
        """What a process can have; ``draw`` as of ``used``."""
        return 0.992 * self.chip.memory - self.others[0] - draw * (self.others[1] - self.others[0])

    def peaks(self, configuration: Configuration, draw: float) -> Mapping[str, Peaks]:
        """As a trial records them."""
        run = self.run(configuration)
        engine, moments = self.engine_bytes(run), self.moments(run)
        lost = 1.0 + self.fragmentation[0] + draw * (self.fragmentation[1] - self.fragmentation[0])
        found = {}
        for name, used in self.used(run, draw).items():
            beside = 0.0 if run["sleep_level"] else engine
            held = (moments[name] + beside, moments[name] * lost + beside, used)
            found[name] = Peaks(*(int(x) for x in held))
        return found

    def ooms(self, configuration: Configuration, draw: float) -> tuple[str, Pool] | None:
        """Where memory runs out in a process, and of which pool."""
        return self._ooms(self.run(configuration), draw)

    def _ooms(self, run: Run, draw: float) -> tuple[str, Pool] | None:
        limit = self.capacity(draw)
        if run.engine:
            if self.cache_tokens(run) < self.max_prompt + self.max_completion:
                return StartupPart.ENGINE.value, Pool.ROLLOUT_CACHE
            loaded = (4.0 if not run.verl else 0.5) * self.model.parameters / (run.ranks if run.zero == 3 else 1)
            if not run.served and loaded + self.engine_bytes(run) + 1.2 * GB > limit:
                return StartupPart.ENGINE.value, Pool.DEVICE
        found = self.used(run, draw)
        for name in (GENERATE, LOGPROB, UPDATE, SYNC):
            if found[name] > limit:
                return name, Pool.DEVICE
        return None

    def fits(self, configuration: Configuration) -> float:
        """Share of processes whose memory suffices."""
        run = self.run(configuration)
        if self._ooms(run, 0.0) is not None:
            return 0.0
        low, high = 0.0, 1.0
        if self._ooms(run, 1.0) is None:
            return 1.0
        for _ in range(UNCERTAIN):
            middle = (low + high) / 2
            low, high = (low, middle) if self._ooms(run, middle) is not None else (middle, high)
        return low

    # starts and cycles ------------------------------------------------------------------------------------------------

    def start(self, configuration: Configuration, engines: int, *, kept: bool) -> Start:
        """Of a trial."""
        if kept:
            return Start({"import": 0.0, "load": 0.4, "engine": 0.4, "first_batch": 0.2}, self.starts.kept - 1.0)
        run, later = self.run(configuration), min(engines, 1)
        whole = self.starts.transformers[later]
        if not run.engine:
            return Start({"spawn": 0.6 * whole, "import": 0.0, "load": 0.3 * whole, "first_batch": 0.3}, 0.1 * whole)
        engine = (self.starts.eager_engine if run["enforce_eager"] else self.starts.engine)[later]
        parts = {"spawn": 0.2, "import": 0.4 * whole, "load": 0.3 * whole, "engine": engine, "first_batch": 0.3}
        return Start(parts | ({"server": self.starts.server} if run.served else {}), 0.1 * whole)

    def factor(self, configuration: Configuration, kind: CycleKind, place: int, *, kept: bool) -> float:
        """A cycle's seconds over those of a steady one at the recorded lengths."""
        early = 1.0 if kept or place >= len(self.first_cycles) else self.first_cycles[place]
        if kind in (CycleKind.RECORDED, CycleKind.NATURAL):
            return early
        return early * self._longest.seconds(configuration) / self.seconds(configuration)

    @cached_property
    def _longest(self) -> World:
        return replace(self, lengths=(self.max_completion,) * len(self.lengths))

    def end_s(self, configuration: Configuration, *, kept: bool, discarded: bool) -> float:  # noqa: ARG002
        """From the last cycle to the end of the attempt."""
        return self.starts.end if self.gpus == 1 else 4.0 * self.starts.end

    def keeps(self, configuration: Configuration, served: int) -> bool:  # noqa: ARG002
        """One GPU's process goes on with another trial; several ranks, and verl's processes, do not."""
        return self.gpus == 1 and self.framework != "verl"

    def between_s(self, trials: int) -> float:  # noqa: ARG002
        """Proposals take no time."""
        return 0.0

    # figures ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _body(self) -> float:
        """Parameters without the vocabulary's."""
        return self.model.parameters - self.model.vocabulary * self.model.width

    @cached_property
    def _cache_bytes(self) -> float:
        """Of a token's keys and values."""
        return 4.0 * self.model.layers * self.model.key_value * self.model.width / self.model.heads

    @staticmethod
    def _shards(run: Run) -> int:
        """Parts of the optimizer's state."""
        return run.ranks if run.zero or run.verl else 1

    @cached_property
    def mean(self) -> float:
        """Of the recorded lengths."""
        return sum(self.lengths) / len(self.lengths)

    def _dealt(self, shares: int, rows: int) -> tuple[int, ...]:
        """The lengths of the share that has the longest ones."""
        return tuple(sorted(self.lengths, reverse=True)[:: max(1, shares)][:rows])

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _slower(host: Any, device: Any) -> Any:
    """The slower of the two, and a little of the other."""
    return (host**4 + device**4) ** 0.25
