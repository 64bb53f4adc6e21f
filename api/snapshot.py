"""A study as it was at one revision, with what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from autotune import evidence
from autotune.answers import Source
from autotune.domain import Budget, Fingerprint, Recommendation, Study, Trial
from autotune.insights.nearest import Neighbour, neighbours
from autotune.insights.standings import Standing, best_first, standings


@dataclass(frozen=True)
class Snapshot:
    """Read once for all who ask, until the study changes."""

    stamp: int
    """Another one for every reading of the database."""
    study: Study
    trials: tuple[Trial, ...]
    """By number."""
    spent: tuple[float, float]
    """Wall seconds and GPU seconds, over all runs of the tuner."""
    limits: Budget
    source: Source
    recommendation: Recommendation | None
    fingerprint: Fingerprint | None

    @cached_property
    def best_first(self) -> tuple[Trial, ...]:
        return best_first(self.trials)

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        return standings(self.trials, self.study.spec.baseline, self.study.spec.framework)

    @cached_property
    def reference_speed(self) -> float | None:
        """Tokens/hour of what gains are stated over."""
        anchor = evidence.reference(self.trials, self.study.spec.baseline)
        return None if anchor is None else evidence.speed(evidence.feasible(self.trials)[anchor.configuration])

    @cached_property
    def neighbours(self) -> tuple[Neighbour, ...]:
        """Measured trials one knob away from the recommended configuration."""
        if self.recommendation is None or not self.recommendation.rows:
            return ()
        return neighbours(self.trials, self.recommendation.rows[0].configuration)
