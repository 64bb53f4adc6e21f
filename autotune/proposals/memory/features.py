"""The matrix the memory model is linear in: bytes by pool, configuration, moment and part, by formula alone.

A part's coefficient is what measurements make of its formula, 1 before any. See docs/decisions/0029-memory-model.md for
where constants are from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Pool
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.rollout import Rollout, Sync, rollout, sync
from autotune.proposals.memory.settings import Settings, dimensions, settings
from autotune.proposals.memory.training import States, Transients, states, transients
from autotune.proposals.reading import coded_columns, distinct


class Part(StrEnum):
    """A summand of the peak."""

    FLOOR = "floor"
    """Imports of the training process; on a GPU its CUDA context."""
    ENGINE_FLOOR = "engine floor"
    """Imports of a rollout engine in the same tree."""
    WEIGHTS = "weights"
    """What is trained, frozen weights under LoRA and a reference model included."""
    CASTS = "casts"
    """Copies of the weights in the precision of the products."""
    GRADIENTS = "gradients"
    BUCKETS = "buckets"
    """What gradients and weights are sent between ranks in."""
    OPTIMIZER = "optimizer"
    STEP = "optimizer step"
    """Temporaries of an unfused step."""
    ACTIVATIONS = "activations"
    SCORES = "attention scores"
    """Of attention that writes them out."""
    LOGITS = "logits"
    GENERATION = "generation"
    """Keys, values and logits of generation by transformers."""
    ENGINE_WEIGHTS = "engine weights"
    CACHE = "rollout cache"
    """The engine's share of memory less its weights."""
    WORKSPACE = "engine workspace"
    """Graphs and buffers outside the engine's share."""
    RESIDUE = "asleep"
    """What a sleeping engine keeps."""
    SYNC = "weight sync"
    """Weights that are whole, and buffers, while trained weights go to the engine."""
    OFFLOADED = "offloaded"
    """State and activations that wait in host memory."""
    WORKERS = "workers"
    """Processes that load data or compute rewards."""
    KEPT = "kept"
    """Freed memory an allocator was told to keep."""
    SLACK = "slack"
    """What allocators lose between what they handed out."""


class Moment(StrEnum):
    """Moments of a cycle at which memory may peak; the largest counts."""

    GENERATE = "generate"
    SYNC = "sync"
    """Trained weights go to the engine, whose own weights are awake and whose cache may sleep."""
    LOGPROB = "logprob"
    UPDATE = "update"
    """The backward pass begins: activations, logits and everything that stays."""
    STEP = "step"
    """The optimizer's step: the activations are gone, its temporaries are there."""


PARTS = tuple(Part)
MOMENTS = tuple(Moment)
PLACE = {part: place for place, part in enumerate(PARTS)}
WHEN = {moment: place for place, moment in enumerate(MOMENTS)}

Matrix = NDArray[np.float64]
"""Bytes by formula; axes: pool (``pools``), configuration, moment (``MOMENTS``), part (``PARTS``)."""
PoolTable = tuple[tuple[NDArray[np.float64], NDArray[np.intp]], ...]
"""Of one pool by moment: the different rows of parts, and of each configuration which one it is."""
PeakTable = tuple[PoolTable, ...]
"""By pool."""

GIB = 1 << 30
IMPORTS = 0.645e9
"""PSS of a process on a CPU that has imported torch, transformers and TRL and made its first update."""
GPU_IMPORTS = 2.5e9
"""The same with CUDA's libraries, and pinned buffers."""
ENGINE_IMPORTS = 0.22e9
"""PSS vLLM's imports add."""
CONTEXT = 0.6 * GIB
"""Of a CUDA process before its first tensor."""
WORKER = 0.3e9
"""PSS of a process that loads data or computes rewards."""
KEPT = 0.1
"""Share of what comes and goes that an allocator keeps beside the peak when told to keep all."""
CPU_SLACK, GPU_SLACK = 0.05, 0.08
"""Share of what stays (CPU: the heap's gaps), of what comes and goes (GPU: reserved and not allocated)."""

_STAYING = (Part.WEIGHTS, Part.CASTS, Part.GRADIENTS, Part.OPTIMIZER)
_PASSING = (Part.ACTIVATIONS, Part.SCORES, Part.LOGITS, Part.GENERATION, Part.SYNC)


@dataclass(frozen=True)
class _Bytes:
    s: Settings
    held: States
    passing: Transients
    rollout: Rollout
    sync: Sync


def pools(task: Task) -> tuple[Pool, ...]:
    """Pools that have a peak: the tree's memory, before it the GPU's where there is one."""
    return (Pool.DEVICE, Pool.HOST) if task.resources.gpus else (Pool.HOST,)


def limits(task: Task) -> tuple[float | None, ...]:
    """Bytes by pool; ``None`` = not known."""
    machine = task.resources
    host = task.memory_limit if task.memory_limit is not None else machine.host_memory
    found = (machine.device_memory, host) if machine.gpus else (host,)
    return tuple(None if value is None or value <= 0 else float(value) for value in found)


def features(task: Task, configurations: Sequence[Configuration]) -> Matrix:
    """Returns bytes of every part by formula, at the worst case, of one GPU or of one machine's process tree. Pure;
    nothing is negative or NaN."""
    if not configurations:
        return np.zeros((len(pools(task)), 0, len(MOMENTS), len(PARTS)))
    size, s = dimensions(task.resources.model), settings(task, configurations)
    found = _Bytes(s, states(task, size, s), transients(task, size, s), rollout(task, size, s), sync(task, size, s))
    if task.resources.gpus:
        return np.stack([_device(found), _host_of_gpus(task, found)])
    return np.stack([_cpu(task, found)])


def read(task: Task, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
    """The matrix with the configuration as its first axis."""
    return np.moveaxis(features(task, configurations), 1, 0)


def tabled(rows: NDArray[np.float64]) -> PeakTable:
    """Distinct rows of ``read`` for each pool and moment: few knobs act on each."""
    count, several = rows.shape[:2]
    codes = coded_columns(rows.reshape(count, several * len(MOMENTS) * len(PARTS)))
    found = []
    for pool in range(several):
        first = [(pool * len(MOMENTS) + moment) * len(PARTS) for moment in range(len(MOMENTS))]
        places = [distinct(codes, range(at, at + len(PARTS)), count) for at in first]
        found.append(tuple((rows[one, pool, moment], index) for moment, (one, index) in enumerate(places)))
    return tuple(found)


def _moments(found: _Bytes) -> Mapping[Moment, dict[Part, Column]]:
    """Returns the parts of one rank where training and a colocated engine share a memory. Between updates nobody holds
    gradients (verl's ``EngineTrainModeCtx``, transformers' ``Trainer``)."""
    held, passing, r, s = found.held, found.passing, found.rollout, found.s
    between = 1.0 - s.fsdp * (s.generation_rows >= s.rows * s.accumulation)
    stays = {
        Part.WEIGHTS: held.weights,
        Part.CASTS: held.casts,
        Part.GRADIENTS: held.gradients * between,
        Part.BUCKETS: held.buckets + held.gathered * (1.0 - s.fsdp),
        Part.OPTIMIZER: held.optimizer,
    }
    awake = {Part.ENGINE_WEIGHTS: r.weights, Part.CACHE: r.cache, Part.WORKSPACE: r.workspace}
    resting = {part: column * (1.0 - r.sleeps) for part, column in awake.items()} | {Part.RESIDUE: r.residue}
    loaded = {Part.ENGINE_WEIGHTS: r.weights, Part.SYNC: found.sync.whole}
    logprob = (passing.logprob_activations, passing.logprob_scores, passing.logprob_logits)
    update = (passing.activations, passing.scores, passing.logits)
    passes = (Part.ACTIVATIONS, Part.SCORES, Part.LOGITS)
    return {
        Moment.GENERATE: {**stays, **awake, Part.GENERATION: r.generation},
        Moment.SYNC: {**stays, **resting, **loaded},
        Moment.LOGPROB: {
            **stays,
            **resting,
            Part.BUCKETS: held.buckets + held.gathered,
            **dict(zip(passes, logprob, strict=True)),
        },
        Moment.UPDATE: {
            **stays,
            **resting,
            Part.GRADIENTS: held.early,
            Part.BUCKETS: held.buckets + held.live + held.sent_early,
            **dict(zip(passes, update, strict=True)),
        },
        Moment.STEP: {
            **stays,
            **resting,
            Part.GRADIENTS: held.gradients,
            Part.BUCKETS: stays[Part.BUCKETS] + held.sent,
            Part.STEP: held.step,
        },
    }


def _cpu(task: Task, found: _Bytes) -> Matrix:
    """The process tree: every rank's own, times the ranks of a machine."""
    s = found.s
    ranks = np.maximum(1.0, s.ranks / max(1, task.resources.nodes))
    rows = _moments(found)
    keeps = s.columns.level("host_allocator", {"keep": 1.0, "keep_huge_pages": 1.5}, 0.0)
    generated = found.rollout.generation
    kept = KEPT * keeps * (sum((rows[Moment.UPDATE][p] for p in _PASSING[:3]), start=generated))
    floor = IMPORTS * np.ones_like(s.rows)
    for columns in rows.values():
        columns[Part.SLACK] = CPU_SLACK * sum((columns[p] for p in _STAYING), start=0.0 * floor)
        columns[Part.KEPT] = kept
        columns[Part.FLOOR], columns[Part.ENGINE_FLOOR] = floor, ENGINE_IMPORTS * s.vllm
        columns[Part.OFFLOADED] = found.held.offloaded
    matrix = _matrix(rows, len(floor)) * ranks[:, None, None]
    matrix[:, :, PLACE[Part.WORKERS]] = _workers(s)[:, None]
    return matrix


def _device(found: _Bytes) -> Matrix:
    """Memory of one training GPU by part."""
    rows, s = _moments(found), found.s
    gaps = GPU_SLACK * (1.0 - 0.5 * s.columns.number("expandable_segments"))
    nothing = 0.0 * s.rows
    for columns in rows.values():
        columns[Part.SLACK] = gaps * sum((columns.get(p, nothing) for p in _PASSING), start=nothing)
        columns[Part.FLOOR] = CONTEXT + nothing
    away = s.columns.number("rollout_offload_model") * s.colocated
    rows[Moment.GENERATE][Part.WEIGHTS] = rows[Moment.GENERATE][Part.WEIGHTS] * (1.0 - away)
    states_away = s.columns.number("rollout_offload_optimizer") * s.colocated
    rows[Moment.GENERATE][Part.OPTIMIZER] = rows[Moment.GENERATE][Part.OPTIMIZER] * (1.0 - states_away)
    for moment, share in ((Moment.GENERATE, 1.0), (Moment.SYNC, found.sync.states_away)):
        # With Megatron's weights go their gradients.
        rows[moment][Part.GRADIENTS] = rows[moment][Part.GRADIENTS] * (1.0 - away * s.megatron * share)
    rows[Moment.SYNC][Part.WEIGHTS] = rows[Moment.SYNC][Part.WEIGHTS] * (1.0 - away * found.sync.weights_away)
    rows[Moment.SYNC][Part.OPTIMIZER] = rows[Moment.SYNC][Part.OPTIMIZER] * (1.0 - states_away * found.sync.states_away)
    return _matrix(rows, len(nothing))


def _host_of_gpus(task: Task, found: _Bytes) -> Matrix:
    """The process tree of one machine beside its GPUs; the same at every moment."""
    s, held = found.s, found.held
    ranks = np.maximum(1.0, s.ranks / max(1, task.resources.nodes))
    away = held.offloaded + found.passing.activations_host + found.rollout.on_host
    away = away + s.colocated * s.columns.number("rollout_offload_model") * held.weights
    away = away + s.colocated * s.columns.number("rollout_offload_optimizer") * held.optimizer
    columns = {
        Part.FLOOR: GPU_IMPORTS * ranks,
        Part.ENGINE_FLOOR: s.vllm * 4.0 * ENGINE_IMPORTS * ranks * _replicas(s),
        Part.OFFLOADED: away * ranks,
        Part.WORKERS: _workers(s) * ranks,
    }
    return _matrix(dict.fromkeys(MOMENTS, columns), len(ranks))


def _replicas(s: Settings) -> Column:
    return np.where(s.vllm > s.colocated, np.maximum(1.0, s.columns.number("rollout_data_parallel_size", 1.0)), 1.0)


def _workers(s: Settings) -> Column:
    rewards = s.columns.number("reward_workers", 1.0)
    return WORKER * (np.maximum(0.0, s.columns.number("dataloader_workers")) + np.maximum(0.0, rewards - 1.0))


def _matrix(rows: Mapping[Moment, Mapping[Part, Column]], count: int) -> Matrix:
    matrix = np.zeros((count, len(MOMENTS), len(PARTS)))
    for moment, columns in rows.items():
        for part, column in columns.items():
            matrix[:, WHEN[moment], PLACE[part]] = column
    found: Matrix = np.maximum(0.0, np.nan_to_num(matrix, copy=False, posinf=1e18))
    return found
