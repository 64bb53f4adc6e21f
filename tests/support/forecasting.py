"""Models of times and memory that know a formula, and a machine to try them on, for tests of who asks them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.domain import Configuration, CycleKind, CycleRecord, FailureReason, Phase, Trial
from autotune.proposals.forecasts import PeakForecast, Task, TimeForecast
from tests.support import factories

GPU = factories.resources(device="cuda", gpus=1, device_memory=80 * factories.GIB)
TASK = Task.of(factories.study_spec(resources=GPU))
TOKENS = 36_000
Formula = Callable[[Configuration], Mapping[str, float]]


@dataclass(frozen=True)
class FormulaTimes:
    """Seconds by a formula, each phase scaled to what was measured."""

    formula: Formula
    spread: float = 0.1
    scales: Mapping[str, float] = field(default_factory=dict)
    told: frozenset[Configuration] = frozenset()
    """Configurations that were measured: surely known."""
    asked: list[int] = field(default_factory=list, compare=False)
    """How many configurations each forecast was about."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> FormulaTimes:
        ratios: dict[str, list[float]] = {}
        for trial in trials:
            for cycle in trial.speed_cycles():
                for name, seconds in self.formula(trial.configuration).items():
                    if cycle.phases.get(name, 0.0) > 0:
                        ratios.setdefault(name, []).append(math.log(cycle.phases[name] / seconds))
        scales = {name: math.exp(statistics.median(r)) for name, r in ratios.items()}
        told = frozenset(t.configuration for t in trials if t.speed_cycles())
        return replace(self, scales=scales, told=told)

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        self.asked.append(len(configurations))
        each = [self.formula(c) for c in configurations]
        names = sorted({name for phases in each for name in phases})
        columns = {n: np.array([p.get(n, 0.0) * self.scales.get(n, 1.0) for p in each]) for n in names}
        whole = np.log(sum(columns.values(), start=np.zeros(len(each))))
        spread = np.array([0.02 if c in self.told else self.spread for c in configurations])
        return TimeForecast(whole, spread, columns)


@dataclass(frozen=True)
class FormulaPeaks:
    """Whether a configuration fits, known beforehand."""

    fits: Callable[[Configuration], float]

    def fitted(self, task: Task, trials: Sequence[Trial]) -> FormulaPeaks:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        fits = np.array([self.fits(c) for c in configurations], dtype=np.float64)
        return PeakForecast(np.full(len(fits), 1e9), np.full(len(fits), 0.1), fits)


KNOBS: Mapping[str, Sequence[object]] = {
    "micro_batch_size": (1, 2, 4, 8, 16),
    "gradient_checkpointing": (True, False),
    "attn_implementation": ("eager", "sdpa", "flash_attention_2"),
    "logprob_rows": (1, 2, 4, 8),
    "max_num_seqs": (8, 16, 32, 64, 128),
    "optimizer": ("adamw", "adamw_fused"),
}
CANDIDATES = tuple(
    Configuration(dict(zip(KNOBS, values, strict=True)))  # type: ignore[arg-type]
    for values in itertools.product(*KNOBS.values())
)


def seconds(configuration: Configuration) -> dict[str, float]:
    """A machine on which each phase depends on one to three knobs: the best takes 6.5 s, the worst 31 s."""
    rows, seqs = int(configuration["micro_batch_size"]), int(configuration["max_num_seqs"])
    attention = {"eager": 1.4, "sdpa": 1.0, "flash_attention_2": 0.9}[str(configuration["attn_implementation"])]
    update = (1.0 + 6.0 / rows + 0.12 * rows) * (1.3 if configuration["gradient_checkpointing"] else 1.0) * attention
    generate = 1.5 + 40.0 / seqs + 0.02 * seqs
    logprob = {1: 2.4, 2: 1.6, 4: 1.2, 8: 1.5}[int(configuration["logprob_rows"])] * attention
    return {Phase.UPDATE.value: update, Phase.GENERATE.value: generate, Phase.LOGPROB.value: logprob}


def total(configuration: Configuration) -> float:
    return sum(seconds(configuration).values())


def measured(number: int, configuration: Configuration, noise: float = 0.0, **changes: object) -> Trial:
    """The feasible trial ``configuration`` makes on that machine."""
    phases = {name: s * math.exp(noise) for name, s in seconds(configuration).items()}
    cycle = CycleRecord(
        index=0,
        cycle_kind=CycleKind.RECORDED,
        seconds=sum(phases.values()),
        phases=phases,
        completion_tokens=TOKENS,
        prompt_tokens=0,
        rows=8,
        updates=1,
        computed_tokens=TOKENS,
    )
    return factories.finished(number, configuration=configuration, cycles=0).with_(cycles=(cycle,), **changes)


def ran_out(number: int, configuration: Configuration) -> Trial:
    """The same configuration, had memory not sufficed; of a used worker, so that nothing else is ruled out."""
    return factories.failed(number, factories.oom(fresh=False), configuration=configuration)


def crashed(number: int, configuration: Configuration) -> Trial:
    return factories.failed(number, factories.failure(FailureReason.CRASH), configuration=configuration)
