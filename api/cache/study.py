"""Cached reading of one study: a finished trial is read once, the others again when the study has changed."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from api.cache.snapshot import ListedTrial, Snapshot
from autotune.domain import Study, Trial
from autotune.ports import Store
from autotune.recommendation.reading import Answer, answered, last_run

LARGE_S = 0.2
"""Seconds of reading from which a study counts as large. Its objects are then frozen (``gc.freeze``), because a pass of
Python's garbage collector over 10,000 trials stops all readers for 0.2 s. Reference counting still frees them."""
SLICE = 500
"""Trials read in one transaction. A long read keeps SQLite from resetting its write-ahead log; a reading that is no
longer needed ends between two transactions."""


class CachedStudy:
    """Caches one study. Safe for several threads: while one reads the study, the others get the previous reading."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._at = 0.0
        self._cost = 0.0
        self._since = 0
        """Lowest number of a trial that may still change."""
        self._rests_on: object = None
        self._answer: Answer | None = None
        self._settled = 0

    def snapshot(self, store: Store, study: Study, alive: bool, patience: float, stamp: Callable[[], int]) -> Snapshot:
        """Returns the study, read anew if its tuner has started or ended, or if the study has changed and the last
        reading is older than ``patience`` times its cost."""
        kept = self._snapshot
        if kept is not None and kept.study.created_at != study.created_at:  # another database in the same place
            kept = None
        if kept is not None and self._serves(kept, study, alive, patience):
            return kept
        if not self._lock.acquire(blocking=kept is None) and kept is not None:
            return kept
        try:
            return self._renewed(store, study, alive, patience, stamp)
        finally:
            self._lock.release()

    def _serves(self, kept: Snapshot, study: Study, alive: bool, patience: float) -> bool:
        """Tells whether ``kept`` may be served; ``study`` may be older if another reader was faster."""
        if kept.alive is not alive:
            return False
        return study.revision <= kept.study.revision or time.monotonic() - self._at < patience * self._cost

    def _renewed(self, store: Store, study: Study, alive: bool, patience: float, stamp: Callable[[], int]) -> Snapshot:
        before = self._snapshot
        if before is not None and before.study.created_at != study.created_at:
            before, self._since, self._answer = None, 0, None
        if before is not None and self._serves(before, study, alive, patience):
            return before
        began = time.monotonic()
        with collector_resting():
            found = replace(self._read(store, study, before, stamp()), alive=alive)
        self._at = time.monotonic()
        self._cost = self._at - began
        self._snapshot = found
        if self._cost > LARGE_S:
            gc.collect()
            gc.freeze()
        return found

    def _read(self, store: Store, study: Study, before: Snapshot | None, stamp: int) -> Snapshot:
        kept = () if before is None else before.listed[: self._since]
        fresh = [ListedTrial(trial, study.spec.baseline) for trial in _trials(store, study.id, self._since)]
        listed = (*kept, *fresh)
        trials = tuple(one.trial for one in listed)
        since = self._since + _finished(fresh)
        ended = since + sum(one.trial.state.is_finished for one in listed[since:])
        answer = self._answered(store, study, trials, ended, stamp)
        same = (
            before is not None
            and listed == before.listed
            and before.study.status is study.status
            and answer[1] == before.recommendation
        )
        found = Snapshot(
            stamp=stamp,
            study=study,
            trials=before.trials if before is not None and same else trials,
            spent=store.spent(study.id),
            **vars(last_run(store, study, trials)),
            known_answer=answer,
            fingerprint=store.fingerprint(study.id),
            settled=self._settled,
            version=before.version if before is not None and same else stamp,
            listed=before.listed if before is not None and same else listed,
            orders=before.orders if before is not None and same else {},
            earlier={} if before is None or same else dict(before.orders),
            kept=len(kept),
        )
        self._since = since
        return found

    def _answered(self, store: Store, study: Study, trials: Sequence[Trial], ended: int, stamp: int) -> Answer:
        """Returns the answer; computes it again only when its inputs have changed."""
        stored = store.recommendation(study.id)
        rests_on = (ended, study.status, stored)
        if self._answer is None or rests_on != self._rests_on:
            self._answer, self._rests_on, self._settled = answered(stored, study, trials), rests_on, stamp
        return self._answer


def _finished(fresh: Sequence[ListedTrial]) -> int:
    """Returns the number of trials at the start of ``fresh`` that have all finished."""
    return next((at for at, one in enumerate(fresh) if not one.trial.state.is_finished), len(fresh))


def _trials(store: Store, study_id: int, since: int) -> list[Trial]:
    """Returns the trials from number ``since`` on: finished ones ``SLICE`` at a time, then the rest in one read, so
    that all unfinished trials are of one moment."""
    found: list[Trial] = []
    while True:
        some = store.trials(study_id, since, since + SLICE)
        if len(some) < SLICE:
            return [*found, *some]
        finished = next((at for at, trial in enumerate(some) if not trial.state.is_finished), SLICE)
        found += some[:finished]
        since += finished
        if finished < SLICE:
            return [*found, *store.trials(study_id, since)]


@contextmanager
def collector_resting() -> Iterator[None]:
    """Stops Python's garbage collector while a study is read: it would scan all of it repeatedly and find nothing."""
    works = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if works:
            gc.enable()
