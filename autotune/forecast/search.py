"""Finds the best predicted configurations of a space: samples legal ones, then improves a few knobs at a time. Pure.

A space of several GPUs has millions of legal combinations, and a forecast of each would take minutes. The sample has
every rollout engine and split. From its best, the search tries all legal combinations of one block of knobs after the
other, until none is better.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain import Configuration, Resources
from autotune.domain.differences import DERIVED, STEPS
from autotune.forecast.forecasting import Forecasts, Table
from autotune.proposals.forecasts import Column
from search_spaces import legality
from search_spaces.batch import BATCH_KNOBS
from search_spaces.configuration import KnobValue
from search_spaces.native import UNSET
from search_spaces.space import Count, SearchSpace

SAMPLE = 6_000
STARTS = 2
ROUNDS = 3
BLOCK = 1_000
"""Most legal combinations of a block that are examined; more are sampled."""
ALIKE = 0.01
"""Most log tokens/hour that resets of knobs to the baseline's values may cost in total."""

_TIED = frozenset(BATCH_KNOBS)
"""Knobs that determine each other."""

BLOCKS: tuple[tuple[str, ...], ...] = (
    ("micro_batch_size", "gradient_checkpointing", "zero_stage", "offload_optimizer", "offload_parameters"),
    ("micro_batch_size", "gradient_checkpointing", "zero_stage", "sleep_level", "gpu_memory_utilization"),
    ("gpu_memory_utilization", "tensor_parallel_size", "max_num_seqs", "sleep_level", "rollout_data_parallel_size"),
    ("micro_batch_size", "logprob_rows", "gradient_checkpointing", "gpu_memory_utilization"),
    (
        *("rollout_offload_model", "rollout_offload_optimizer", "weight_sync_batches", "weight_sync_layered"),
        *("gpu_memory_utilization", "micro_batch_size"),
    ),
    ("precision", "master_weights", "kv_cache_dtype", "rollout_quantization", "micro_batch_size"),
    ("enforce_eager", "max_num_batched_tokens", "attn_implementation", "optimizer", "prefix_caching", "hub_kernels"),
    (
        *("training_engine", "training_tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size"),
        *("micro_batch_size", "recompute_granularity"),
    ),
    ("rollout_mode", "rollout_gpus", "rollout_data_parallel_size", "tensor_parallel_size", "gpu_memory_utilization"),
)
"""Knobs that interact in time or memory, and are therefore moved together."""

SHAPE = (
    "rollout_engine", "rollout_mode", "rollout_gpus", "tensor_parallel_size", "zero_stage", "offload_optimizer",
    "offload_parameters", "gradient_checkpointing", "training_engine", "training_tensor_parallel_size",
    "pipeline_parallel_size", "recompute_granularity",
)  # fmt: skip
"""Knobs that distinguish answers: two configurations with equal values here count as one answer."""


@dataclass(frozen=True)
class SearchScope:
    """The space, baseline and machine of a plan's search."""

    space: SearchSpace
    baseline: Configuration
    resources: Resources
    same_learning: bool
    own: bool = False
    """True if the baseline is the user's own configuration, whose values are as valid as listed ones."""
    sample: int = SAMPLE
    """Number of combinations that the search begins with."""


@dataclass(frozen=True)
class Found:
    """Result of a search: the best configuration of each shape (the values of ``SHAPE``)."""

    table: Table
    """Forecasts of the best configurations."""
    best: tuple[int, ...]
    """Indices into ``table``, best first."""
    looked_at: int
    """Number of examined combinations: the sample, and steps from it."""
    fitting: int
    """Number of the sample's combinations that are likely to fit, or of the best if those are more."""
    counted: Count
    """Count of all legal combinations."""


def search(scope: SearchScope, forecasts: Forecasts, count: int) -> Found | None:
    """Returns the best configurations of ``count`` different shapes; ``None`` if no configuration is legal."""
    about = scope.baseline, scope.resources
    drawn, counted = scope.space.counted(*about, same_learning=scope.same_learning, limit=scope.sample)
    sample = tuple(scope.space.members(drawn, scope.resources))
    if not sample:
        return None
    table = forecasts.table(sample)
    score = table.score()
    seen = {table.configurations[i]: float(score[i]) for i in _best_shapes(table, max(STARTS, count))}
    seen.update(_climbed(scope, forecasts, dict(list(seen.items())[:STARTS])))
    found = forecasts.table(tuple(seen))
    plain = _plainer(scope, forecasts, found, _best_shapes(found, count))
    best = forecasts.table(tuple(dict.fromkeys(plain)))
    score = best.score().round(3)
    order = sorted(range(len(score)), key=lambda i: (-score[i], len(best.configurations[i].difference(scope.baseline))))
    return Found(best, tuple(order), len(sample) + len(seen), max(table.fitting(), best.fitting()), counted)


def _climbed(
    scope: SearchScope, forecasts: Forecasts, starts: Mapping[Configuration, float]
) -> dict[Configuration, float]:
    """Returns all improvements, with their scores, from each of ``starts`` until no block of knobs has a better one."""
    path: dict[Configuration, float] = {}
    paths = [(start, score, 0) for start, score in starts.items()]
    for block in BLOCKS * ROUNDS:
        moved: dict[Configuration, tuple[Configuration, float, int]] = {}
        near = [_around(scope, here, block) for here, _, _ in paths]
        for (here, score, unmoved), around, scores in zip(paths, near, _scores(forecasts, near), strict=True):
            step = here, score, unmoved + 1
            if around and float(scores.max()) > score + 1e-9:
                step = around[int(np.argmax(scores))], float(scores.max()), 0
                path[step[0]] = step[1]
            # Paths that meet go on as one, which ends where the later of them would.
            moved[step[0]] = min(step, moved.get(step[0], step), key=lambda one: one[2])
        paths = [step for step in moved.values() if step[2] < len(BLOCKS)]
        if not paths:
            break
    return path


def _scores(forecasts: Forecasts, groups: Sequence[Sequence[Configuration]]) -> list[Column]:
    """Scores all groups in one forecast, because a call takes longer than a small number of configurations."""
    together = list(itertools.chain.from_iterable(groups))
    scores = forecasts.table(together).score() if together else np.empty(0)
    return np.split(scores, np.cumsum([len(group) for group in groups])[:-1])


def _around(scope: SearchScope, here: Configuration, block: Sequence[str]) -> tuple[Configuration, ...]:
    """Returns the legal combinations of the knobs in ``block``; all other knobs are as in ``here``."""
    moved = {name: scope.space.values[name] for name in block if name in scope.space.values}
    if not moved:
        return ()
    fixed = {
        name: here[name]
        for name in (*scope.space.values, *scope.space.fixed)
        if name not in moved and name in here and name not in (STEPS, *DERIVED)  # which follow from the micro-batch
    }
    left = {name: (UNSET,) for name, listed in scope.space.values.items() if UNSET in listed and name not in here}
    narrowed = SearchSpace({**left, **moved}, Configuration(fixed), scope.space.require)
    near = narrowed.candidates(scope.baseline, scope.resources, same_learning=scope.same_learning, limit=BLOCK)
    return tuple(scope.space.members(near, scope.resources))


def _best_shapes(table: Table, count: int) -> tuple[int, ...]:
    """Returns the table indices of the best configuration of each shape, best first."""
    found: dict[tuple[KnobValue | None, ...], int] = {}
    for index in np.argsort(-table.score(), kind="stable").tolist():
        found.setdefault(tuple(table.configurations[index].get(name) for name in SHAPE), index)
        if len(found) == count:
            break
    return tuple(found.values())


def _plainer(
    scope: SearchScope, forecasts: Forecasts, table: Table, places: Sequence[int]
) -> tuple[Configuration, ...]:
    """Resets knobs of the rows at indices ``places`` to the baseline's value, for less than ``ALIKE`` of score in all.

    The result then omits differences that the models can hardly distinguish.
    """
    here = [table.configurations[place] for place in places]
    floors = table.score()[list(places)] - ALIKE
    going: Sequence[int] = range(len(here))
    while going:
        backs = [_put_back(scope, here[i]) for i in going]
        plainer = []
        for i, back, scores in zip(going, backs, _scores(forecasts, backs), strict=True):
            if back and float(scores.max()) >= floors[i]:
                here[i] = back[int(np.argmax(scores))]
                plainer.append(i)
        going = plainer
    return tuple(here)


def _put_back(scope: SearchScope, here: Configuration) -> list[Configuration]:
    """Returns the legal configurations of the space with one more knob at the baseline's value."""
    listed, base = scope.space.values_in(scope.resources), scope.baseline
    changed = [n for n, v in here.items() if base.get(n, v) != v and n not in SHAPE and n not in _TIED]
    own = scope.space.inherited.knobs if scope.own else frozenset[str]()
    changed = [n for n in changed if n in own or base[n] in listed.get(n, ())]
    back = [here.with_(**{name: scope.baseline[name]}) for name in changed]
    return [c for c in back if legality.is_legal(c, scope.resources, scope.baseline)]
