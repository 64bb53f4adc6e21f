"""Read-through cache of one database: all readers share one reading of a study, and the documents made from it.

A reading is reused for ``PATIENCE`` times the seconds it took, because reading takes CPU time on the machine that is
being measured. So polling costs at most 3 % of a core.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from autotune.domain import Event, Fingerprint, Study, Trial
from autotune.errors import NoDatabaseError, NotFoundError, StoreError
from autotune.ports import Store
from autotune.recommendation.annotations import Annotations, annotations_of
from autotune.recommendation.current import Lives, attempt_paths, sign_of_life
from autotune.recommendation.export import ExportChoice, Exported, export_or_reason
from autotune.recommendation.reading import StudyReading, answered, last_run, run_state
from autotune.settings import DatabaseFile, HomePaths, Settings
from autotune.statistics.nodes import levelled
from trainer.child.contract import NoteRecord

PATIENCE = 30.0
"""A reading is reused for this many times the seconds it took, so that readings take at most 3 % of a core."""
GLANCE_S = 0.2
"""Least seconds between two polls of the database for changes."""
ALIVE_S = 2.0
"""Least seconds between two checks whether a study's tuner runs: a killed tuner changes nothing in the database."""
KEPT_BODIES = 256
"""Most values that ``cached`` remembers; the oldest are evicted first."""

OpenStore = Callable[[], Store]
Made = TypeVar("Made")


def progress(reading: StudyReading) -> Hashable:
    """Returns a cache key that changes if a trial is added, starts, gains a cycle or ends, or ``settled`` changes."""
    cycles = sum(len(t.cycles) for t in reading.trials if not t.state.is_finished)
    return settled(reading), reading.state, cycles, tuple(sorted(Counter(t.state for t in reading.trials).items()))


def settled(reading: StudyReading) -> Hashable:
    """Returns a cache key that changes when a trial ends, or the recommendation or the status changes."""
    answer = None if reading.recommendation is None else reading.recommendation.created_at
    return reading.study.id, reading.study.status, _ended(reading.trials), reading.source, answer


class StudyCache:
    """Cached studies of one database. Safe for several threads; read-only; creates no database."""

    def __init__(self, settings: Settings, open_store: OpenStore, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._open_store = open_store
        self._patience = patience
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._store: Store | None = None
        self._file: DatabaseFile | None = None
        """The opened database file; ``None`` for a database server."""
        self._polled: tuple[float, Mapping[int, int]] = (-math.inf, {})
        self.followers: Callable[[], int] = int
        """Returns the number of pages and programs that follow a study; set by the server."""
        self._alive: dict[int, tuple[float, bool]] = {}
        """Study id -> (monotonic time of the last check, whether a tuner ran)."""
        self._studies: dict[int, Study] = {}
        self._readings: dict[int, tuple[StudyReading, float]] = {}
        """Study id -> (last reading, monotonic time until which changes to the study are ignored)."""
        self._gpus: dict[int, tuple[int, str]] = {}
        """Study id -> (the study's revision when its GPU names were read, GPU names)."""
        self._bodies: OrderedDict[Hashable, Future[object]] = OrderedDict()

    @property
    def home(self) -> HomePaths:
        """Paths below the home folder, which holds the runs."""
        return self._settings.home

    def studies(self) -> tuple[Study, ...]:
        """Returns all studies, newest first; empty without a database. Raises ``StoreError``."""
        revisions = self.revisions()
        if len(revisions) > len(self._studies) + 1:
            self._studies = {study.id: study for study in self._opened().studies()}
        return tuple(self._study(study_id, revision) for study_id, revision in revisions.items())

    def revisions(self) -> Mapping[int, int]:
        """Returns the revision of every study by its id, newest first; polls the database at most every ``GLANCE_S``.
        Raises ``StoreError``."""
        if time.monotonic() - self._polled[0] >= min(GLANCE_S, self._patience):
            self._polled = (time.monotonic(), self._poll())
        return self._polled[1]

    def snapshot(self, study_id: int) -> StudyReading:
        """Returns a study with its trials, from the cache if recent enough; while one reader reads it again, the others
        get the previous reading. Raises as ``study`` does."""
        study, alive = self.study(study_id), self.alive(study_id)
        previous = self._readings.get(study_id)
        if previous is not None and self._serves(previous, study, alive):
            return previous[0]
        if not self._reading.acquire(blocking=previous is None) and previous is not None:
            return previous[0]
        try:
            previous = self._readings.get(study_id)
            if previous is None or not self._serves(previous, study, alive):
                began = time.monotonic()
                reading = self._read(study, alive, None if previous is None else previous[0])
                end = time.monotonic()
                previous = self._readings[study_id] = reading, end + self._patience * (end - began)
            return previous[0]
        finally:
            self._reading.release()

    def alive(self, study_id: int) -> bool:
        """Tells whether a tuner runs the study; checks at most every ``ALIVE_S``. Raises ``StoreError``."""
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
        """Returns at most ``limit`` events after id ``after``, oldest first. Raises as ``study`` does."""
        return self.store(study_id).events(study_id, after, limit, kind)

    def gpu_names(self) -> Mapping[int, str]:
        """Returns the GPUs each study was measured on, by study id; ``""`` if unknown. Raises ``StoreError``."""
        revisions = self.revisions()
        for study, revision in revisions.items():
            seen, names = self._gpus.get(study, (-1, ""))
            if not names and seen != revision:  # an unknown name is looked up again when the study has changed
                self._gpus[study] = (revision, _gpu_names(self._opened().fingerprint(study)))
        return {study: self._gpus[study][1] for study in revisions}

    def store(self, study_id: int) -> Store:
        """Returns the store, for data outside a snapshot. Raises ``NotFoundError`` or ``StoreError``."""
        self.study(study_id)
        return self._opened()

    def annotations(self, study_id: int) -> Annotations:
        """Returns the notes and tags of a study and its trials. Raises as ``study`` does."""
        key = "annotations", study_id, self.study(study_id).revision
        return self.cached(key, lambda: annotations_of(self._opened(), study_id))

    def lives(self, snapshot: StudyReading) -> Lives:
        """Returns trial number -> current phase of each running trial, as its process last wrote it to a file."""
        home, study = self._settings.home, snapshot.study
        return {t.number: sign_of_life(attempt_paths(home, study, t)) for t in snapshot.running}

    def cached(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Returns the cached value of ``key``, always of one type, or makes it; concurrent callers wait for it."""
        with self._lock:
            body = self._bodies.get(key)
            mine = body is None
            if body is None:
                body = self._bodies[key] = Future()
                while len(self._bodies) > KEPT_BODIES:
                    self._bodies.popitem(last=False)
        if mine:
            try:
                body.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._bodies.pop(key, None)
                body.set_exception(error)
        value: Made = body.result()  # type: ignore[assignment]
        return value

    def exported(self, snapshot: StudyReading, choice: ExportChoice) -> Exported | str:
        """Returns the files that train with a configuration of the study, or a sentence on why no export exists."""
        return export_or_reason(snapshot, choice, self._opened())

    def notes(self, snapshot: StudyReading, trial: Trial) -> tuple[NoteRecord, ...]:
        """Returns the facts that a trial's last attempt recorded."""
        return self._opened().notes(snapshot.study.id, trial.number)

    def folder(self, snapshot: StudyReading, trial: Trial) -> Path:
        """Returns the folder of a trial's last attempt, from the database."""
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
        """Closes a replaced database file, which SQLite would still read. Raises ``StoreError`` if it was deleted."""
        if present is None:
            raise StoreError(f"the database {self._settings.database_shown} is away; put it back, or end this server")
        self.close()
        for cached in (self._studies, self._readings, self._bodies, self._gpus, self._alive):
            cached.clear()

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                self._file = self._settings.database_file
                self._store = self._open_store()
            return self._store

    def _study(self, study_id: int, revision: int) -> Study:
        known = self._studies.get(study_id)
        if known is not None and known.revision >= revision:
            return known
        study = self._opened().study(study_id)
        if known is not None and known.spec == study.spec:
            study = replace(study, spec=known.spec)  # which knows its digest
        self._studies[study_id] = study
        return study

    def _serves(self, previous: tuple[StudyReading, float], study: Study, alive: bool) -> bool:
        """Tells whether a cached reading may be served; ``study`` may be older than it if another reader was faster."""
        reading, until = previous
        return reading.alive is alive and (study.revision <= reading.study.revision or time.monotonic() < until)

    def _read(self, study: Study, alive: bool, previous: StudyReading | None) -> StudyReading:
        """Reads a study; reads finished trials before the first unfinished one only once, because they never change."""
        store = self._opened()
        earlier = () if previous is None else previous.trials
        since = next((at for at, trial in enumerate(earlier) if not trial.state.is_finished), len(earlier))
        trials = levelled((*earlier[:since], *store.trials(study.id, since)))
        stored = store.recommendation(study.id)
        rests_on = ("answer", study.id, study.status, _ended(trials), stored and stored.created_at)
        return StudyReading(
            study=study,
            trials=trials,
            spent=store.spent(study.id),
            **{**vars(last_run(store, study, trials)), "alive": alive},
            fingerprint=store.fingerprint(study.id),
            stored=stored,
            known_answer=self.cached(rests_on, lambda: answered(stored, study, trials)),
        )


def _ended(trials: tuple[Trial, ...]) -> tuple[int, float]:
    """Returns the number of finished trials, and the time at which the last one ended."""
    return sum(t.state.is_finished for t in trials), max((t.finished_at or 0.0 for t in trials), default=0.0)


def _gpu_names(fingerprint: Fingerprint | None) -> str:
    """Returns the names of a fingerprint's GPUs, ``cpu`` without GPUs; ``""`` without a fingerprint."""
    if fingerprint is None:
        return ""
    gpus = fingerprint.hardware.get("gpus") or ()
    names = {str(gpu.get("name", "")) for gpu in gpus if isinstance(gpu, Mapping)}
    return ", ".join(sorted(names)) if names else "cpu"
