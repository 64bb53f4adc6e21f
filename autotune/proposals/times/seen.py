"""Configurations that were read before, so that a fit reads only those that are new to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from autotune.domain import Configuration
from autotune.proposals.forecasts import Task
from autotune.proposals.times.features import Features, features, read, tabled


class Seen:
    """What ``features`` reads of configurations, kept; safe for several threads. It changes only how long that takes.

    Args:
        task: of the study; a configuration reads differently in another.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._places: dict[str, int] = {}
        self._columns = read(task, ())

    def features(self, task: Task, configurations: Sequence[Configuration]) -> Features:
        """As ``features.features``; of another task nothing is kept."""
        if task is not self._task and task != self._task:
            return features(task, configurations)
        keys = [configuration.key for configuration in configurations]
        with self._lock:
            new = {k: c for k, c in zip(keys, configurations, strict=True) if k not in self._places}
            if new:
                self._columns = self._columns.joined(read(task, tuple(new.values())))
                self._places.update(zip(new, range(len(self._places), len(self._places) + len(new)), strict=True))
            columns = self._columns
            places = np.array([self._places[key] for key in keys], dtype=np.intp)
        return tabled(configurations, columns.at(places))
