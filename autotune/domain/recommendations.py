"""Recommendation of a study: configurations with their figures and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.domain.outcomes import FAILURE_WORDS
from autotune.domain.studies import Objective
from search_spaces.configuration import Configuration

ALONE = "No other configuration has a figure yet."
"""Note of a recommendation whose baseline was not compared with any other configuration."""
ENOUGH_CYCLES = 2
"""Undisturbed cycles that each side of a gain needs to be decided; a single cycle may be an outlier."""


@dataclass(frozen=True)
class Gain:
    """Ratio of two throughputs minus one, with a two-sided interval; 0.25 means 25 % faster."""

    value: float
    low: float
    high: float
    pairs: int
    """Interleaved rounds of confirmation behind the gain; 0 if it rests on unconfirmed search trials."""
    cycles: int
    """Undisturbed cycles on the side that has fewer."""
    level: float = 0.95
    """Confidence level of the interval, 0..1; 0.999 where confirmation rounds of a study on several nodes decide."""

    @property
    def decided(self) -> bool:
        """True if both sides have ``ENOUGH_CYCLES`` cycles and the interval excludes zero."""
        return self.cycles >= ENOUGH_CYCLES and (self.low > 0 or self.high < 0)

    def times(self, factor: float) -> Gain:
        """Returns the gain for a ratio of throughputs that is ``factor`` times as large."""
        value, low, high = ((1.0 + ratio) * factor - 1.0 for ratio in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


@dataclass(frozen=True)
class LengthFigure:
    """Tokens/hour of a configuration at one distribution of completion lengths."""

    at: str
    """Lengths of the cycles: ``1x`` is the recorded lengths, ``2x`` twice those, cut at the maximum, or ``maximum``."""
    tokens_per_hour: float | None = None
    """Tokens/hour at these lengths; ``None`` if not measured."""
    mean_length: float | None = None
    """Mean completion tokens of a row; ``None`` if not measured."""
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
    """Gain in the study's objective over the baseline, or ``reference`` if it failed; ``None`` for the reference
    itself."""
    confirmed: bool
    worst_case_passed: bool
    phase_shares: Mapping[str, float]
    """Share of cycle time by phase; the shares sum to 1."""
    limit: str
    """Sentence on the limiting resource."""
    host_peak: int | None
    device_peak: int | None
    headroom: float | None
    """Free share of the memory pool closest to its limit, 1 - peak / limit; ``None`` if no limit is known."""
    trials: tuple[int, ...]
    """Numbers of the trials that support the row."""
    changes: tuple[str, ...] = ()
    """Knobs that differ from the baseline, as ``name: before -> after``."""
    maximum_tokens_per_hour: float | None = None
    """Tokens/hour at the maximum completion length; ``None`` if not measured."""
    gpus: int = 0
    """GPUs the configuration holds, those of a rollout server included; 0 on a CPU."""
    lengths: tuple[LengthFigure, ...] = ()
    """Figures at 1x, 2x and the maximum length; empty if none was measured."""
    objective: Objective = Objective.PER_HOUR
    reference_gpus: int = 0
    """GPUs held by the configuration that ``gain`` compares with; 0 on a CPU."""

    def gain_in(self, objective: Objective) -> Gain | None:
        """Returns the gain in ``objective``. The interval scales with the value, because GPUs are counted and not
        estimated."""
        if self.gain is None or objective is self.objective or not (self.gpus and self.reference_gpus):
            return self.gain
        more = self.gpus / self.reference_gpus
        return self.gain.times(more if objective is Objective.PER_HOUR else 1.0 / more)

    @property
    def tokens_per_hour_per_gpu(self) -> float | None:
        """Tokens/hour divided by the trial's GPUs; ``None`` on a CPU."""
        return self.tokens_per_hour / self.gpus if self.gpus else None


@dataclass(frozen=True)
class Recommendation:
    """Recommendation of a study, with one or two rows."""

    study: str
    rows: tuple[RecommendationRow, ...]
    """First the best configuration that learns as the baseline does, then the best with permitted changes of numerics
    or learning, if any."""
    baseline: str
    """``ok``, the baseline's failure as ``Outcome.sentence``, or the reason why no gain over it is stated."""
    reference: int | None
    """Number of the trial that gains are stated over; ``None`` if no trial ran."""
    ended_by: str
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    created_at: float = 0.0

    @property
    def baseline_failed(self) -> bool:
        """True if the baseline was measured and failed."""
        return self.baseline.startswith((*FAILURE_WORDS, *FAILURE_WORDS.values()))
