"""Words that distinguish studies in their list."""

from __future__ import annotations

from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.wording.text import clean


def name_of(found: StudyReading) -> str:
    """Returns the study's name, or its id if it has none."""
    return clean(found.study.spec.name) or f"study {found.study.id}"


def sure_word(found: StudyReading) -> str:
    """Returns a word for the reliability of the first row; empty without one."""
    if found.first_row is None:
        return ""
    if found.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if found.first_row.confirmed else "not confirmed"
