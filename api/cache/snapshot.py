"""A study as it was at one revision, with what follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from api.cache.row import Key, Listed
from autotune.domain import Budget, Fingerprint, Recommendation, RecommendationRow, Study, Trial
from autotune.errors import NotFoundError
from autotune.insights.nearest import Neighbour, neighbours
from autotune.insights.standings import Standing, best_first, standings
from autotune.recommendation.current import Source
from autotune.recommendation.recommend import row_of
from autotune.statistics import evidence
from autotune.wording.text import differing, knob_value

KEPT_ORDERS = 32


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
    version: int = 0
    """Another one only when trials, answer or status are others than in the reading before."""
    settled: int = 0
    """Another one only when a trial has ended, or the answer or the status is another."""
    listed: Sequence[Listed] = ()
    """``trials`` with what lists of them need; made once for a trial that has finished."""
    orders: dict[str, tuple[Listed, ...]] = field(default_factory=dict, compare=False, repr=False)
    """What ``ordered`` has made; shared by readings of one ``version``."""
    earlier: Mapping[str, Sequence[Listed]] = field(default_factory=dict, compare=False, repr=False)
    """What it had made of the reading before."""
    kept: int = 0
    """The first so many of ``listed`` are what they were in the reading before."""

    def ordered(
        self, name: str, key: Callable[[Listed], Key], admits: Callable[[Trial], bool] | None = None
    ) -> tuple[Listed, ...]:
        """``listed`` by ``key``, only those that ``admits``; done once for what ``name`` stands for."""
        found = self.orders.get(name)
        if found is None:
            before = self.earlier.get(name)
            some = [] if before is None else [one for one in before if one.trial.number < self.kept]
            rest = self.listed if before is None else self.listed[self.kept :]
            some += rest if admits is None else [one for one in rest if admits(one.trial)]
            found = tuple(sorted(some, key=key))  # what is in order already costs next to nothing
            if len(self.orders) >= KEPT_ORDERS:
                self.orders.clear()
            self.orders[name] = found
        return found

    def within(self, limit_bytes: int | None) -> RecommendationRow | None:
        """The first row of the answer whose peak (of the device, else of the host) is at most ``limit_bytes``, else
        the fastest configuration that learns as the baseline does and stays below it; ``None`` if nothing does."""
        rows = () if self.recommendation is None else self.recommendation.rows
        if limit_bytes is None:
            return rows[0] if rows else None
        for row in rows:
            if fits(row, limit_bytes):
                return row
        for standing in self.standings:
            if standing.same_learning and self._peak(standing.numbers) <= limit_bytes:
                return row_of(self.study.spec, self.trials, standing.configuration)
        return None

    def _peak(self, numbers: Sequence[int]) -> float:
        """Bytes; infinite if any of the trials measured none."""
        peaks = [self.trials[n].device_peak or self.trials[n].host_peak for n in numbers]
        return max((math.inf if peak is None else peak for peak in peaks), default=math.inf)

    @cached_property
    def progress(self) -> Hashable:
        """The same as long as no trial was added, began, gained a cycle or ended, and the answer stays."""
        states = Counter(t.state for t in self.trials)
        latest = max((t.finished_at or 0.0 for t in self.trials), default=0.0)
        given = None if self.recommendation is None else self.recommendation.created_at
        cycles = sum(len(t.cycles) for t in self.trials if not t.state.is_finished)
        return self.study.id, self.study.status, latest, self.source, given, cycles, tuple(sorted(states.items()))

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Knobs that do not have one value in all trials and the baseline."""
        return differing([self.study.spec.baseline, *(t.configuration for t in self.trials)])

    def values_of(self, knob: str) -> tuple[str, ...]:
        """Every value trials have of it, as text: numbers growing, then words."""
        found = {t.configuration.get(knob) for t in self.trials}
        numbers = sorted(v for v in found if isinstance(v, int | float) and not isinstance(v, bool) and v == v)
        others = sorted(knob_value(v) for v in found if not isinstance(v, int | float) or isinstance(v, bool) or v != v)
        return tuple(dict.fromkeys([*(knob_value(v) for v in numbers), *others]))

    def trial(self, number: int) -> Trial:
        """Raises ``NotFoundError``."""
        found = next((t for t in self.trials if t.number == number), None)
        if found is None:
            raise NotFoundError(f"study {self.study.id} has no trial {number}")
        return found

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


def fits(row: RecommendationRow, limit_bytes: int) -> bool:
    """Whether its peak was measured and is at most ``limit_bytes``."""
    peak = row.device_peak or row.host_peak
    return peak is not None and peak <= limit_bytes
