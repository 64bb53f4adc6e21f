"""Rows <-> frozen domain values. Every value made here is new, so nothing stored can be reached through it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import lru_cache
from typing import Any, get_type_hints

from sqlalchemy import Row

from autotune.documents import codec
from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    Event,
    Objective,
    Outcome,
    Peaks,
    PriorKnowledge,
    Protocol,
    Study,
    StudySpec,
    StudyStatus,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.errors import StoreError
from autotune.store.models import CycleRow, EventRow, PhaseRow, StudyRow, TrialRow
from search_spaces.batch import held_gpus

_COLUMNS = {
    "index": "position",
    "cycle_kind": "cycle_kind",
    "seconds": "seconds",
    "completion_tokens": "completion_tokens",
    "prompt_tokens": "prompt_tokens",
    "computed_tokens": "computed_tokens",
    "rows": "row_count",
    "updates": "updates",
    "accepted": "accepted",
    "noisy": "noisy",
    "rank": "rank",
    "started": "started",
}
"""Field of a ``CycleRecord`` -> its column."""
_ELSEWHERE = frozenset({"phases", "peaks", "kind"})
"""In rows of their own, or the same for every cycle."""


def _rest() -> type[Any]:
    """The fields of a ``CycleRecord`` that have no column, each with the default it has there."""
    types = get_type_hints(CycleRecord)
    kept = [each for each in fields(CycleRecord) if each.name not in {*_COLUMNS, *_ELSEWHERE}]
    made = [(e.name, types[e.name], field(default=e.default, default_factory=e.default_factory)) for e in kept]
    return make_dataclass("CycleRest", made, frozen=True)


CycleRest = _rest()
"""What of a ``CycleRecord`` is stored as one text. A figure that is added there is stored without a change here."""


@dataclass(frozen=True)
class AttemptFacts:
    """Measurements of a trial's last attempt, and the seconds of all attempts."""

    seconds: float | None = None
    started_at: float | None = None
    startup: Mapping[str, float] | None = None
    worst_case_passed: bool = False
    cycles: tuple[CycleRecord, ...] = ()
    node: str = ""


def study_of(row: StudyRow) -> Study:
    """The study a row tells of."""
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
    """Cached because it is immutable all through, and the same few come again and again."""
    return codec.load(Configuration, text)  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def protocol_of(text: str) -> Protocol:
    """Cached because it is immutable all through, and a study has few."""
    return codec.load(Protocol, text)  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _spec_of(text: str) -> StudySpec:
    return codec.load(StudySpec, text)  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _gpus_of(spec: str, configuration: str) -> int:
    return held_gpus(configuration_of(configuration), _spec_of(spec).resources)


def trial_of(row: TrialRow | Row[Any], facts: AttemptFacts, spec: str) -> Trial:
    """The trial a row (with the columns of ``TrialRow``) tells of, with what its attempts measured.

    ``spec``: the text of its study's.
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


def cycle_row(attempt_id: int, cycle: CycleRecord) -> CycleRow:
    """Raises ``StoreError`` if a duration is not a finite number: such a record is no measurement."""
    timed = {"seconds": cycle.seconds, "started": cycle.started, **cycle.phases}
    for name, value in timed.items():
        if not math.isfinite(value):
            raise StoreError(f"cycle {cycle.index} of rank {cycle.rank} is not stored: its {name} is {value}")
    rest = CycleRest(**{each.name: getattr(cycle, each.name) for each in fields(CycleRest)})
    columns = {column: getattr(cycle, name) for name, column in _COLUMNS.items()}
    return CycleRow(attempt_id=attempt_id, **{**columns, "cycle_kind": cycle.cycle_kind.value}, rest=codec.dump(rest))


def phase_rows(cycle_id: int, cycle: CycleRecord) -> list[PhaseRow]:
    """A row for every phase that has seconds, peaks or both."""
    rows = []
    for name in sorted({*cycle.phases, *cycle.peaks}):
        peaks = cycle.peaks.get(name)
        known = peaks or Peaks()
        rows.append(
            PhaseRow(
                cycle_id=cycle_id,
                phase=name,
                seconds=cycle.phases.get(name),
                has_peaks=peaks is not None,
                device_allocated=known.device_allocated,
                device_reserved=known.device_reserved,
                device_used=known.device_used,
                host=known.host,
            )
        )
    return rows


def cycle_of(row: CycleRow | Row[Any], phases: Mapping[str, float], peaks: Mapping[str, Peaks]) -> CycleRecord:
    """The cycle a row (with the columns of ``CycleRow``) and its phases' rows tell of."""
    columns = {name: getattr(row, column) for name, column in _COLUMNS.items()}
    rest = codec.load(CycleRest, row.rest)
    return CycleRecord(**{**columns, "cycle_kind": CycleKind(row.cycle_kind)}, phases=phases, peaks=peaks, **vars(rest))


def event_of(row: EventRow) -> Event:
    """The event a row tells of."""
    return Event(
        kind=row.kind,
        message=codec.load(str, row.message),
        data=codec.load(Mapping[str, Any], row.data),
        trial=row.trial,
        at=row.at,
        id=row.id,
    )
