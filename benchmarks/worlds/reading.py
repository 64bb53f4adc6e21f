"""A configuration as the physics reads it, and the schedule of a rollout."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from search_spaces.batch import Batch, batch_of, serving_gpus
from search_spaces.knobs import defaults

if TYPE_CHECKING:
    from benchmarks.worlds.physics import World

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration in a world: the framework's defaults where a knob is not set."""

    configuration: Configuration
    world: World

    @cached_property
    def _all(self) -> dict[str, Any]:
        return {**_defaults(self.world.framework), **self.configuration}

    def __getitem__(self, name: str) -> Any:
        return self._all.get(name)

    @cached_property
    def batch(self) -> Batch:
        """Ranks that train, rows of a micro-batch, micro-batches of an update and of a rollout."""
        return batch_of(self._all, self.world.resources)

    @cached_property
    def ranks(self) -> int:
        """That train."""
        return self.batch.ranks

    @cached_property
    def engine(self) -> bool:
        """vLLM generates."""
        return bool(self["rollout_engine"] == "vllm")

    @cached_property
    def served(self) -> int:
        """GPUs of an engine of its own."""
        return serving_gpus(self._all, self.world.resources)

    @cached_property
    def tensor(self) -> int:
        """GPUs of one replica of the engine."""
        return int(self["tensor_parallel_size"] or 1)

    @cached_property
    def replicas(self) -> int:
        """Of the engine."""
        return max(1, (self.served or self.world.gpus) // self.tensor)

    @property
    def verl(self) -> bool:
        """FSDP trains."""
        return self.world.framework == "verl"

    @cached_property
    def zero(self) -> int:
        """The stage; FSDP shards as stage 3."""
        if self.ranks == 1:
            return 0
        return 3 if self.verl else int(self["zero_stage"] or 0)

    @cached_property
    def saves(self) -> bool:
        """Activations are computed again."""
        return bool(self["gradient_checkpointing"])

    def passes(self, rows: float, each: int, budget: int) -> tuple[float, float]:
        """Micro-batches of a rank's ``rows``, and the tokens each computes, padding included.

        Args:
            each: rows of one.
            budget: tokens of one, where micro-batches are cut by tokens.
        """
        world = self.world
        useful = world.prompt + world.mean
        if not self["remove_padding"]:
            useful = min(world.max_prompt, 1.3 * world.prompt) + max(world.lengths)
            useful = world.max_prompt + world.max_completion if self.verl else useful
        if self["dynamic_batching"] and budget:
            count = max(1.0, math.ceil(1.05 * rows * useful / max(budget, useful)))
        else:
            count = max(1.0, math.ceil(rows / each))
        return count, rows * useful / count

    def most(self, each: int, budget: int) -> float:
        """Tokens of the largest micro-batch at the longest completions."""
        longest = self.world.max_prompt + self.world.max_completion
        if self["dynamic_batching"] and budget:
            return float(max(budget, longest))
        return float(min(each, self.world.rows) * longest)


@lru_cache(maxsize=8)
def _defaults(framework: str) -> Mapping[str, Any]:
    return defaults(framework)


@lru_cache(maxsize=20_000)
def schedule(lengths: tuple[int, ...], slots: int, prompt: float) -> tuple[Column, Column, Column]:
    """Steps, sequences and tokens held, between the moments at which a sequence ends and another begins."""
    waiting, now = list(lengths), 0
    ends: list[tuple[int, int]] = []
    began: dict[int, float] = {}
    steps, batch, tokens = [], [], []
    held = 0.0
    place = 0
    while place < len(waiting) or ends:
        while place < len(waiting) and len(ends) < slots:
            heapq.heappush(ends, (now + waiting[place], place))
            began[place] = now
            held += prompt
            place += 1
        end = ends[0][0]
        gone = end - now
        if gone:
            steps.append(gone)
            batch.append(len(ends))
            tokens.append(held + len(ends) * gone / 2)
        held += len(ends) * gone
        now = end
        while ends and ends[0][0] == now:
            _, which = heapq.heappop(ends)
            held -= prompt + (now - began[which])
    return np.array(steps, dtype=float), np.array(batch, dtype=float), np.array(tokens, dtype=float)
