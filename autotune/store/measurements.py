"""Stores and reads the records of attempts, for many trials at once, and converts rows to frozen domain values.

Every value is new, so nothing stored can be changed through it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, select
from sqlalchemy.orm import Session

from autotune.documents import codec
from autotune.domain import (
    Configuration,
    CycleRecord,
    Event,
    Objective,
    Outcome,
    PriorKnowledge,
    Protocol,
    StartupRecord,
    Study,
    StudySpec,
    StudyStatus,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.domain.places import PLACE
from autotune.errors import StoreError
from autotune.store.models import AttemptRow, CycleRow, EventRow, NoteRow, StartupRow, StudyRow, TrialRow, WorstCaseRow
from search_spaces.batch import held_gpus
from trainer.child.contract import NoteRecord, WorstCaseRecord


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


def add_cycle(session: Session, attempt: AttemptRow, cycle: CycleRecord) -> None:
    """Stores a cycle unless the attempt has one of the same rank and index, because recovery reads records twice.
    Raises ``StoreError`` if a duration is not a finite number."""
    same = (CycleRow.attempt_id == attempt.id, CycleRow.rank == cycle.rank, CycleRow.position == cycle.index)
    if session.scalar(select(CycleRow.id).where(*same)) is not None:
        return
    for name, value in {"seconds": cycle.seconds, "started": cycle.started, **cycle.phases}.items():
        if not math.isfinite(value):
            raise StoreError(f"cycle {cycle.index} of rank {cycle.rank} is not stored: its {name} is {value}")
    session.add(CycleRow(attempt_id=attempt.id, rank=cycle.rank, position=cycle.index, record=codec.dump(cycle)))


def add_startup(session: Session, attempt: AttemptRow, part: StartupRecord) -> None:
    """Stores a part of the start-up; a later record replaces an earlier one."""
    session.merge(StartupRow(attempt_id=attempt.id, part=part.part.value, seconds=part.seconds))


def add_worst_case(session: Session, attempt: AttemptRow, record: WorstCaseRecord) -> None:
    """Stores the worst-case record; a later record replaces an earlier one."""
    session.merge(WorstCaseRow(attempt_id=attempt.id, record=codec.dump(record)))


def add_note(session: Session, attempt: AttemptRow, note: NoteRecord) -> None:
    """Stores a note; equal notes of an attempt are stored once."""
    text = codec.dump(note)
    if session.scalar(select(NoteRow.id).where(NoteRow.attempt_id == attempt.id, NoteRow.record == text)) is None:
        session.add(NoteRow(attempt_id=attempt.id, record=text))


@dataclass(frozen=True)
class Chosen:
    """Condition that selects trials. There are few, so that each SQL statement with one is built once."""

    where: ColumnElement[bool]
    """Condition with bound parameters in place of values."""
    values: Mapping[str, int]

    @classmethod
    def one(cls, row: int) -> Chosen:
        """Selects the trial with a row id."""
        return cls(_ONE, {"trial": row})

    @classmethod
    def several(cls, study_id: int, since: int, until: int | None) -> Chosen:
        """Selects a study's trials from number ``since`` on and below ``until``."""
        if until is None:
            return cls(_SINCE, {"study": study_id, "since": since})
        return cls(_BETWEEN, {"study": study_id, "since": since, "until": until})


_ONE = TrialRow.id == bindparam("trial")
_SINCE = and_(TrialRow.study_id == bindparam("study"), TrialRow.number >= bindparam("since"))
_BETWEEN = and_(_SINCE, TrialRow.number < bindparam("until"))


def notes_of(session: Session, trial: Chosen) -> tuple[NoteRecord, ...]:
    """Returns the notes of the last attempt, in order."""
    found = session.scalars(_statements(trial.where).notes, trial.values)
    return tuple(codec.load(NoteRecord, text) for text in found)


def rows_of(session: Session, trials: Chosen) -> Sequence[Row[Any]]:
    """Returns the trial table's columns for ``trials``, ordered by trial number, as plain rows for speed."""
    return session.execute(_statements(trials.where).trials, trials.values).all()


def facts_of(session: Session, trials: Chosen) -> Mapping[int, AttemptFacts]:
    """Returns the measurements by trial row id, for every trial that was attempted; five queries in all."""
    statements, values = _statements(trials.where), trials.values
    attempts = session.execute(statements.attempts, values).all()
    last = {trial: (attempt, started) for trial, attempt, started, _ in attempts}
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for trial, _, _, spent in attempts:
        if spent is not None:
            seconds[trial].append(spent)
    startup: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for attempt, part, spent in session.execute(statements.startup, values):
        startup[attempt][part] = spent
    passed = set(session.scalars(statements.passed, values))
    cycles, nodes = _cycles(session, trials), _nodes(session, trials)
    return {
        trial: AttemptFacts(
            seconds=sum(seconds[trial]) if trial in seconds else None,
            started_at=started,
            startup=startup.get(attempt, {}),
            worst_case_passed=attempt in passed,
            cycles=tuple(cycles.get(attempt, ())),
            node=nodes.get(attempt, ""),
        )
        for trial, (attempt, started) in last.items()
    }


@dataclass(frozen=True)
class _Statements:
    """SQL statements about trials and their last attempts; ``attempts`` is about all attempts."""

    trials: Select[*tuple[Any, ...]]
    attempts: Select[int, int, float, float | None]
    startup: Select[int, str, float]
    passed: Select[int]
    notes: Select[str]
    places: Select[int, str]
    cycles: Select[int, str]


@cache
def _statements(where: ColumnElement[bool]) -> _Statements:
    attempted = TrialRow.id == AttemptRow.trial_id
    last = select(AttemptRow.id).join(TrialRow, attempted).where(where, AttemptRow.number == TrialRow.attempt)
    attempt = select(AttemptRow.trial_id, AttemptRow.id, AttemptRow.started_at, AttemptRow.seconds)
    startup = select(StartupRow.attempt_id, StartupRow.part, StartupRow.seconds)
    noted = NoteRow.attempt_id.in_(last)
    named = NoteRow.record.contains(f'"name":"{PLACE}"')
    cycle = select(CycleRow.attempt_id, CycleRow.record).where(CycleRow.attempt_id.in_(last))
    return _Statements(
        trials=select(*TrialRow.__table__.columns).where(where).order_by(TrialRow.number),
        attempts=attempt.join(TrialRow, attempted).where(where).order_by(AttemptRow.number),
        startup=startup.where(StartupRow.attempt_id.in_(last)),
        passed=select(WorstCaseRow.attempt_id).where(WorstCaseRow.attempt_id.in_(last)),
        notes=select(NoteRow.record).where(noted).order_by(NoteRow.id),
        places=select(NoteRow.attempt_id, NoteRow.record).where(noted, named),
        cycles=cycle.order_by(CycleRow.position, CycleRow.rank),
    )


def _nodes(session: Session, trials: Chosen) -> Mapping[int, str]:
    """Returns attempt row id -> node, for attempts with a recorded node."""
    found = session.execute(_statements(trials.where).places, trials.values)
    notes = ((attempt, codec.load(NoteRecord, text)) for attempt, text in found)
    return {attempt: str(note.data.get("node", "")) for attempt, note in notes if note.name == PLACE}


def _cycles(session: Session, trials: Chosen) -> Mapping[int, list[CycleRecord]]:
    """Returns attempt row id -> cycles, in order."""
    cycles: defaultdict[int, list[CycleRecord]] = defaultdict(list)
    for attempt, record in session.execute(_statements(trials.where).cycles, trials.values):
        cycles[attempt].append(codec.load(CycleRecord, record))
    return cycles
