"""A made-up machine: the roofline of other hardware, times effects of knobs the roofline knows nothing of."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autotune.domain import Configuration, Trial, TrialKind
from autotune.proposals.forecasts import Task
from autotune.proposals.times import Hardware, features
from autotune.proposals.times.features import PHASES
from autotune.proposals.times.lengths import Lengths
from autotune.proposals.times.roofline import World, parts_of, seconds_of
from search_spaces.configuration import ModelFacts
from tests.support import factories as f

MODEL = ModelFacts(134_515_008, 30, 576, 9, 3, 49_152, 8192)
CPU = Hardware("cpu made up", {"fp32": 2e11, "bf16": 4e11}, 9e9, 5e-7, spread=0.1)
PROMPT = 40.0
EFFECTS: Mapping[str, Mapping[str, float]] = {
    "update": {"attn_implementation=eager": -0.45, "optimizer=adamw_torch": 0.1, "micro_batch_size=1": 0.15},
    "generate": {"rollout_engine=vllm": -0.3, "attn_implementation=eager": 0.08},
    "logprob": {"attn_implementation=eager": -0.1, "micro_batch_size=1": 0.3},
    "sync": {"rollout_engine=vllm": 0.5},
}
"""Log seconds beyond the roofline."""


def task(**changes: object) -> Task:
    base = Task(
        resources=f.resources(model=MODEL),
        rows_per_update=f.ROWS,
        max_prompt_length=f.MAX_PROMPT,
        max_completion_length=f.MAX_COMPLETION,
        lengths=f.LENGTHS,
        prompt_tokens=PROMPT,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def configurations() -> list[Configuration]:
    """128 of them, all legal for the batch."""
    found = []
    for micro, saved, kind, engine, attention, optimizer in itertools.product(
        (1, 2, 4, 8), (True, False), ("bf16", "fp32"), ("transformers", "vllm"), ("sdpa", "eager"),
        ("adamw_torch_fused", "adamw_torch"),
    ):  # fmt: skip
        values = {
            "micro_batch_size": micro,
            "gradient_accumulation_steps": f.ROWS // micro,
            "steps_per_generation": f.ROWS // micro,
            "num_generations": 4,
            "gradient_checkpointing": saved,
            "precision": kind,
            "master_weights": "fp32",
            "rollout_engine": engine,
            "attn_implementation": attention,
            "optimizer": optimizer,
        }
        found.append(Configuration(values))
    return found


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's coefficient."""
    ranks = [np.argsort(np.argsort(column, kind="stable")) for column in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


Effects = Mapping[str, Mapping[str, float]]


def true_seconds(asked: Sequence[Configuration], about: Task, effects: Effects = EFFECTS) -> dict[str, np.ndarray]:
    """Of a cycle, by phase, without noise."""
    table = features(about, tuple(asked))
    world = World(about, CPU, Lengths(about.lengths, PROMPT, PROMPT))
    found = {}
    for phase in PHASES:
        rows = table[phase]
        seconds = seconds_of(parts_of(phase, rows, world), {}, rows.size)[rows.index]
        own = effects.get(phase, {})
        beyond = [sum(v for k, v in own.items() if k in {f"{n}={x}" for n, x in c.items()}) for c in asked]
        found[phase] = seconds * np.exp(beyond)
    return found


def trials(
    asked: Sequence[Configuration],
    about: Task | None = None,
    noise: float = 0.02,
    seed: int = 0,
    first: int = 0,
    effects: Effects = EFFECTS,
) -> list[Trial]:
    """One COMPLETE trial of three cycles for each configuration; noise is of each cycle and, twice that, each trial."""
    about = about or task()
    seconds, draw = true_seconds(asked, about, effects), random.Random(seed)
    found = []
    for place, configuration in enumerate(asked):
        process = draw.gauss(0.0, 2 * noise)
        cycles = []
        for index in range(3):
            phases = {
                phase: float(column[place]) * math.exp(process + draw.gauss(0.0, noise))
                for phase, column in seconds.items()
                if column[place] > 0
            }
            cycles.append(f.cycle(index, seconds=sum(phases.values()), phases=phases))
        number = first + place
        kind = TrialKind.BASELINE if number == 0 else TrialKind.SEARCH
        found.append(f.finished(number, kind=kind, configuration=configuration, cycles=0).with_(cycles=tuple(cycles)))
    return found
