"""The GPUs of two visits as cost models: seconds by phase, start-ups and memory of any configuration of the space.

Pinned at what ``recorded`` holds. What is extrapolated from it, and how:

* update: micro-batches x the longer of what the host needs to launch one and what the device needs to compute it. The
  host's part with checkpointing is recorded (micro-batch 8); without, it is that of the 0.5B model by layers. The
  device's part is recorded at micro-batch 32 with checkpointing, and is three quarters of it without (one forward pass
  less of four).
* log-probs: a third of the update's passes; the host's part is recorded at 8 rows.
* vLLM without compiled code: steps of the 0.5B model by layers. Fewer sequences than rows: waves. No prefix cache:
  0.08 s.
* memory without checkpointing: the 0.5B model's rows by layers, width and tokens. Eager attention: rows x heads x
  tokens^2.
* an engine that sleeps (level 2) gives its memory back in the update and takes ``WAKE_S`` to wake; nobody has measured
  it.
* the H200 of visit E: an update is fitted to the recorded ones by micro-batch and checkpointing; memory and all of vLLM
  are the H100's.
* everything not named here (optimizer, batched tokens, chunks of the LM head, continuous batching) is taken to cost no
  time.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol as Port

from autotune.domain import Configuration, CycleKind, Phase, Pool
from benchmarks.decisions import recorded as r
from benchmarks.decisions.recorded import Start
from trainer.child.contract import Peaks, StartupPart

ROWS = 128
LAYERS, EAGER_LAYERS = 28, 24
WAKE_S = 0.3
EAGER_ATTENTION = 1.3
"""Device seconds of the update with eager attention over those with sdpa; extrapolated."""
GIB = 1 << 30

GENERATE, LOGPROB, UPDATE = Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value
SYNC, IDLE = Phase.SYNC.value, Phase.IDLE.value


@dataclass(frozen=True)
class Noise:
    """Chance in the seconds of cycles, as standard deviations of their logarithms."""

    process: float
    """Of a process's mean around the configuration's."""
    cycle: float
    """Of a cycle around its process's mean."""
    degrees: float = math.inf
    """Of freedom of a cycle's Student distribution."""
    drift: float = 0.0
    """Of the machine over the time of day."""
    outliers: float = 0.0
    """Share of cycles that take ``outlier`` times as long."""
    outlier: float = 1.0

    def of_cycle(self, chance: random.Random) -> float:
        """Draws the logarithm of a cycle's seconds over its process's mean."""
        wide = 1.0
        if math.isfinite(self.degrees):
            wide = math.sqrt((self.degrees - 2.0) / (2.0 * chance.gammavariate(self.degrees / 2.0, 1.0)))
        normal = chance.gauss(0.0, self.cycle)
        slow = math.log(self.outlier) if self.outliers and chance.random() < self.outliers else 0.0
        return normal * wide + slow

    def of_time(self, seed: int, seconds: float) -> float:
        """The logarithm of the machine's pace at a moment: an autoregressive course in steps of ``DRIFT_STEP_S``."""
        return self.drift * _course(seed, int(seconds / DRIFT_STEP_S)) if self.drift else 0.0


DRIFT_STEP_S, DRIFT_KEPT = 20.0, 0.9
"""A step of the drift, and what of it the next one keeps."""


@lru_cache(maxsize=64)
def _walk(seed: int) -> tuple[random.Random, list[float]]:
    chance = random.Random(f"drift/{seed}")  # noqa: S311 - a repeatable draw is the point
    return chance, [chance.gauss(0.0, 1.0)]


def _course(seed: int, step: int) -> float:
    """The drift's ``step``-th value, with a standard deviation of 1."""
    chance, values = _walk(seed)
    while len(values) <= step:
        values.append(DRIFT_KEPT * values[-1] + math.sqrt(1.0 - DRIFT_KEPT**2) * chance.gauss(0.0, 1.0))
    return values[step]


class Machine(Port):
    """What trials cost, and what is true of every configuration. Times in seconds."""

    @property
    def noise(self) -> Noise: ...

    def phases(self, configuration: Configuration) -> Mapping[str, float]:
        """Of a steady cycle at the recorded lengths, without noise."""
        ...

    def factor(self, configuration: Configuration, kind: CycleKind, place: int, *, kept: bool) -> float:
        """Seconds of the ``place``-th cycle of a trial over those of a steady one; ``kept``: its process ran trials
        before."""
        ...

    def start(self, configuration: Configuration, engines: int, *, kept: bool) -> Start:
        """Of a trial; ``engines``: processes with such an engine that were started before."""
        ...

    def peaks(self, configuration: Configuration, draw: float) -> Mapping[str, Peaks]:
        """Highest memory by phase; ``draw``: the process's luck with memory, from 0 to 1, the more the worse."""
        ...

    def ooms(self, configuration: Configuration, draw: float) -> tuple[str, Pool] | None:
        """The phase in which memory runs out in such a process, and of which pool; ``None`` where it suffices."""
        ...

    def fits(self, configuration: Configuration) -> float:
        """Share of processes in which memory suffices."""
        ...

    def end_s(self, configuration: Configuration, *, kept: bool, discarded: bool) -> float:
        """From the last cycle to the end of the attempt."""
        ...

    def keeps(self, configuration: Configuration, served: int) -> bool:
        """Whether a process that ran this, its ``served``-th trial, may run another one."""
        ...

    def between_s(self, trials: int) -> float:
        """From the end of the newest of so many trials to the beginning of the next of the search."""
        ...


class Costs(StrEnum):
    """Which of the recorded costs are taken. Each says what it is of: ``recorded`` names the visits."""

    PLAIN = "h100"
    """The best case of visit A: cycles as TRL's own trainer had them, all that can be shared is, processes are kept."""
    COLD = "h100-cold"
    """A machine that has compiled nothing, with imports that open the GPU: a process is forked for no trial, and trying
    it costs its seconds once for each kind. Processes serve ``r.SERVED`` trials; the first timed cycle of those without
    vLLM is repeated."""
    LAST = "h200"
    """Visit E as it was: slow first cycles, each start of vLLM ends in a CRASH, processes serve ``r.SERVED`` trials."""
    ONCE = "h200-once"
    """The same, but only vLLM's first start crashes; the later ones cost what they do in ``COLD``."""

    @property
    def cold(self) -> bool:
        """Whether processes are given up, cycles repeated and proposals waited for, as on the visits."""
        return self is not Costs.PLAIN


def spread(groups: tuple[tuple[float, ...], ...]) -> float:
    """Standard deviation of logarithms within the groups."""
    logs = [[math.log(value) for value in group] for group in groups]
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in logs)
    return math.sqrt(squares / sum(len(group) - 1 for group in logs))


@dataclass(frozen=True)
class H100:
    """The recorded machine with one of its sets of costs."""

    costs: Costs = Costs.PLAIN
    noise: Noise = Noise(process=spread(r.PROCESS_PAIRS), cycle=spread((*r.VLLM_S, r.PLAIN_STEP_S)))

    def phases(self, configuration: Configuration) -> Mapping[str, float]:
        means = {name: statistics.fmean(seconds) for name, seconds in r.VLLM_PHASES_S.items()}
        found = {UPDATE: self._update(configuration), IDLE: means[IDLE], SYNC: 0.0, LOGPROB: 0.0}
        if configuration["rollout_engine"] != "vllm":
            return {GENERATE: statistics.median(r.H200_GENERATE_S if self.on_h200 else r.PLAIN_GENERATE_S), **found}
        found[LOGPROB] = self._logprob(configuration, means[LOGPROB])
        found[SYNC] = means[SYNC] + (WAKE_S if configuration["sleep_level"] else 0.0)
        return {GENERATE: self._generate(configuration, means[GENERATE]), **found}

    @property
    def on_h200(self) -> bool:
        """Whether it is the machine of visit E."""
        return self.costs in (Costs.LAST, Costs.ONCE)

    def _update(self, configuration: Configuration) -> float:
        micro, saved = int(configuration["micro_batch_size"]), bool(configuration["gradient_checkpointing"])
        if self.on_h200:  # a part by micro-batches, and one by rows
            return r.H200_MICRO_BATCH_S * ROWS / micro + r.H200_UPDATE_S[saved]
        # The first recorded point: a step less its generation, the host launching 16 micro-batches with checkpointing.
        steps = zip(r.PLAIN_STEP_S, r.PLAIN_GENERATE_S, strict=True)
        host = statistics.median(step - generate for step, generate in steps) / (ROWS / 8)
        if not saved:
            eight, sixteen = r.UPDATE_EAGER_S[8, False], r.UPDATE_EAGER_S[16, False]
            host = (eight - sixteen) / 4 * LAYERS / EAGER_LAYERS
        device = r.UPDATE_32_S / ROWS * (1.0 if saved else 0.75)
        if configuration["attn_implementation"] == "eager":
            device *= EAGER_ATTENTION
        return ROWS / micro * max(host, device * micro)

    def _logprob(self, configuration: Configuration, at_eight: float) -> float:
        rows = int(configuration["logprob_rows"])
        host, device = at_eight / (ROWS / 8), r.UPDATE_32_S / ROWS * 0.75 / 3
        return ROWS / rows * max(host, device * rows)

    @staticmethod
    def _generate(configuration: Configuration, compiled: float) -> float:
        seconds = compiled
        if configuration["enforce_eager"]:
            seconds = r.GENERATE_EAGER_S / 256 * 96 * LAYERS / EAGER_LAYERS
        waves = math.ceil(ROWS / int(configuration["max_num_seqs"]))
        return seconds * (0.2 + 0.8 * waves) + (0.0 if configuration["prefix_caching"] else 0.08)

    def factor(self, configuration: Configuration, kind: CycleKind, place: int, *, kept: bool) -> float:
        if configuration["rollout_engine"] == "vllm":
            warm = [w / statistics.fmean(cycles) for w, cycles in zip(r.VLLM_WARMUP_S, r.VLLM_S, strict=True)]
            return statistics.fmean(warm) if kind is CycleKind.WARMUP else 1.0
        if self.on_h200:
            return r.H200_FACTORS[kept][place] if place < 2 else 1.0
        if self.costs.cold and place == 1:
            return r.H200_FACTORS[True][1]
        return r.PLAIN_FIRST_S / statistics.median(r.PLAIN_STEP_S) if kind is CycleKind.WARMUP else 1.0

    def start(self, configuration: Configuration, engines: int, *, kept: bool) -> Start:
        if kept:
            return r.KEPT_START
        if configuration["rollout_engine"] != "vllm":
            return self._without_engine(engines)
        if self.costs is Costs.LAST or (self.costs is Costs.ONCE and not engines):
            return r.H200_CRASH
        first = engines == (1 if self.costs is Costs.ONCE else 0)
        found = r.VLLM_FIRST if first else r.VLLM_LATER
        parts = dict(found.parts)
        if configuration["enforce_eager"]:
            parts["engine"] = r.VLLM_EAGER_ENGINE_S[0 if first else 1]
        elif self.costs.cold and first:
            parts["engine"] = r.COLD_ENGINE_S
        refused = r.REFUSED_S["vllm"] if self.costs is Costs.COLD and first else 0.0
        return Start(parts, r.TRANSFORMERS_START.unnamed + refused)

    def _without_engine(self, before: int) -> Start:
        parts, unnamed = dict(r.TRANSFORMERS_START.parts), r.TRANSFORMERS_START.unnamed
        if self.costs is Costs.COLD:  # imports by itself, each time
            parts |= {"spawn": r.VLLM_LATER.parts["spawn"], "import": parts["spawn"]}
            return Start(parts, unnamed + (0.0 if before else r.REFUSED_S["transformers"]))
        if self.on_h200 and before:
            parts["spawn"] = r.H200_FORK_S
        return Start(parts, unnamed)

    def peaks(self, configuration: Configuration, draw: float) -> Mapping[str, Peaks]:  # noqa: ARG002
        # The allocator's own parts are those that trial 0 of the recorded study had of what the driver saw.
        found = {name: int(gib * GIB) for name, gib in self._gib(configuration).items()}
        return {name: Peaks(int(n * 28.1 / 30.6), int(n * 29.8 / 30.6), n) for name, n in found.items()}

    def _gib(self, configuration: Configuration) -> Mapping[str, float]:
        """What the driver sees at most, by phase."""
        engine, asleep = 0.0, 0.0
        if configuration["rollout_engine"] == "vllm":
            engine = float(configuration["gpu_memory_utilization"]) * r.TOTAL_GIB
            asleep = 1.5 if configuration["sleep_level"] else engine
        before = r.IDLE_GIB + engine
        return {
            IDLE: before,
            GENERATE: before + (0.0 if engine else 2.7),
            UPDATE: self._training_gib(configuration) + asleep,
        }

    @staticmethod
    def _training_gib(configuration: Configuration) -> float:
        micro, saved = int(configuration["micro_batch_size"]), bool(configuration["gradient_checkpointing"])
        each = (r.PEAK_32_GIB - r.PEAK_8_GIB) / 24
        found = r.UPDATE_GIB + each * (micro - 8)
        tokens = 256 + 96
        if not saved:
            found += r.KEPT_ACTIVATIONS_GIB * micro * (LAYERS * 1536) / (EAGER_LAYERS * 896) * tokens / 384
        if configuration["attn_implementation"] == "eager":
            found += micro * 12 * tokens**2 * 6 / GIB * (1 if saved else LAYERS)
        return found

    def ooms(self, configuration: Configuration, draw: float) -> tuple[str, Pool] | None:  # noqa: ARG002
        found = self._gib(configuration)
        capacity = r.H200_CAPACITY_GIB if self.on_h200 else r.CAPACITY_GIB
        if found[IDLE] > capacity:  # D, trial 1: the optimizer's state found no room beside the engine
            return StartupPart.FIRST_BATCH.value, Pool.DEVICE
        return (UPDATE, Pool.DEVICE) if found[UPDATE] > capacity else None

    def fits(self, configuration: Configuration) -> float:
        crashes = self.costs is Costs.LAST and configuration["rollout_engine"] == "vllm"
        return float(self.ooms(configuration, 0.0) is None and not crashes)

    def end_s(self, configuration: Configuration, *, kept: bool, discarded: bool) -> float:  # noqa: ARG002
        if kept:
            return r.KEPT_END_S
        return r.VLLM_END_S if configuration["rollout_engine"] == "vllm" else r.TRANSFORMERS_END_S

    def keeps(self, configuration: Configuration, served: int) -> bool:  # noqa: ARG002
        return served < r.SERVED or not self.costs.cold

    def between_s(self, trials: int) -> float:
        return r.BETWEEN_S[trials % len(r.BETWEEN_S)] if self.costs.cold else 0.0
