"""What an earlier study is worth to the next one: none, a related one, and one that says the opposite.

``python -m benchmarks.related_studies [--seeds 20] [--trials 24]`` draws that many machines. A machine is the roofline
of some device, times effects of knobs drawn at random; on it the grey-box sampler searches 512 configurations, a
quarter of which do not fit, from the same baseline with the same noise. The related study ran on half the cores at
half the lengths, with nearly the same effects. The adversarial one has each effect turned round and enlarged, ran
three times as slowly, and measured half the memory. Nothing here was measured: the figures say how the sampler deals
with a history, not what one gains on a real machine. See docs/decisions/0036-earlier-studies.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial, TrialKind
from autotune.proposals.forecasts import EarlierTrials, PriorData, Task
from autotune.proposals.grey.models import models_for
from autotune.proposals.memory import features as memory_features
from autotune.proposals.memory.features import PARTS
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers.grey import GreySampler
from autotune.proposals.times import Hardware, features, roofline
from autotune.proposals.times.features import KNOBS_OF, PHASES
from autotune.proposals.times.lengths import Lengths
from autotune.proposals.times.roofline import World
from search_spaces.configuration import KnobValue
from tests.support import factories
from tests.support.timed_machine import MODEL, PROMPT

GOALS = (0.10, 0.05)
"""What may be missing of the fastest configuration that fits."""
FEWEST_SEEDS = 20
EFFECT, UNMOVED, ALIKE = 0.5, 0.4, 0.1
"""Standard deviation of a value's effect in log seconds; share of knobs without any; what a related study's differ."""
CYCLE_NOISE, PROCESS_NOISE, PEAK_NOISE = 0.02, 0.03, 0.02
CYCLES, EARLIER_TRIALS = 3, 30
ROOM = 0.75
"""Share of the configurations that fit."""
ARMS = ("none", "related", "adversarial")
VALUES: Mapping[str, Sequence[KnobValue]] = {
    "micro_batch_size": (1, 2, 4, 8),
    "gradient_checkpointing": (True, False),
    "precision": ("fp32", "bf16"),
    "rollout_engine": ("transformers", "vllm"),
    "attn_implementation": ("sdpa", "eager"),
    "optimizer": ("adamw_torch_fused", "adamw_torch"),
    "logprob_rows": (1, 2, 4, 8),
}
CORES = 2
DEVICE = Hardware("cpu made up", {"fp32": 2e11, "bf16": 4e11}, 9e9, 5e-6, spread=0.1)


def configurations() -> tuple[Configuration, ...]:
    """All of them; the first is the baseline."""
    found = []
    for values in itertools.product(*VALUES.values()):
        own: dict[str, KnobValue] = dict(zip(VALUES, values, strict=True))
        steps = factories.ROWS // int(own["micro_batch_size"])
        batch: dict[str, KnobValue] = {"gradient_accumulation_steps": steps, "steps_per_generation": steps}
        found.append(Configuration({**own, **batch, "num_generations": 4, "master_weights": "fp32"}))
    return tuple(found)


EVERY = configurations()


def task_of(share: float = 1.0) -> Task:
    """The work; at a ``share`` of the lengths and of the cores."""
    return Task(
        resources=factories.resources(model=MODEL, cpu_cores=round(CORES * share)),
        rows_per_update=factories.ROWS,
        max_prompt_length=factories.MAX_PROMPT,
        max_completion_length=max(8, round(factories.MAX_COMPLETION * share)),
        lengths=tuple(max(1, round(n * share)) for n in factories.LENGTHS),
        prompt_tokens=PROMPT,
    )


Effects = Mapping[tuple[str, str, KnobValue], float]
"""Log seconds beyond the roofline, by phase, knob and value."""


@dataclass(frozen=True)
class Machine:
    """What every configuration takes."""

    task: Task
    seconds: Mapping[str, NDArray[np.float64]]
    """By phase, of each of ``EVERY``; of a cycle."""
    peaks: NDArray[np.float64]
    """Bytes."""

    @property
    def whole(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.sum(list(self.seconds.values()), axis=0)
        return found

    def limited(self, room: float = ROOM) -> Machine:
        """With a memory limit below which that share fits, the baseline among it."""
        limit = max(float(np.quantile(self.peaks, room)), 1.01 * float(self.peaks[0]))
        return replace(self, task=replace(self.task, memory_limit=int(limit)))

    def fits(self) -> NDArray[np.bool_]:
        """Which of ``EVERY`` do."""
        limit = self.task.memory_limit
        return np.ones(len(self.peaks), dtype=np.bool_) if limit is None else self.peaks < limit

    def run(self, place: int, number: int, chance: np.random.Generator) -> Trial:
        """The trial a configuration makes."""
        configuration = EVERY[place]
        peak = float(self.peaks[place]) * math.exp(chance.normal(0.0, PEAK_NOISE))
        if self.task.memory_limit is not None and peak >= self.task.memory_limit:
            limit = self.task.memory_limit
            return factories.failed(number, factories.oom(), configuration=configuration, watchdog_peak=limit)
        process = chance.normal(0.0, PROCESS_NOISE)
        cycles = []
        for index in range(CYCLES):
            phases = {
                phase: float(column[place]) * math.exp(process + chance.normal(0.0, CYCLE_NOISE))
                for phase, column in self.seconds.items()
                if column[place] > 0
            }
            lengths = self.task.lengths
            whole = sum(phases.values())
            cycles.append(factories.cycle(index, seconds=whole, phases=phases, lengths=lengths, peaks={}))
        kind = TrialKind.BASELINE if number == 0 else TrialKind.SEARCH
        made = factories.finished(number, kind=kind, configuration=configuration, cycles=0, watchdog_peak=int(peak))
        return made.with_(cycles=tuple(cycles))


def drawn(chance: np.random.Generator) -> tuple[Effects, NDArray[np.float64]]:
    """Effects of knobs, and what becomes of the memory formulas."""
    effects: dict[tuple[str, str, KnobValue], float] = {}
    for phase in PHASES:
        for knob in sorted(set(VALUES) & set(KNOBS_OF[phase])):
            moves = chance.random() >= UNMOVED
            for value in VALUES[knob]:
                effects[phase, knob, value] = chance.normal(0.0, EFFECT) if moves else 0.0
    return effects, np.exp(chance.normal(0.0, 0.15, len(PARTS)))


def machine(task: Task, effects: Effects, parts: NDArray[np.float64], slower: float = 1.0) -> Machine:
    """The roofline with effects; the memory formulas with factors."""
    share = task.resources.cpu_cores / CORES
    device = replace(DEVICE, flops={k: v * share for k, v in DEVICE.flops.items()}, bandwidth=DEVICE.bandwidth * share)
    table, world = features(task, EVERY), World(task, device, Lengths(task.lengths, PROMPT, PROMPT))
    seconds = {}
    for phase in PHASES:
        rows = table.phases[phase]
        beyond = [sum(effects.get((phase, knob, c[knob]), 0.0) for knob in VALUES) for c in EVERY]
        seconds[phase] = slower * roofline(phase, rows, world)[rows.index] * np.exp(beyond)
    peaks = (memory_features(task, EVERY)[-1] @ parts).max(axis=1)
    return Machine(task, seconds, peaks)


def history(
    arm: str, effects: Effects, parts: NDArray[np.float64], chance: np.random.Generator
) -> tuple[EarlierTrials, ...]:
    """What the search begins with."""
    if arm == "none":
        return ()
    if arm == "related":
        near = {key: value + chance.normal(0.0, ALIKE) for key, value in effects.items()}
        there = machine(task_of(0.5), near, parts * np.exp(chance.normal(0.0, ALIKE, len(parts))))
    else:
        there = machine(task_of(0.5), {key: -1.5 * v for key, v in effects.items()}, 0.5 * parts, slower=3.0)
    places = chance.choice(len(EVERY), size=EARLIER_TRIALS, replace=False)
    trials = tuple(there.run(int(place), number, chance) for number, place in enumerate(places))
    return (EarlierTrials(there.task, trials, distance=2.0),)


@dataclass(frozen=True)
class Found:
    """Of one search."""

    reached: tuple[float, ...]
    """Trials to each of ``GOALS``, the baseline aside; ``inf`` where it was not."""
    ooms: int


def search(here: Machine, prior_data: PriorData, seed: int, trials: int) -> Found:
    """One search."""
    proposer = TwoTrackProposer(
        headline=EVERY, permitted=(), searched=tuple(VALUES), baseline=EVERY[0], complete_baseline=EVERY[0],
        sampler=GreySampler(models_for(here.task, prior_data)), seed=seed, one_memory=True,
    )  # fmt: skip
    places, whole = {c: i for i, c in enumerate(EVERY)}, here.whole
    best = float(whole[here.fits()].min())
    made, missing = [here.run(0, 0, np.random.default_rng([seed, 0]))], []
    for number in range(1, trials + 1):
        proposal = proposer.propose(made, number)
        if proposal is None:
            break
        place = places[proposal[0]]
        made.append(here.run(place, number, np.random.default_rng([seed, place])).with_(source=proposal[1]))
        held = [t for t in made if t.feasible]
        fastest = max(held, key=lambda t: t.tokens_per_hour or 0.0)
        missing.append(1.0 - best / float(whole[places[fastest.configuration]]))
    reached = [next((n for n, m in enumerate(missing, start=1) if m <= goal), math.inf) for goal in GOALS]
    return Found(tuple(reached), sum(not t.feasible for t in made))


def compared(seeds: int, trials: int) -> Mapping[str, list[Found]]:
    """Every arm on the same machines."""
    found: dict[str, list[Found]] = {arm: [] for arm in ARMS}
    for seed in range(seeds):
        effects, parts = drawn(np.random.default_rng([seed, 1]))
        here = machine(task_of(), effects, parts).limited()
        for arm in ARMS:
            earlier = history(arm, effects, parts, np.random.default_rng([seed, 2]))
            found[arm].append(search(here, PriorData(earlier=earlier), seed, trials))
        print(f"machine {seed + 1} of {seeds}", file=sys.stderr, flush=True)
    return found


def table(found: Mapping[str, Sequence[Found]]) -> str:
    """Medians over machines, with the slowest tenth beside them."""
    heads = ["history", *(f"to {goal:.0%}" for goal in GOALS), "out of memory"]
    rows = [heads]
    for arm, runs in found.items():
        cells = [_cell([run.reached[i] for run in runs]) for i in range(len(GOALS))]
        rows.append([arm, *cells, f"{statistics.fmean(run.ooms for run in runs):.1f}"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cell(values: Sequence[float]) -> str:
    ordered = sorted(values)
    late = ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]
    return f"{_number(statistics.median(ordered))} ({_number(late)})"


def _number(value: float) -> str:
    return "not reached" if math.isinf(value) else f"{value:g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.related_studies")
    parser.add_argument("--seeds", type=int, default=FEWEST_SEEDS, help=f"machines ({FEWEST_SEEDS})")
    parser.add_argument("--trials", type=int, default=24, help="of each search, the baseline aside (24)")
    given = parser.parse_args(arguments)
    for name in ("seeds", "trials"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)}: expected a whole number above 0")
    print(table(compared(given.seeds, given.trials)))
    print(
        f"trials until the fastest so far lacks at most that share of the best that fits: median (90th percentile) "
        f"over {given.seeds} made-up machines, the baseline aside; out of memory: mean of {given.trials} trials"
    )
    if given.seeds < FEWEST_SEEDS:
        print(f"{given.seeds} machines only try the command: {FEWEST_SEEDS} or more are what figures are stated from")
    return 0


if __name__ == "__main__":
    sys.exit(main())
