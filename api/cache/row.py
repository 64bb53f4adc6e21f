"""A trial of a list: its sort keys and its JSON, which is made once, on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from api.responses import dumps
from autotune.documents.study import trial_json
from autotune.domain import Configuration, Trial
from autotune.insights.standings import place

Key = tuple[float, ...]
"""Sort key: numbers, so that a paging cursor can hold them; unique within a study."""


@dataclass(frozen=True)
class ListedTrial:
    """One trial as it was read, with the baseline it is compared with."""

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
