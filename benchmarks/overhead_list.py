"""What ``benchmarks.overhead`` runs, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.domain import Configuration, StudySpec
from benchmarks.overhead_table import BARE, MODES
from search_spaces.configuration import KnobValue

VLLM: Mapping[str, KnobValue] = {"rollout_engine": "vllm", "kv_cache_memory_bytes": 64 << 20}
LIST: Mapping[str, Mapping[str, KnobValue]] = {
    "transformers": {},
    "vLLM": VLLM,
    "vLLM, micro-batch 4": {**VLLM, "micro_batch_size": 4},
    "vLLM, micro-batch 4, no checkpointing": {**VLLM, "micro_batch_size": 4, "gradient_checkpointing": False},
    "vLLM, cache of 256 MiB": {**VLLM, "kv_cache_memory_bytes": 256 << 20, "gradient_checkpointing": False},
    "transformers, micro-batch 4": {"micro_batch_size": 4, "gradient_checkpointing": False},
    "vLLM, bf16": {**VLLM, "precision": "bf16", "gradient_checkpointing": False},
    "vLLM, bf16, micro-batch 2": {
        **VLLM, "precision": "bf16", "gradient_checkpointing": False, "micro_batch_size": 2,
    },
}  # fmt: skip
"""What differs from the framework's defaults, in order: between neighbours everything from nothing to a process."""
COMPILED: Mapping[str, Mapping[str, KnobValue]] = {
    "vLLM, compiled": {**VLLM, "enforce_eager": False},
    "vLLM, compiled, micro-batch 4": {**VLLM, "enforce_eager": False, "micro_batch_size": 4},
}
"""More of the ``cpu`` space: what a compiler makes is kept for the next trial, so ``bare`` is told apart by it most."""
SHORT = ("transformers", "vLLM", "vLLM, micro-batch 4")


def order(
    blocks: int, configurations: int, *, in_turns: bool = False, bare: bool = False
) -> list[tuple[int, str, int]]:
    """(block, mode, number of the configuration) of every trial, in the order they are run.

    A block is the whole list in one mode; ``in_turns``: each configuration in all modes, next to each other. ``bare``
    is a mode beside the two.
    """
    found, modes = list[tuple[int, str, int]](), (BARE, *MODES) if bare else MODES
    if in_turns:
        for block in range(blocks):
            for index in range(configurations):
                found += [(block, mode, index) for mode in _turned(modes, block + index)]
        return found
    for block in range(blocks):
        for mode in _turned(modes, block):
            found += [(block, mode, index) for index in range(configurations)]
    return found


def whole(spec: StudySpec, knobs: Mapping[str, KnobValue]) -> Configuration:
    """The baseline with ``knobs``, of the same rows per update, each of which is one generation."""
    changed = spec.baseline.with_(**knobs)
    steps = max(1, spec.workload.rows_per_update // int(changed["micro_batch_size"]))
    return changed.with_(gradient_accumulation_steps=steps, steps_per_generation=steps)


def _turned(modes: tuple[str, ...], number: int) -> tuple[str, ...]:
    return modes if number % 2 == 0 else tuple(reversed(modes))
