"""A published baseline, and its form scaled to other GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from search_spaces.configuration import Configuration


@dataclass(frozen=True)
class Published:
    """A configuration somebody published, as its authors launch it."""

    name: str
    """``openr1:qwen2.5-1.5b-demo``: how the command line calls the framework, and which of its configurations."""
    framework: str
    """As the catalogue calls it."""
    model: str
    """Hub id."""
    training_gpus: int
    """GPUs that train; with a colocated engine they generate too."""
    configuration: Configuration
    """What the source sets and the catalogue has; ``rollout_gpus`` is among it with a rollout server."""
    workload: Mapping[str, Any]
    """The source's other keys that decide what is learned, in the framework's own words."""
    max_prompt_length: int | None
    """Tokens; ``None`` where the source leaves it open."""
    max_completion_length: int
    """Tokens."""
    dataset: str
    """Hub id."""
    rewards: tuple[str, ...]
    """As the framework names them."""
    source: str
    """Repository, commit or tag, file; and where its launch is told."""
    notes: tuple[str, ...] = field(default=())
    """What a reader of the source would not expect here, a sentence each."""

    @property
    def rollout_gpus(self) -> int:
        """GPUs of a rollout server; 0 where the engine shares the training GPUs."""
        return int(self.configuration.get("rollout_gpus", 0))

    @property
    def gpus(self) -> int:
        """All GPUs it was written for."""
        return self.training_gpus + self.rollout_gpus

    @property
    def rows_per_update(self) -> int:
        """Completions in one optimizer update, over all ranks."""
        values = self.configuration
        return self.training_gpus * int(values["micro_batch_size"]) * int(values["gradient_accumulation_steps"])

    @property
    def reuse(self) -> Fraction:
        """Micro-batches generated at once over those of an update: more than 1 is off-policy."""
        values = self.configuration
        accumulation = int(values["gradient_accumulation_steps"])
        return Fraction(int(values.get("steps_per_generation", accumulation)), accumulation)


@dataclass(frozen=True)
class Scaled:
    """A published baseline on another number of GPUs."""

    published: Published
    gpus: int
    configuration: Configuration
    rows_per_update: int
    """The published ones; a few per cent off where the training GPUs cannot share them."""
    lines: tuple[str, ...]
    """What was changed and why, a sentence each; the first names the source."""
