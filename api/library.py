"""The studies of one database for many readers: read once for all of them, and never so often that it shows.

Reading costs processor time on the machine that is being measured, so a reading is kept for as many times its
own cost as ``PATIENCE`` says, whoever asks and however often.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from api.snapshot import Snapshot
from autotune.answers import Life, answer, attempt_paths, last_budget, running_trial, sign_of_life
from autotune.domain import Study
from autotune.errors import NotFoundError, StoreError
from autotune.ports import Store
from autotune.settings import Settings

PATIENCE = 30.0
"""A reading is kept at least this many times as long as it took: 3 % of one core at most."""
KEPT_STUDIES = 64
KEPT_BODIES = 64

OpenStore = Callable[[], Store]


class Library:
    """May be used by several threads. Only reads, and creates no database by looking."""

    def __init__(self, settings: Settings, open_store: OpenStore, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._open_store = open_store
        self._patience = patience
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._stamp = 0
        self._shelf: OrderedDict[int, _Reading] = OrderedDict()
        self._bodies: OrderedDict[Hashable, bytes] = OrderedDict()

    def studies(self) -> tuple[Study, ...]:
        """Newest first; none while there is no database. Raises ``StoreError``."""
        if self._absent():
            return ()
        return self._opened().studies()

    def snapshot(self, study_id: int) -> Snapshot:
        """Raises ``NotFoundError`` or ``StoreError``."""
        if self._absent():
            raise NotFoundError(f"there is no study {study_id}; `autotune start` begins one")
        store = self._opened()
        study = store.study(study_id)
        with self._lock:
            kept = self._shelf.get(study_id)
            if kept is None or not kept.serves(study.revision, self._patience):
                kept = self._read(store, study)
            self._shelf[study_id] = kept
            self._shelf.move_to_end(study_id)
            while len(self._shelf) > KEPT_STUDIES:
                self._shelf.popitem(last=False)
            return kept.snapshot

    def life(self, snapshot: Snapshot) -> Life | None:
        """The phase of the running trial, as its process last marked it."""
        running = running_trial(snapshot.trials)
        if running is None:
            return None
        return sign_of_life(attempt_paths(self._settings.home, snapshot.study, running))

    def body(self, key: Hashable, build: Callable[[], bytes]) -> bytes:
        """What was built under this key before, else what ``build`` makes."""
        with self._lock:
            known = self._bodies.get(key)
        if known is not None:
            return known
        made = build()
        with self._lock:
            self._bodies[key] = made
            while len(self._bodies) > KEPT_BODIES:
                self._bodies.popitem(last=False)
        return made

    def check(self) -> None:
        """Raises ``StoreError`` if there is no database that can be read, or it is of another version."""
        if self._absent():
            raise StoreError("there is no database yet; `autotune start` begins one")
        self._open_store().close()

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _absent(self) -> bool:
        return self._settings.own_database and not self._settings.home.database.exists()

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._open_store()
            return self._store

    def _read(self, store: Store, study: Study) -> _Reading:
        began = time.monotonic()
        trials = store.trials(study.id)
        source, recommendation = answer(store, study, trials)
        self._stamp += 1
        snapshot = Snapshot(
            stamp=self._stamp,
            study=study,
            trials=trials,
            spent=store.spent(study.id),
            limits=last_budget(store, study),
            source=source,
            recommendation=recommendation,
            fingerprint=store.fingerprint(study.id),
        )
        now = time.monotonic()
        return _Reading(snapshot, now, now - began)


class _Reading:
    """A snapshot, when it was made, and what it cost in seconds."""

    def __init__(self, snapshot: Snapshot, at: float, cost: float) -> None:
        self.snapshot = snapshot
        self._at = at
        self._cost = cost

    def serves(self, revision: int, patience: float) -> bool:
        if self.snapshot.study.revision == revision:
            return True
        return time.monotonic() - self._at < patience * self._cost
