"""Result of a plan: predicted configurations, and the machines a model would need. Nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain import Configuration
from autotune.forecast.architecture import Architecture
from autotune.wording.numbers import format_size

MOMENTS: Mapping[str, str] = {
    "generate": "while it generates",
    "sync": "at the weight sync",
    "logprob": "in the log-prob pass",
    "update": "in the update",
    "step": "at the optimizer's step",
}
"""When a peak is, in words."""


LIKELY = 0.75
"""Probability from which on a configuration is likely to fit; from ``proposals.forecasts.SURE`` on it is sure to."""


@dataclass(frozen=True)
class Predicted:
    """One configuration with what is expected of it."""

    configuration: Configuration
    tokens_per_hour: float
    """Distinct completion tokens over all GPUs held; median."""
    low: float
    high: float
    """Of a 95 % interval."""
    cycle_s: float
    """Seconds of one cycle; median."""
    phases: Mapping[str, float]
    """Seconds of a cycle by phase, largest first."""
    peak: float
    """Bytes of the fullest GPU at the worst case; median."""
    peak_low: float
    peak_high: float
    """Of a 95 % interval."""
    fits: float
    """Probability that the peak stays below the GPU's memory."""
    parts: Mapping[str, float]
    """Bytes by part at that peak, largest first; they sum to about ``peak``."""
    host: float
    """Bytes of host memory of one node at its peak; nothing is held against it, as a node's memory is not known."""
    capacity: int
    """Bytes of one GPU."""
    moment: str = ""
    """When that peak is, by the memory model's word; a key of ``MOMENTS``."""

    @property
    def when(self) -> str:
        """``at the weight sync``."""
        return MOMENTS.get(self.moment, "")

    def limit(self) -> str:
        """``update takes 52 % of a cycle; 71.2 GiB of 79.6 GiB of a GPU's memory at the weight sync``."""
        total = sum(self.phases.values())
        memory = f"{format_size(self.peak)} of {format_size(self.capacity)} of a GPU's memory {self.when}".rstrip()
        if total <= 0:
            return memory
        phase = max(self.phases, key=lambda name: self.phases[name])
        share = self.phases[phase] / total
        room = "memory is short" if self.peak_high > self.capacity else "memory is ample"
        return f"{phase} takes {share:.0%} of a cycle; {memory}: {room}"


@dataclass(frozen=True)
class Machine:
    """GPUs of one kind."""

    gpu: str
    memory: int
    """Bytes of one."""
    gpus: int
    """On each node."""
    nodes: int = 1

    @property
    def total(self) -> int:
        """GPUs."""
        return self.gpus * self.nodes

    def words(self) -> str:
        """``8 x h100``; ``2 nodes x 8 x h100``."""
        each = f"{self.gpus} x {self.gpu}"
        return each if self.nodes == 1 else f"{self.nodes} nodes x {each}"


@dataclass(frozen=True)
class Load:
    """The training that is planned for."""

    model: str
    architecture: Architecture
    framework: str
    rows_per_update: int
    num_generations: int
    max_prompt_length: int
    max_completion_length: int
    mean_completion: float
    """Tokens; presumed, as nothing was recorded."""
    lora_rank: int | None = None


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of predictions like these, by recorded trials."""

    sentence: str
    rows: int = 0
    """Recorded trials compared; 0: none on this GPU."""


@dataclass(frozen=True)
class Plan:
    """The answer to ``autotune plan``; all of it predicted."""

    load: Load
    machine: Machine
    space: str
    legal: int
    """Legal combinations of the space on the machine."""
    exact: bool
    """``legal`` is a count, not an estimate."""
    looked_at: int
    """Combinations a forecast was made for."""
    fitting: int
    """Of those, the ones that are sure to fit."""
    baseline: Predicted
    """The framework's defaults."""
    best: tuple[Predicted, ...]
    """With the same learning as the defaults; best first. Where nothing is likely to fit, the one closest to it."""
    permitted: Predicted | None
    """The best that rounds or learns differently, if it is better."""
    accuracy: Accuracy
    notes: tuple[str, ...] = ()
    config: str = ""
    """File of the user's own configuration, which ``baseline`` then is; empty without one."""

    @property
    def feasible(self) -> bool:
        """The user's own configuration, or something of the space, is likely to fit."""
        asked = (self.baseline,) if self.config else self.best
        return max(found.fits for found in asked) >= LIKELY

    @property
    def faster(self) -> tuple[Predicted, ...]:
        """The best configurations that are faster than the user's own configuration, or fit where that does not."""
        own = self.baseline if self.config and self.feasible else None
        return tuple(found for found in self.best if own is None or found.tokens_per_hour > own.tokens_per_hour)


@dataclass(frozen=True)
class Need:
    """The smallest machine of one kind of GPU, for one way of training."""

    how: str
    """``full``, ``full, offloaded`` or ``LoRA``."""
    gpu: str
    memory: int
    """Bytes of one GPU."""
    machine: Machine | None
    """``None``: none of the counts looked at."""
    found: Predicted | None = None
    lora_rank: int | None = None
    rows: int | None = None
    """Rows per update it was looked at with; ``None`` without a machine."""


@dataclass(frozen=True)
class Needs:
    """The answer to ``autotune plan --need``; all of it predicted."""

    load: Load
    needs: tuple[Need, ...]
    largest: str
    """The largest machine looked at, in words."""
    notes: tuple[str, ...] = ()

    def smallest(self, how: str) -> Need | None:
        """The machine that fits with the least memory in total; among equals the one with fewer GPUs."""
        fitting = [(n.machine.total * n.memory, n.machine.total, n) for n in self.needs if n.how == how and n.machine]
        return min(fitting, key=lambda sized: sized[:2])[2] if fitting else None
