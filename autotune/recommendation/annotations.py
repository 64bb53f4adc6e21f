"""Notes and tags of people on a study and its trials: events of the study; the newest of each trial counts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.documents.study import Document, plain
from autotune.domain import Event
from autotune.ports import Store
from autotune.wording.text import clean

KIND = "annotated"
LONGEST, MOST_TAGS, LONGEST_TAG = 2000, 20, 40


@dataclass(frozen=True)
class Annotation:
    """A note and tags."""

    note: str = ""
    tags: tuple[str, ...] = ()


Annotations = Mapping[int | None, Annotation]
"""The annotation of each annotated trial by its number; that of the study itself is under ``None``."""


def annotations_of(store: Store, study_id: int) -> Annotations:
    """Reads the annotations of a study. Raises ``StoreError``."""
    known: dict[int | None, Annotation] = {}
    after = 0
    while events := store.events(study_id, after, 1000, KIND):
        known |= {e.trial: Annotation(clean(e.message), tuple(map(clean, e.data.get("tags", ())))) for e in events}
        after = events[-1].id
    return known


def annotate(store: Store, study_id: int, trial: int | None, note: str, tags: Iterable[str]) -> Event:
    """Stores an annotation, as an event. Raises ``NotFoundError`` or ``StoreError``."""
    if trial is not None:
        store.trial(study_id, trial)
    words = dict.fromkeys(tag for each in tags if (tag := clean(each)[:LONGEST_TAG].strip()))
    event = Event(KIND, clean(note)[:LONGEST], {"tags": [*words][:MOST_TAGS]}, trial, time.time())
    return store.add_event(study_id, event)


def annotations_json(study: str, annotations: Annotations) -> Document:
    """Converts annotations to JSON, that of the study first; omits empty ones."""
    ordered = sorted(annotations.items(), key=lambda item: -1 if item[0] is None else item[0])
    items = [
        {"trial": trial, "note": plain(each.note), "tags": plain(each.tags)}
        for trial, each in ordered
        if each != Annotation()
    ]
    return {"study": plain(study), "annotations": items}
