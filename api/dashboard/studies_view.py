"""The list of studies: what tells one study from another."""

from __future__ import annotations

from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.wording.text import clean


def name_of(found: StudyReading) -> str:
    """The study's name; by its id where it has none."""
    return clean(found.study.spec.name) or f"study {found.study.id}"


def sure_word(found: StudyReading) -> str:
    """A word for how far the first row can be relied on."""
    if found.first_row is None:
        return ""
    if found.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if found.first_row.confirmed else "not confirmed"
