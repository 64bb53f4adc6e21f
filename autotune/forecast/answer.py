"""Result of a plan: predicted configurations, and the machines a model would need. Nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain import Configuration
from autotune.forecast.architecture import Architecture
from autotune.wording.numbers import format_size, percent

MOMENTS: Mapping[str, str] = {
    "generate": "while it generates",
    "sync": "at the weight sync",
    "logprob": "in the log-prob pass",
    "update": "in the update",
    "step": "at the optimizer's step",
}
"""Moment of a peak, in words."""


LIKELY = 0.75
"""Least probability at which a configuration is likely to fit; from ``proposals.forecasts.SURE`` on it is sure to."""


@dataclass(frozen=True)
class Predicted:
    """A configuration with its forecast."""

    configuration: Configuration
    tokens_per_hour: float
    """Distinct completion tokens per hour over all GPUs held; median."""
    low: float
    high: float
    """Upper end of the 95 % interval of tokens/hour; ``low`` is the lower."""
    cycle_s: float
    """Seconds of one cycle; median."""
    phases: Mapping[str, float]
    """Seconds of a cycle by phase, largest first."""
    peak: float
    """Bytes of the fullest GPU in the worst-case cycle; median."""
    peak_low: float
    peak_high: float
    """Upper end of the 95 % interval of the peak, in bytes; ``peak_low`` is the lower."""
    fits: float
    """Probability that the peak stays below the GPU's memory."""
    parts: Mapping[str, float]
    """Bytes by part at that peak, largest first; they sum to about ``peak``."""
    host: float
    """Bytes of one node's host memory at its peak; not compared with a limit, as a node's memory is unknown."""
    capacity: int
    """Memory of one GPU in bytes."""
    moment: str = ""
    """Moment of that peak by the memory model; a key of ``MOMENTS``."""

    @property
    def when(self) -> str:
        """Moment of the peak in words, such as ``at the weight sync``."""
        return MOMENTS.get(self.moment, "")

    def limit(self) -> str:
        """Returns, for example, ``update takes 52 % of a cycle; 71.2 GiB of 79.6 GiB of a GPU at the weight sync``."""
        total = sum(self.phases.values())
        memory = f"{format_size(self.peak)} of {format_size(self.capacity)} of a GPU's memory {self.when}".rstrip()
        if total <= 0:
            return memory
        phase = max(self.phases, key=lambda name: self.phases[name])
        share = self.phases[phase] / total
        room = "memory is short" if self.peak_high > self.capacity else "memory is ample"
        return f"{phase} takes {percent(share)} of a cycle; {memory}: {room}"


@dataclass(frozen=True)
class Machine:
    """GPUs of one kind."""

    gpu: str
    memory: int
    """Memory of one GPU in bytes."""
    gpus: int
    """Number of GPUs on each node."""
    nodes: int = 1

    @property
    def total(self) -> int:
        """Number of GPUs over all nodes."""
        return self.gpus * self.nodes

    def words(self) -> str:
        """Returns the machine in words, such as ``8 x h100`` or ``2 nodes x 8 x h100``."""
        each = f"{self.gpus} x {self.gpu}"
        return each if self.nodes == 1 else f"{self.nodes} nodes x {each}"


@dataclass(frozen=True)
class Load:
    """The training that a plan is for."""

    model: str
    architecture: Architecture
    framework: str
    rows_per_update: int
    num_generations: int
    max_prompt_length: int
    max_completion_length: int
    mean_completion: float
    """Mean completion length in tokens; presumed, as nothing was recorded."""
    lora_rank: int | None = None


@dataclass(frozen=True)
class Accuracy:
    """Errors of a plan's predictions, measured on recorded trials."""

    sentence: str
    rows: int = 0
    """Number of recorded trials compared; 0: none on this GPU."""


@dataclass(frozen=True)
class Plan:
    """Answer of ``autotune plan``; all of it is predicted."""

    load: Load
    machine: Machine
    space: str
    legal: int
    """Number of legal combinations of the space on the machine."""
    exact: bool
    """True if ``legal`` is a count, not an estimate."""
    looked_at: int
    """Number of combinations with a forecast."""
    fitting: int
    """Number of examined combinations that are sure to fit."""
    baseline: Predicted
    """Forecast of the framework's defaults."""
    best: tuple[Predicted, ...]
    """Configurations that learn as the defaults do, best first; if none is likely to fit, the closest one."""
    permitted: Predicted | None
    """Best configuration that rounds or learns differently, if it is better."""
    accuracy: Accuracy
    notes: tuple[str, ...] = ()
    config: str = ""
    """File of the user's own configuration, which is then the ``baseline``; empty without one."""

    @property
    def feasible(self) -> bool:
        """True if the user's configuration is likely to fit; without one, if the best of the space is."""
        asked = (self.baseline,) if self.config else self.best
        return max(found.fits for found in asked) >= LIKELY

    @property
    def faster(self) -> tuple[Predicted, ...]:
        """The best configurations that are faster than the user's own; all of them if that does not fit."""
        own = self.baseline if self.config and self.feasible else None
        return tuple(found for found in self.best if own is None or found.tokens_per_hour > own.tokens_per_hour)


@dataclass(frozen=True)
class Need:
    """The smallest machine with one kind of GPU, for one way of training."""

    how: str
    """``full``, ``full, offloaded`` or ``LoRA``."""
    gpu: str
    memory: int
    """Memory of one GPU in bytes."""
    machine: Machine | None
    """The machine; ``None``: none of the examined sizes fits."""
    found: Predicted | None = None
    lora_rank: int | None = None
    rows: int | None = None
    """Rows per update of the forecast; ``None`` without a machine."""


@dataclass(frozen=True)
class Needs:
    """Answer of ``autotune plan --need``; all of it is predicted."""

    load: Load
    needs: tuple[Need, ...]
    largest: str
    """The largest examined machine, in words."""
    notes: tuple[str, ...] = ()

    def smallest(self, how: str) -> Need | None:
        """Returns the fitting machine with the least total memory; among equal ones, that with fewer GPUs."""
        fitting = [(n.machine.total * n.memory, n.machine.total, n) for n in self.needs if n.how == how and n.machine]
        return min(fitting, key=lambda sized: sized[:2])[2] if fitting else None
