"""A study in one line of the list."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.documents.study import timestamp
from autotune.domain import StudyStatus
from autotune.insights.standings import count
from autotune.recommendation.places import running_trials
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.wording.numbers import rate, signed_percent
from autotune.wording.sentences import machine_words, model_name
from autotune.wording.text import clean


@dataclass(frozen=True)
class StudyLine:
    """One line of the list of studies."""

    id: int
    name: str
    status: str
    model: str
    framework: str
    machine: str
    trials: str
    speed: str
    gain: str
    sure: str
    begun: str


def study_line(found: StudyReading) -> StudyLine:
    """For the list of studies."""
    spec = found.study.spec
    row = found.first_row
    gain = "" if row is None else signed_percent(row.gain.value) if row.gain is not None else "baseline"
    return StudyLine(
        id=found.study.id,
        name=clean(spec.name) or f"study {found.study.id}",
        status=status_word(found),
        model=model_name(spec.workload.model),
        framework=clean(spec.framework),
        machine=machine_and_device(found),
        trials=count(found.trials).sentence(),
        speed=rate(row.tokens_per_hour) if row is not None else "-",
        gain=gain,
        sure=sure_word(found),
        begun=timestamp(found.study.created_at) or "",
    )


def status_word(found: StudyReading) -> str:
    """``running``, ``open`` (the same command continues it) or ``done``."""
    if found.study.status is StudyStatus.DONE:
        return "done"
    return "running" if running_trials(found.trials) else "open"


def sure_word(found: StudyReading) -> str:
    """How far the first row can be relied on."""
    if found.first_row is None:
        return ""
    if found.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if found.first_row.confirmed else "not confirmed"


def machine_and_device(found: StudyReading) -> str:
    """``CPU, 2 cores`` or ``2 GPUs, NVIDIA H200``."""
    resources = found.study.spec.resources
    return f"{machine_words(resources)}, {clean(resources.device)}" if resources.gpus else machine_words(resources)
