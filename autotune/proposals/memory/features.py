"""Computes bytes by pool, configuration, moment and part with formulas: the input of the memory model.

docs/decisions/0029-memory-model.md states the sources of the constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.domain import Configuration, Pool
from autotune.proposals.forecasts import Task
from autotune.proposals.memory.parts import PLACE, Ledger, Matrix, Part
from autotune.proposals.memory.rollout import add_rollout
from autotune.proposals.memory.settings import Settings, settings
from autotune.proposals.memory.training import add_passes, add_states

IMPORTS, ENGINE_IMPORTS = 0.645e9, 0.22e9
"""PSS in bytes of a CPU process that has imported torch, transformers and TRL and made its first update; PSS that
vLLM's imports add."""
GPU_IMPORTS, GPU_ENGINE_IMPORTS = 2.5e9, 0.88e9
"""The same on a GPU, with CUDA's libraries and pinned buffers."""
CONTEXT = 0.6 * (1 << 30)
"""Bytes of a CUDA process before its first tensor."""
WORKER = 0.3e9
"""PSS in bytes of a process that loads data or computes rewards."""
GPU_SLACK, CPU_SLACK, KEPT = 0.08, 0.05, 0.1
"""Shares of memory that are added. GPU: of transient memory, reserved beyond it by CUDA's allocator (half with
expandable segments). CPU: of states, gaps in the heap. KEPT: of transient memory, held beside the peak by an allocator
told to keep all (half more in huge pages)."""


def pools(task: Task) -> tuple[Pool, ...]:
    """Returns the pools that have a peak: a GPU's memory, if there are GPUs, then the process tree's."""
    return (Pool.DEVICE, Pool.HOST) if task.resources.gpus else (Pool.HOST,)


def limits(task: Task) -> tuple[float | None, ...]:
    """Returns the limit of each pool in bytes; ``None``: not known."""
    machine = task.resources
    host = task.memory_limit if task.memory_limit is not None else machine.host_memory
    of_pools = (machine.device_memory, host) if machine.gpus else (host,)
    return tuple(None if value is None or value <= 0 else float(value) for value in of_pools)


def features(task: Task, configurations: Sequence[Configuration]) -> Matrix:
    """Returns bytes of every part in the worst case, of one GPU and of one machine's process tree; none is negative."""
    ledger = Ledger(len(configurations))
    if configurations:
        s = settings(task, configurations)
        add_states(s, ledger)
        add_passes(s, ledger)
        add_rollout(s, ledger)
        _add_processes(s, ledger)
        ranks = np.maximum(1.0, s.ranks / max(1, task.resources.nodes))
        ledger.beside *= ranks[:, None, None]
        if not task.resources.gpus:
            ledger.own *= ranks[:, None, None]
    both = [ledger.own, ledger.beside] if task.resources.gpus else [ledger.own + ledger.beside]
    return np.maximum(0.0, np.nan_to_num(np.stack(both), copy=False, posinf=1e18))


def _add_processes(s: Settings, ledger: Ledger) -> None:
    """Adds imports, CUDA contexts, other processes, and the fragmentation of a GPU's allocator."""
    c = s.columns
    workers = np.maximum(0.0, c.number("dataloader_workers"))
    workers = workers + np.maximum(0.0, c.number("reward_workers", 1.0) - 1.0)
    imports, engine = (GPU_IMPORTS, GPU_ENGINE_IMPORTS) if s.gpus else (IMPORTS, ENGINE_IMPORTS)
    served = s.vllm > s.colocated
    replicas = np.where(served, np.maximum(1.0, c.number("rollout_data_parallel_size", 1.0)), 1.0)
    ledger.add_beside(Part.PROCESSES, imports + WORKER * workers)
    ledger.add_beside(Part.ROLLOUT, engine * s.vllm * replicas)
    passing = (Part.ACTIVATIONS, Part.LOGITS, Part.GENERATION, Part.SYNC)
    staying = (Part.WEIGHTS, Part.GRADIENTS, Part.OPTIMIZER)
    transient, states = (ledger.own[:, :, [PLACE[part] for part in parts]].sum(axis=2) for parts in (passing, staying))
    if s.gpus:
        ledger.add(Part.PROCESSES, CONTEXT)
        gaps = GPU_SLACK * (1.0 - 0.5 * c.number("expandable_segments"))
        ledger.own[:, :, PLACE[Part.ALLOCATOR]] = transient * gaps[:, None]
    else:
        kept = KEPT * c.level("host_allocator", {"keep": 1.0, "keep_huge_pages": 1.5}, 0.0) * transient.max(axis=1)
        ledger.own[:, :, PLACE[Part.ALLOCATOR]] = CPU_SLACK * states + kept[:, None]
