"""Words that distinguish studies in their list."""

from __future__ import annotations

from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.wording.text import clean


def name_of(reading: StudyReading) -> str:
    """Returns the study's name, or its id if it has none."""
    return clean(reading.study.spec.name) or f"study {reading.study.id}"


def sure_word(reading: StudyReading) -> str:
    """Returns a word for the reliability of the first row; empty without one."""
    if reading.first_row is None:
        return ""
    if reading.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if reading.first_row.confirmed else "not confirmed"
