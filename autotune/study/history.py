"""Cached reading of a study's trials: a finished trial is read once."""

from __future__ import annotations

from itertools import takewhile

from autotune.domain import Trial
from autotune.ports import Store
from autotune.statistics.nodes import Levels


class History:
    """Reads a study's trials while its lock is held. Finished trials never change and numbers go up one by one, so
    those before the first unfinished one are the same objects each time."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store = store
        self._study_id = study_id
        self._ended: tuple[Trial, ...] = ()
        self.levels = Levels()

    def trials(self) -> tuple[Trial, ...]:
        """``Store.trials`` of the study, with the effects of their nodes."""
        since = self._ended[-1].number + 1 if self._ended else 0
        new = self._store.trials(self._study_id, since)
        ended = tuple(takewhile(lambda trial: trial.state.is_finished, new))
        self._ended = (*self._ended, *ended)
        return self.levels.level((*self._ended, *new[len(ended) :]))
