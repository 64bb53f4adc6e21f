"""A trial as lists show it: what sorts it, and its JSON, made when first asked for and kept with the trial."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from api.responses import dumps
from autotune.documents.study import trial_json
from autotune.domain import Configuration, Trial
from autotune.insights.standings import place

Key = tuple[float, ...]
"""Of numbers, so that a cursor can carry it; no two trials of a study have the same."""


@dataclass(frozen=True)
class ListedTrial:
    """Of one trial as it was read."""

    trial: Trial
    baseline: Configuration

    @cached_property
    def document(self) -> bytes:
        return dumps(trial_json(self.trial, self.baseline))

    @cached_property
    def by_speed(self) -> Key:
        """Best first, as every screen lists them."""
        return place(self.trial)

    @cached_property
    def by_peak(self) -> Key:
        """Least memory first (of the device, else of the host); those that measured none last."""
        peak = self.trial.device_peak or self.trial.host_peak
        return (1.0, 0.0, self.trial.number) if peak is None else (0.0, peak, self.trial.number)

    @property
    def by_duration(self) -> Key:
        """Shortest first; those that have not ended last."""
        seconds = self.trial.seconds
        return (1.0, 0.0, self.trial.number) if seconds is None else (0.0, seconds, self.trial.number)

    @property
    def by_number(self) -> Key:
        return (self.trial.number,)

    @property
    def newest(self) -> Key:
        return (-self.trial.number,)
