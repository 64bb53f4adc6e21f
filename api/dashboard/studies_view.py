"""The list of studies: what tells one study from another."""

from __future__ import annotations

from autotune.domain import StudyStatus
from autotune.recommendation.places import running_trials
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.wording.sentences import machine_words
from autotune.wording.text import clean


def name_of(found: StudyReading) -> str:
    """The study's name; by its id where it has none."""
    return clean(found.study.spec.name) or f"study {found.study.id}"


def status_word(found: StudyReading) -> str:
    """``running``, ``open`` (the same command continues it) or ``done``."""
    if found.study.status is StudyStatus.DONE:
        return "done"
    return "running" if running_trials(found.trials) else "open"


def sure_word(found: StudyReading) -> str:
    """A word for how far the first row can be relied on."""
    if found.first_row is None:
        return ""
    if found.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if found.first_row.confirmed else "not confirmed"


def machine_and_device(found: StudyReading) -> str:
    """``CPU, 2 cores`` or ``2 GPUs, NVIDIA H200``."""
    resources = found.study.spec.resources
    return f"{machine_words(resources)}, {clean(resources.device)}" if resources.gpus else machine_words(resources)
