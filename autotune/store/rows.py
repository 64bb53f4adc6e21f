"""Converts rows to frozen domain values. Every value is new, so nothing stored can be changed through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Row

from autotune.documents import codec
from autotune.domain import (
    Configuration,
    CycleRecord,
    Event,
    Objective,
    Outcome,
    PriorKnowledge,
    Protocol,
    Study,
    StudySpec,
    StudyStatus,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.store.models import EventRow, StudyRow, TrialRow
from search_spaces.batch import held_gpus


@dataclass(frozen=True)
class AttemptFacts:
    """Measurements of a trial's last attempt, and the wall seconds of all attempts."""

    seconds: float | None = None
    started_at: float | None = None
    startup: Mapping[str, float] | None = None
    worst_case_passed: bool = False
    cycles: tuple[CycleRecord, ...] = ()
    node: str = ""


def study_of(row: StudyRow) -> Study:
    """Converts a row to its study."""
    return Study(
        id=row.id,
        spec=codec.load(StudySpec, row.spec),
        created_at=row.created_at,
        status=StudyStatus(row.status),
        lengths=codec.load(tuple[int, ...], row.lengths),
        revision=row.revision,
        beforehand=codec.load(PriorKnowledge, row.beforehand) if row.beforehand is not None else None,
    )


@lru_cache(maxsize=4096)
def configuration_of(text: str) -> Configuration:
    """Decodes a configuration; cached, because it is immutable and few configurations recur often."""
    return codec.load(Configuration, text)  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def protocol_of(text: str) -> Protocol:
    """Decodes a protocol; cached, because it is immutable and a study has few."""
    return codec.load(Protocol, text)  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _spec_of(text: str) -> StudySpec:
    return codec.load(StudySpec, text)  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _gpus_of(spec: str, configuration: str) -> int:
    return held_gpus(configuration_of(configuration), _spec_of(spec).resources)


def trial_of(row: TrialRow | Row[Any], facts: AttemptFacts, spec: str) -> Trial:
    """Converts a row with the columns of ``TrialRow`` to its trial.

    ``facts``: measurements of its attempts; ``spec``: JSON text of the study's specification.
    """
    return Trial(
        study_id=row.study_id,
        number=row.number,
        kind=TrialKind(row.kind),
        configuration=configuration_of(row.configuration),
        protocol=protocol_of(row.protocol),
        rows_per_update=row.rows_per_update,
        state=TrialState(row.state),
        attempt=row.attempt,
        pair=row.pair,
        source=row.source,
        outcome=codec.load(Outcome, row.outcome) if row.outcome is not None else None,
        cycles=facts.cycles,
        startup=dict(facts.startup or {}),
        worst_case_passed=facts.worst_case_passed,
        watchdog_peak=row.host_peak,
        created_at=row.created_at,
        started_at=facts.started_at,
        finished_at=row.finished_at,
        seconds=facts.seconds,
        gpus=_gpus_of(spec, row.configuration),
        per_gpu=_spec_of(spec).objective is Objective.PER_GPU_HOUR,
        node=facts.node,
    )


def event_of(row: EventRow) -> Event:
    """Converts a row to its event."""
    return Event(
        kind=row.kind,
        message=codec.load(str, row.message),
        data=codec.load(Mapping[str, Any], row.data),
        trial=row.trial,
        at=row.at,
        id=row.id,
    )
