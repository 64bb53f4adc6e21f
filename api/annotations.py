"""Notes and tags of people on a study and its trials: events of the study, of which the newest of each trial counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from api.cache import StudyCache
from autotune.domain import Event
from autotune.wording.text import clean

KIND = "annotated"
LONGEST, MOST_TAGS = 2000, 20


@dataclass(frozen=True)
class Annotation:
    """A note and tags."""

    note: str = ""
    tags: tuple[str, ...] = ()


def annotations_of(cache: StudyCache, study_id: int) -> Mapping[int | None, Annotation]:
    """Returns the annotation of each annotated trial by its number; that of the study itself is under ``None``."""

    def read() -> Mapping[int | None, Annotation]:
        known: dict[int | None, Annotation] = {}
        after = 0
        while events := cache.events(study_id, after, 1000, KIND):
            known |= {e.trial: Annotation(clean(e.message), tuple(map(clean, e.data.get("tags", ())))) for e in events}
            after = events[-1].id
        return known

    return cache.cached(("annotations", study_id, cache.study(study_id).revision), read)


def annotate(cache: StudyCache, study_id: int, trial: int | None, note: str, tags: str) -> None:
    """Stores an annotation; ``tags`` are separated by commas. Raises ``NotFoundError`` or ``StoreError``."""
    store = cache.store(study_id)
    if trial is not None:
        store.trial(study_id, trial)
    words = dict.fromkeys(tag for each in tags.split(",") if (tag := clean(each)[:40].strip()))
    store.add_event(study_id, Event(KIND, clean(note)[:LONGEST], {"tags": [*words][:MOST_TAGS]}, trial, time.time()))
