"""A study at one revision, with its trials sorted for lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from api.responses import dumps
from autotune.documents.study import trial_json
from autotune.domain import Configuration, Trial
from autotune.insights.standings import place
from autotune.recommendation.reading import StudyReading

KEPT_ORDERS = 32

Key = tuple[float, ...]
"""Sort key: numbers, so that a paging cursor can hold them; unique within a study."""


@dataclass(frozen=True)
class ListedTrial:
    """A trial with its study's baseline; its JSON is made once, on first use."""

    trial: Trial
    baseline: Configuration

    @cached_property
    def document(self) -> bytes:
        return dumps(trial_json(self.trial, self.baseline))

    @cached_property
    def by_speed(self) -> Key:
        """Sort key: best first, as in every list."""
        return place(self.trial)

    @cached_property
    def by_peak(self) -> Key:
        """Sort key: least peak memory first (of the device, else of the host), trials without a measurement last."""
        peak = self.trial.device_peak or self.trial.host_peak
        return (1.0, 0.0, self.trial.number) if peak is None else (0.0, peak, self.trial.number)

    @property
    def by_duration(self) -> Key:
        """Sort key: shortest first, unfinished trials last."""
        seconds = self.trial.seconds
        return (1.0, 0.0, self.trial.number) if seconds is None else (0.0, seconds, self.trial.number)

    @property
    def by_number(self) -> Key:
        return (self.trial.number,)

    @property
    def newest(self) -> Key:
        return (-self.trial.number,)


@dataclass(frozen=True)
class Snapshot(StudyReading):
    """A study with its trials at one revision; shared by readers until the study changes."""

    stamp: int = 0
    """Differs for every reading of the database."""
    version: int = 0
    """Changes when the trials, the answer or the status change."""
    settled: int = 0
    """Changes when a trial ends, or the answer or the status changes."""
    listed: Sequence[ListedTrial] = ()
    """``trials`` with their sort keys and JSON; made once for a finished trial."""
    orders: dict[str, tuple[ListedTrial, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Lists made by ``ordered``; shared by readings of one ``version``."""
    earlier: Mapping[str, Sequence[ListedTrial]] = field(default_factory=dict, compare=False, repr=False)
    """Lists made by ``ordered`` at the reading before."""
    kept: int = 0
    """Number of entries of ``listed`` from the start that are unchanged since the reading before."""

    def ordered(
        self, name: str, key: Callable[[ListedTrial], Key], admits: Callable[[Trial], bool] | None = None
    ) -> tuple[ListedTrial, ...]:
        """Returns the trials of ``listed`` that ``admits`` accepts, sorted by ``key``; cached by ``name``."""
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

    @cached_property
    def progress(self) -> Hashable:
        """Value that stays equal until a trial is added, begins, gains a cycle or ends, or the answer changes."""
        states = Counter(t.state for t in self.trials)
        latest = max((t.finished_at or 0.0 for t in self.trials), default=0.0)
        given = None if self.recommendation is None else self.recommendation.created_at
        cycles = sum(len(t.cycles) for t in self.trials if not t.state.is_finished)
        return self.study.id, self.state, latest, self.source, given, cycles, tuple(sorted(states.items()))
