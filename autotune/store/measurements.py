"""Stores the records of attempts, each once, and reads them back for many trials at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, select
from sqlalchemy.orm import Session

from autotune.documents import codec
from autotune.domain import CycleRecord, Peaks, StartupRecord
from autotune.domain.places import PLACE
from autotune.store.models import (
    AttemptRow,
    CycleRow,
    NoteRow,
    PhaseRow,
    StartupRow,
    TrialRow,
    WorstCaseRow,
)
from autotune.store.rows import AttemptFacts, cycle_of, cycle_row, phase_rows
from trainer.child.contract import NoteRecord, WorstCaseRecord

__all__ = ["add_cycle", "add_note", "add_startup", "add_worst_case", "facts_of", "notes_of", "worst_case_of"]


def add_cycle(session: Session, attempt: AttemptRow, cycle: CycleRecord) -> None:
    """Stores a cycle; the first of the same attempt, rank and index stays, because recovery reads stored records
    again."""
    same = (CycleRow.attempt_id == attempt.id, CycleRow.rank == cycle.rank, CycleRow.position == cycle.index)
    if session.scalar(select(CycleRow.id).where(*same)) is not None:
        return
    row = cycle_row(attempt.id, cycle)
    session.add(row)
    session.flush()
    session.add_all(phase_rows(row.id, cycle))


def add_startup(session: Session, attempt: AttemptRow, part: StartupRecord) -> None:
    """Stores a start-up part; a later record replaces an earlier one."""
    session.merge(StartupRow(attempt_id=attempt.id, part=part.part.value, seconds=part.seconds))


def add_worst_case(session: Session, attempt: AttemptRow, record: WorstCaseRecord) -> None:
    """Stores the worst case; a later record replaces an earlier one."""
    session.merge(WorstCaseRow(attempt_id=attempt.id, record=codec.dump(record)))


def add_note(session: Session, attempt: AttemptRow, note: NoteRecord) -> None:
    """Stores a note; equal notes of an attempt are stored once."""
    text = codec.dump(note)
    if session.scalar(select(NoteRow.id).where(NoteRow.attempt_id == attempt.id, NoteRow.record == text)) is None:
        session.add(NoteRow(attempt_id=attempt.id, record=text))


def notes_of(session: Session, trial: ColumnElement[bool]) -> tuple[NoteRecord, ...]:
    """Notes of the last attempt, in order."""
    query = select(NoteRow.record).where(NoteRow.attempt_id.in_(_last_attempts(trial))).order_by(NoteRow.id)
    return tuple(codec.load(NoteRecord, text) for text in session.scalars(query))


def worst_case_of(session: Session, trial: ColumnElement[bool]) -> WorstCaseRecord | None:
    """Worst-case record of the last attempt."""
    text = session.scalar(select(WorstCaseRow.record).where(WorstCaseRow.attempt_id.in_(_last_attempts(trial))))
    return codec.load(WorstCaseRecord, text) if text is not None else None


def facts_of(session: Session, trials: ColumnElement[bool]) -> Mapping[int, AttemptFacts]:
    """By trial row id, for every trial that has been attempted; six queries in all."""
    attempts = session.execute(
        select(AttemptRow.trial_id, AttemptRow.id, AttemptRow.started_at, AttemptRow.seconds)
        .join(TrialRow, TrialRow.id == AttemptRow.trial_id)
        .where(trials)
        .order_by(AttemptRow.number)
    ).all()
    last = {trial: (attempt, started) for trial, attempt, started, _ in attempts}
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for trial, _, _, spent in attempts:
        if spent is not None:
            seconds[trial].append(spent)
    startup = _startup(session, trials)
    through = select(WorstCaseRow.attempt_id).where(WorstCaseRow.attempt_id.in_(_last_attempts(trials)))
    passed = set(session.scalars(through))
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


def _nodes(session: Session, trials: ColumnElement[bool]) -> Mapping[int, str]:
    """By attempt, where the note of its place names a node."""
    named = NoteRow.record.contains(f'"name":"{PLACE}"')
    query = select(NoteRow.attempt_id, NoteRow.record).where(NoteRow.attempt_id.in_(_last_attempts(trials)), named)
    notes = ((attempt, codec.load(NoteRecord, text)) for attempt, text in session.execute(query))
    return {attempt: str(note.data.get("node", "")) for attempt, note in notes if note.name == PLACE}


def _last_attempts(trials: ColumnElement[bool]) -> Select[int]:
    """Row ids of the last attempt of each trial."""
    return (
        select(AttemptRow.id)
        .join(TrialRow, TrialRow.id == AttemptRow.trial_id)
        .where(trials, AttemptRow.number == TrialRow.attempt)
    )


def _startup(session: Session, trials: ColumnElement[bool]) -> Mapping[int, Mapping[str, float]]:
    query = select(StartupRow.attempt_id, StartupRow.part, StartupRow.seconds).where(
        StartupRow.attempt_id.in_(_last_attempts(trials))
    )
    parts: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for attempt, part, seconds in session.execute(query):
        parts[attempt][part] = seconds
    return parts


def _cycles(session: Session, trials: ColumnElement[bool]) -> Mapping[int, list[CycleRecord]]:
    phases, peaks = _phases(session, trials)
    measured = CycleRow.attempt_id.in_(_last_attempts(trials))
    columns = select(*CycleRow.__table__.columns)
    cycles: defaultdict[int, list[CycleRecord]] = defaultdict(list)
    for row in _plain(session, columns.where(measured).order_by(CycleRow.position, CycleRow.rank)):
        cycles[row.attempt_id].append(cycle_of(row, phases.get(row.id, {}), peaks.get(row.id, {})))
    return cycles


def _phases(
    session: Session, trials: ColumnElement[bool]
) -> tuple[Mapping[int, dict[str, float]], Mapping[int, dict[str, Peaks]]]:
    """(seconds, peaks) by cycle row id."""
    query = (
        select(
            PhaseRow.cycle_id,
            PhaseRow.phase,
            PhaseRow.seconds,
            PhaseRow.has_peaks,
            PhaseRow.device_allocated,
            PhaseRow.device_reserved,
            PhaseRow.device_used,
            PhaseRow.host,
        )
        .join(CycleRow, CycleRow.id == PhaseRow.cycle_id)
        .where(CycleRow.attempt_id.in_(_last_attempts(trials)))
    )
    phases: defaultdict[int, dict[str, float]] = defaultdict(dict)
    peaks: defaultdict[int, dict[str, Peaks]] = defaultdict(dict)
    for cycle, phase, seconds, has_peaks, allocated, reserved, used, host in _plain(session, query):
        if seconds is not None:
            phases[cycle][phase] = seconds
        if has_peaks:
            peaks[cycle][phase] = Peaks(allocated, reserved, used, host)
    return phases, peaks


def _plain(session: Session, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Rows past the session's own loading, which would go through every column of each: these are the many. What the
    session has not written yet is not in them."""
    return session.connection().execute(query).all()
