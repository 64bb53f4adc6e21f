"""The inputs of a prior beside the configurations: task, device, lengths, and the tokens that cycles worked on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotune.proposals.forecasts import Column, Task
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.lengths import Lengths
from autotune.proposals.times.machine import Hardware

PRESUMED_WEIGHTS, PRESUMED_LAYERS, PRESUMED_WIDTH, PRESUMED_VOCABULARY = 1e9, 24.0, 2048.0, 100_000.0


@dataclass(frozen=True)
class World:
    """All a prior depends on beside the configurations."""

    task: Task
    hardware: Hardware
    lengths: Lengths

    @property
    def weights(self) -> float:
        return float(self.task.resources.model.parameters or PRESUMED_WEIGHTS)

    @property
    def layers(self) -> float:
        return float(self.task.resources.model.layers or PRESUMED_LAYERS)

    @property
    def width(self) -> float:
        return float(self.task.resources.model.hidden_size or PRESUMED_WIDTH)

    @property
    def vocabulary(self) -> float:
        return float(self.task.resources.model.vocabulary or PRESUMED_VOCABULARY)

    @property
    def cache_row(self) -> float:
        """Numbers kept of one token: keys and values of all layers."""
        model = self.task.resources.model
        heads = model.attention_heads or 0
        head = self.width / heads if heads else self.width
        return 2.0 * self.layers * (model.key_value_heads or heads or 1) * head

    @property
    def iterations(self) -> float:
        """Times a generation is trained on."""
        given = self.task.passthrough.get("num_iterations")
        return float(given) if isinstance(given, int) and not isinstance(given, bool) and given > 1 else 1.0

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of what is not known of machine and model."""
        facts = self.task.resources.model
        unknown = 1.5 if not facts.parameters else 0.3 if not (facts.layers and facts.hidden_size) else 0.0
        return float(np.hypot(np.hypot(self.hardware.spread, unknown), 0.3 if self.lengths.presumed else 0.0))


@dataclass(frozen=True)
class Observed:
    """Tokens the update's forward passes worked on, padding included, where a cycle tells of them; else NaN."""

    computed: Column
    prompt: Column
    """Mean tokens of a prompt."""


Prior = Callable[[str, PhaseRows, World, Observed | None], Column]
"""Median seconds of a phase of a cycle, of each row; 0 where the phase does not occur."""
