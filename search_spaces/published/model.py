"""A published baseline, and the baseline scaled to other GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from search_spaces.configuration import Configuration


@dataclass(frozen=True)
class Published:
    """A published configuration, as its authors launch it."""

    name: str
    """The framework's name on the command line and the configuration's, such as ``openr1:qwen2.5-1.5b-demo``."""
    framework: str
    """Name of the framework in the catalogue."""
    model: str
    """Hub id of the model."""
    training_gpus: int
    """GPUs that train; a colocated engine generates on the same GPUs."""
    configuration: Configuration
    """Knobs that the source sets; with a rollout server, ``rollout_gpus`` is one of them."""
    workload: Mapping[str, Any]
    """Non-knob keys of the source that change learning, as the framework spells them."""
    max_prompt_length: int | None
    """Maximum prompt length in tokens; ``None`` if the source sets no limit."""
    max_completion_length: int
    """Maximum completion length in tokens."""
    dataset: str
    """Hub id of the dataset."""
    rewards: tuple[str, ...]
    """Names of the rewards in the framework."""
    source: str
    """Repository, commit or tag, file, and where the launch command stands."""
    notes: tuple[str, ...] = field(default=())
    """Properties that a reader of the source would not expect, a sentence each."""

    @property
    def rollout_gpus(self) -> int:
        """GPUs of a rollout server; 0 if the engine shares the training GPUs."""
        return int(self.configuration.get("rollout_gpus", 0))

    @property
    def gpus(self) -> int:
        """All GPUs of the published run."""
        return self.training_gpus + self.rollout_gpus

    @property
    def rows_per_update(self) -> int:
        """Completions in one optimizer update, over all ranks."""
        values = self.configuration
        return self.training_gpus * int(values["micro_batch_size"]) * int(values["gradient_accumulation_steps"])

    @property
    def reuse(self) -> Fraction:
        """Updates that one generation serves; above 1 if the run is off-policy."""
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
    """Rows of the published run; a few per cent off if the training GPUs cannot share them evenly."""
    lines: tuple[str, ...]
    """Changes and their reasons, a sentence each; the first names the source."""
