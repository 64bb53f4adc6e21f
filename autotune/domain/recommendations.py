"""Recommendation of a study: configurations with their figures and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.domain.studies import Objective
from search_spaces.configuration import Configuration
from trainer.child.contract import FailureReason

ALONE = "No other configuration has a figure yet."
"""Note of a recommendation that keeps a baseline which nothing was compared with."""
ENOUGH_CYCLES = 2
"""Undisturbed cycles that a side of a gain needs: a single one may be the odd one."""


@dataclass(frozen=True)
class Gain:
    """A ratio of throughputs minus one, with a two-sided interval; 0.25 means 25 % faster."""

    value: float
    low: float
    high: float
    pairs: int
    """Interleaved rounds it rests on; 0 means it was read from unconfirmed search trials."""
    cycles: int
    """Undisturbed cycles on the smaller side."""
    level: float = 0.95
    """That the interval is stated for; 0.999 where rounds of a study on several nodes decide."""

    @property
    def decided(self) -> bool:
        """Whether it rests on enough undisturbed cycles and its interval excludes zero."""
        return self.cycles >= ENOUGH_CYCLES and (self.low > 0 or self.high < 0)

    def times(self, factor: float) -> Gain:
        """The gain if the ratio of throughputs were ``factor`` times as large."""
        value, low, high = ((1.0 + ratio) * factor - 1.0 for ratio in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


@dataclass(frozen=True)
class LengthFigure:
    """Tokens/hour of a configuration at one distribution of completion lengths."""

    at: str
    """``1x``: the recorded lengths; ``2x``: twice those, cut at the maximum; ``maximum``."""
    tokens_per_hour: float | None = None
    """``None``: not measured."""
    mean_length: float | None = None
    """Completion tokens of a row."""
    cycles: int = 0


@dataclass(frozen=True)
class RecommendationRow:
    """One recommended configuration with its evidence."""

    title: str
    configuration: Configuration
    tokens_per_hour: float
    low: float
    high: float
    gain: Gain | None
    """Over the baseline, or over ``reference`` when the baseline failed; ``None`` if it is the reference itself. In the
    study's objective."""
    confirmed: bool
    worst_case_passed: bool
    phase_shares: Mapping[str, float]
    """Share of cycle time by phase; they sum to 1."""
    limit: str
    """One sentence: what limits it."""
    host_peak: int | None
    device_peak: int | None
    headroom: float | None
    """1 - peak / limit of the pool closest to its limit; ``None`` if no limit is known."""
    trials: tuple[int, ...]
    """Numbers of the supporting trials."""
    changes: tuple[str, ...] = ()
    """Knobs that differ from the baseline, as ``name: before -> after``."""
    maximum_tokens_per_hour: float | None = None
    """At maximum completion length."""
    gpus: int = 0
    """GPUs held, those of a rollout server included: tokens/hour are over all of them. 0 on a CPU."""
    lengths: tuple[LengthFigure, ...] = ()
    """At 1x, 2x and the maximum length; empty where none was measured."""
    objective: Objective = Objective.PER_HOUR
    reference_gpus: int = 0
    """Held by what the gain is over; 0 on a CPU."""

    def gain_in(self, objective: Objective) -> Gain | None:
        """The gain in either objective: GPUs are counted, not estimated, so the interval moves with the value."""
        if self.gain is None or objective is self.objective or not (self.gpus and self.reference_gpus):
            return self.gain
        more = self.gpus / self.reference_gpus
        return self.gain.times(more if objective is Objective.PER_HOUR else 1.0 / more)

    @property
    def tokens_per_hour_per_gpu(self) -> float | None:
        """Tokens/hour divided by the GPUs held; ``None`` on a CPU."""
        return self.tokens_per_hour / self.gpus if self.gpus else None


@dataclass(frozen=True)
class Recommendation:
    """The answer of a study."""

    study: str
    rows: tuple[RecommendationRow, ...]
    """First: same learning as the baseline. Second, if any: with permitted numerics or learning changes."""
    baseline: str
    """``ok``; or how the baseline failed, as ``Outcome.sentence``; or why nothing is stated over it."""
    reference: int | None
    """Trial number gains are stated over; ``None`` if nothing ran."""
    ended_by: str
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    created_at: float = 0.0

    @property
    def baseline_failed(self) -> bool:
        """Whether the baseline was measured and failed."""
        first = self.baseline.partition(":")[0].partition(" ")[0]
        return first in [reason.value for reason in FailureReason]
