"""Read-through cache of one database: all readers share one reading of a study.

A reading is reused for ``PATIENCE`` times the seconds it took, because reading takes CPU time on the machine that is
being measured. So polling costs at most 3 % of a core.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from api.cache.snapshot import Snapshot
from api.cache.study import CachedStudy
from autotune.domain import Event, Fingerprint, Study, Trial
from autotune.errors import NoDatabaseError, NotFoundError, StoreError, UsageError
from autotune.ports import Store
from autotune.recommendation.current import Lives, attempt_paths, sign_of_life
from autotune.recommendation.export import ExportChoice, Exported, build
from autotune.recommendation.reading import run_state
from autotune.settings import DatabaseFile, HomePaths, Settings
from trainer.child.contract import NoteRecord

PATIENCE = 30.0
"""Factor: a reading is reused this many times as long as it took, so that reading takes 3 % of a core at most."""
GLANCE_S = 0.2
"""Seconds between two polls of the database for changes, at least."""
ALIVE_S = 2.0
"""Seconds between two checks for a study's tuner, at least: a killed tuner changes nothing in the database."""
KEPT_STUDIES = 64
KEPT_BODIES = 128
KEPT_SPECS = 1000
FEW = 8
"""Most changed studies that are read one by one; more are read all at once."""

OpenStore = Callable[[], Store]
Made = TypeVar("Made")


class StudyCache:
    """Cached studies of one database. Safe for several threads; read-only; creates no database."""

    def __init__(self, settings: Settings, open_store: OpenStore, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._open_store = open_store
        self._patience = patience
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._stamps = itertools.count(1)
        self._polled: tuple[float, Mapping[int, int]] | None = None
        self.followers: Callable[[], int] = int
        """Returns the number of pages and programs that follow a study; set by the server."""
        self._alive: dict[int, tuple[float, bool]] = {}
        """Presence of a tuner for each study, after the monotonic time of the check."""
        self._studies: OrderedDict[int, Study] = OrderedDict()
        self._cached: OrderedDict[int, CachedStudy] = OrderedDict()
        self._bodies: OrderedDict[Hashable, Any] = OrderedDict()
        self._made: OrderedDict[Hashable, _Made] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._gpus: dict[int, tuple[int, str]] = {}
        """GPU names of each study, with the study's revision when they were read."""
        self._file: DatabaseFile | None = None
        """The opened database file; ``None`` for a database server."""

    @property
    def home(self) -> HomePaths:
        """Paths below the home folder, which holds the runs."""
        return self._settings.home

    def studies(self) -> tuple[Study, ...]:
        """Returns all studies, newest first; none without a database. Raises ``StoreError``."""
        revisions = self.revisions()
        with self._lock:
            known = {i: self._studies.get(i) for i in revisions}
        changed = [i for i, study in known.items() if study is None or study.revision != revisions[i]]
        if len(changed) <= FEW:
            return tuple(self._study(study, revision) for study, revision in revisions.items())
        every = {study.id: study for study in self._opened().studies()}
        with self._lock:
            self._studies.update(every)
            self._forget(len(revisions))
        return tuple(every[i] for i in revisions if i in every)

    def revisions(self) -> Mapping[int, int]:
        """Returns the revision of every study by its id, newest first; polls the database at most every ``GLANCE_S``.
        Raises ``StoreError``."""
        polled = self._polled
        if polled is None or time.monotonic() - polled[0] >= min(GLANCE_S, self._patience):
            polled = self._polled = (time.monotonic(), self._poll())
        return polled[1]

    def snapshot(self, study_id: int) -> Snapshot:
        """Returns a study with its trials, from the cache if fresh enough. Raises as ``study``."""
        study = self.study(study_id)
        with self._lock:
            cached = self._cached.setdefault(study_id, CachedStudy())
            self._cached.move_to_end(study_id)
            while len(self._cached) > KEPT_STUDIES:
                self._cached.popitem(last=False)
        return cached.snapshot(self._opened(), study, self.alive(study_id), self._patience, self._stamps.__next__)

    def alive(self, study_id: int) -> bool:
        """Tells whether a tuner runs the study; asked at most every ``ALIVE_S``. Raises ``StoreError``."""
        at, alive = self._alive.get(study_id, (-math.inf, False))
        if time.monotonic() - at >= min(ALIVE_S, self._patience):
            alive = self._opened().is_locked(study_id)
            self._alive[study_id] = (time.monotonic(), alive)
        return alive

    def state(self, study: Study) -> str:
        """Returns the ``RunState`` of a study. Raises ``StoreError``."""
        return run_state(study, alive=self.alive(study.id)).value

    def study(self, study_id: int) -> Study:
        """Returns the current study without its trials. Raises ``NotFoundError`` or ``StoreError``."""
        revision = self.revisions().get(study_id)
        if revision is None:
            raise NotFoundError(f"there is no study {study_id}; `autotune start` begins one")
        return self._study(study_id, revision)

    def events(self, study_id: int, after: int, limit: int, kind: str | None = None) -> tuple[Event, ...]:
        """Returns ``limit`` events at most after id ``after``, oldest first. Raises as ``study``."""
        self.study(study_id)
        return self._opened().events(study_id, after, limit, kind)

    def last_event_id(self, study_id: int) -> int:
        """Returns the id of the last event; 0 without one. Raises ``NotFoundError`` or ``StoreError``."""
        self.study(study_id)
        return self._opened().last_event_id(study_id)

    def fingerprints(self, study_id: int) -> tuple[tuple[Fingerprint, float], ...]:
        """Returns a study's fingerprints with the UTC seconds of first sight, oldest first. Raises as ``study``."""
        self.study(study_id)
        return self._opened().fingerprints(study_id)

    def gpu_names(self) -> Mapping[int, str]:
        """Returns the GPUs each study was measured on, by study id; ``""`` if unknown. Raises ``StoreError``."""
        revisions = self.revisions()
        for study, revision in revisions.items():
            seen, names = self._gpus.get(study, (-1, ""))
            if not names and seen != revision:  # what is not known is asked again when the study has changed
                self._gpus[study] = (revision, _gpu_names(self._opened().fingerprint(study)))
        return {study: self._gpus[study][1] for study in revisions}

    def store(self, study_id: int) -> Store:
        """Returns the store, for data outside a snapshot. Raises ``NotFoundError`` or ``StoreError``."""
        self.study(study_id)
        return self._opened()

    def lives(self, snapshot: Snapshot) -> Lives:
        """Returns the phase of each running trial by its number, as its process last marked it."""
        home, study = self._settings.home, snapshot.study
        return {t.number: sign_of_life(attempt_paths(home, study, t)) for t in snapshot.running}

    def kept(self, key: Hashable, build: Callable[[], Made]) -> Made:
        """Returns the cached value of ``key``, always of one type, or builds it; concurrent callers wait."""
        with self._lock:
            if key in self._bodies:
                known: Made = self._bodies[key]
                return known
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._bodies:
                    meanwhile: Made = self._bodies[key]
                    return meanwhile
            try:
                made = build()
                with self._lock:
                    self._bodies[key] = made
                    while len(self._bodies) > KEPT_BODIES:
                        self._bodies.popitem(last=False)
                return made
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def lately(self, name: Hashable, stamp: int, build: Callable[[], bytes]) -> bytes:
        """Returns the body of ``name``, built once per ``stamp`` and as seldom as a study is read. While one reader
        builds it anew, the others get the previous body."""
        with self._lock:
            made = self._made.setdefault(name, _Made())
            self._made.move_to_end(name)
            while len(self._made) > KEPT_BODIES:
                self._made.popitem(last=False)
        return made.at(stamp, build, self._patience)

    def exported(self, snapshot: Snapshot, choice: ExportChoice) -> Exported | str:
        """Returns the files that train with a configuration of the study, or a sentence on why there are none."""
        try:
            return build(snapshot, choice, self._opened())
        except UsageError as error:
            return str(error)

    def notes(self, snapshot: Snapshot, trial: Trial) -> tuple[NoteRecord, ...]:
        """Returns the notes of a trial's last attempt."""
        return self._opened().notes(snapshot.study.id, trial.number)

    def folder(self, snapshot: Snapshot, trial: Trial) -> Path:
        """Returns the folder of a trial's last attempt, by the database."""
        return attempt_paths(self._settings.home, snapshot.study, trial).root

    def check(self) -> None:
        """Raises ``StoreError`` if no database can be read, or it has another version."""
        if self._settings.database_is_absent:
            raise NoDatabaseError("there is no database yet; `autotune start` begins one")
        self._open_store().close()

    def close(self) -> None:
        """Closes the store; a second call does nothing."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _poll(self) -> Mapping[int, int]:
        present = self._settings.database_file
        if self._store is not None and present != self._file:
            self._leave(present)
        if self._settings.database_is_absent:
            return {}
        try:
            return self._opened().revisions()
        except NoDatabaseError:
            return {}

    def _leave(self, present: DatabaseFile | None) -> None:
        """Closes a replaced database file, which SQLite would still read. Raises ``StoreError`` if it was removed."""
        if present is None:
            raise StoreError(f"the database {self._settings.database_shown} is away; put it back, or end this server")
        self.close()
        with self._lock:
            for kept in (self._studies, self._cached, self._gpus, self._alive):
                kept.clear()

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                self._file = self._settings.database_file
                self._store = self._open_store()
            return self._store

    def _study(self, study_id: int, revision: int) -> Study:
        with self._lock:
            known = self._studies.get(study_id)
        if known is not None and known.revision == revision:
            return known
        found = self._opened().study(study_id)
        if known is not None and known.spec == found.spec:
            found = replace(found, spec=known.spec)  # which knows its digest
        with self._lock:
            self._studies[study_id] = found
            self._forget(0 if self._polled is None else len(self._polled[1]))
        return found

    def _forget(self, present: int) -> None:
        """Drops the oldest cached studies, but keeps at least ``present``: a list of all studies needs them again."""
        while len(self._studies) > max(KEPT_SPECS, 2 * present):
            self._studies.popitem(last=False)


def _gpu_names(found: Fingerprint | None) -> str:
    """Returns the names of a fingerprint's GPUs, ``cpu`` without GPUs; ``""`` without a fingerprint."""
    if found is None:
        return ""
    gpus = found.hardware.get("gpus")
    names = {str(gpu.get("name", "")) for gpu in gpus or () if isinstance(gpu, Mapping)}
    return ", ".join(sorted(names)) if names else "cpu"


class _Made:
    """A cached response body with its stamp, its time and the seconds it took to build."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._body: bytes | None = None
        self._stamp: int | None = None
        self._at = 0.0
        self._cost = 0.0

    def at(self, stamp: int, build: Callable[[], bytes], patience: float) -> bytes:
        before = self._body
        if before is not None and self._serves(stamp, patience):
            return before
        if not self._lock.acquire(blocking=before is None) and before is not None:
            return before
        try:
            if self._body is None or not self._serves(stamp, patience):
                began = time.monotonic()
                self._body, self._stamp = build(), stamp
                self._at = time.monotonic()
                self._cost = self._at - began
            return self._body
        finally:
            self._lock.release()

    def _serves(self, stamp: int, patience: float) -> bool:
        return self._stamp == stamp or time.monotonic() - self._at < patience * self._cost
