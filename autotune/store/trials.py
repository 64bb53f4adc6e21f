"""Trials: their numbers and states, and the measurements of their last attempts."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from autotune.documents import codec
from autotune.domain import Event, Outcome, Study, StudySpec, Trial, TrialDraft, TrialState
from autotune.errors import FinishedTrialError, NotFoundError, StoreError
from autotune.store import measurements
from autotune.store.measurements import AttemptFacts, Chosen
from autotune.store.models import AttemptRow, StudyRow, TrialRow
from autotune.store.studies import add_event, changing, existing
from trainer.child.contract import NoteRecord

# Asked with every record of every trial: built once.
_TRIAL = select(TrialRow).where(TrialRow.study_id == bindparam("study"), TrialRow.number == bindparam("number"))
_ATTEMPT = select(AttemptRow).where(AttemptRow.trial_id == bindparam("trial"), AttemptRow.number == bindparam("number"))


def add(session: Session, study_id: int, draft: TrialDraft, now: float) -> Trial:
    """Adds a WAITING trial with the next number; the study's lock prevents two writers from taking the same one."""
    study = changing(session, study_id)
    last = session.scalar(select(func.max(TrialRow.number)).where(TrialRow.study_id == study_id))
    row = TrialRow(
        study_id=study_id,
        number=0 if last is None else last + 1,
        kind=draft.kind.value,
        state=TrialState.WAITING.value,
        attempt=0,
        configuration=codec.dump(draft.configuration),
        protocol=codec.dump(draft.protocol),
        rows_per_update=draft.rows_per_update,
        pair=draft.pair,
        source=draft.source,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return measurements.trial_of(row, AttemptFacts(), study.spec)


def start(session: Session, study_id: int, number: int, now: float, event: Event | None = None) -> Trial:
    """Starts an attempt: WAITING -> RUNNING. Raises ``FinishedTrialError`` from any other state."""
    row = _in_state(session, study_id, number, TrialState.WAITING)
    row.state = TrialState.RUNNING.value
    row.attempt += 1
    session.add(AttemptRow(trial_id=row.id, number=row.attempt, started_at=now))
    return _changed(session, row, event)


def requeue(session: Session, study_id: int, number: int, seconds: float, event: Event | None = None) -> Trial:
    """Ends an attempt without a result: RUNNING -> WAITING. Raises ``FinishedTrialError`` from any other state."""
    row = _in_state(session, study_id, number, TrialState.RUNNING)
    row.state = TrialState.WAITING.value
    _last_attempt(session, row).seconds = seconds
    return _changed(session, row, event)


def begin_anew(session: Session, study_id: int, spec: StudySpec, draft: TrialDraft, event: Event) -> Study:
    """Replaces a study's specification and RUNNING baseline. Raises ``FinishedTrialError`` if it has other trials."""
    row, study = _in_state(session, study_id, 0, TrialState.RUNNING), existing(session, study_id)
    if session.scalar(select(func.count()).where(TrialRow.study_id == study_id)) != 1:
        raise FinishedTrialError(f"study {study.name!r} has trials beside its first, so its workload never changes")
    study.spec, study.digest, study.beforehand = codec.dump(spec), spec.digest, None
    row.configuration, row.protocol = codec.dump(draft.configuration), codec.dump(draft.protocol)
    row.rows_per_update, row.state = draft.rows_per_update, TrialState.WAITING.value
    _changed(session, row, event)
    return measurements.study_of(study)


def finish(
    session: Session,
    study_id: int,
    number: int,
    state: TrialState,
    outcome: Outcome,
    now: float,
    seconds: float,
    host_peak: int | None,
    event: Event | None = None,
) -> Trial:
    """Finishes a RUNNING trial; ``seconds`` is the wall time of its last attempt alone."""
    if not state.is_finished:
        raise StoreError(f"trial {number} cannot be finished as {state}")
    row = _in_state(session, study_id, number, TrialState.RUNNING)
    row.state = state.value
    row.outcome = codec.dump(outcome)
    row.finished_at = now
    row.host_peak = host_peak
    _last_attempt(session, row).seconds = seconds
    return _changed(session, row, event)


def unfinished_attempt(session: Session, study_id: int, number: int, attempt: int) -> AttemptRow:
    """Returns the attempt a record is for, its study locked. Raises ``FinishedTrialError`` or ``NotFoundError``."""
    changing(session, study_id)
    trial = _existing_trial(session, study_id, number)
    if TrialState(trial.state).is_finished:
        raise _refused(trial)
    return _attempt(session, trial, attempt)


def one(session: Session, study_id: int, number: int) -> Trial:
    """Returns a trial. Raises ``NotFoundError``."""
    spec = existing(session, study_id).spec
    return _with_facts(session, _existing_trial(session, study_id, number), spec)


def every(session: Session, study_id: int, since: int = 0, until: int | None = None) -> tuple[Trial, ...]:
    """Returns trials ``since`` to below ``until``, ordered by number, in a fixed number of queries."""
    spec = existing(session, study_id).spec
    wanted = Chosen.several(study_id, since, until)
    rows = measurements.rows_of(session, wanted)
    facts = measurements.facts_of(session, wanted)
    return tuple(measurements.trial_of(row, facts.get(row.id, AttemptFacts()), spec) for row in rows)


def notes(session: Session, study_id: int, number: int) -> tuple[NoteRecord, ...]:
    """Returns the notes of the last attempt, in order."""
    existing(session, study_id)
    return measurements.notes_of(session, Chosen.one(_existing_trial(session, study_id, number).id))


def _changed(session: Session, row: TrialRow, event: Event | None) -> Trial:
    """Returns the changed trial; stores ``event`` in the same transaction."""
    session.flush()
    if event is not None:
        add_event(session, row.study_id, event)
    spec = session.get_one(StudyRow, row.study_id).spec  # locked before, so it is not asked for again
    return _with_facts(session, row, spec)


def _with_facts(session: Session, row: TrialRow, spec: str) -> Trial:
    facts = measurements.facts_of(session, Chosen.one(row.id))
    return measurements.trial_of(row, facts.get(row.id, AttemptFacts()), spec)


def _existing_trial(session: Session, study_id: int, number: int) -> TrialRow:
    row = session.scalars(_TRIAL, {"study": study_id, "number": number}).one_or_none()
    if row is None:
        raise NotFoundError(f"study {study_id} has no trial {number!r}")
    return row


def _in_state(session: Session, study_id: int, number: int, state: TrialState) -> TrialRow:
    changing(session, study_id)
    row = _existing_trial(session, study_id, number)
    if row.state != state.value:
        raise _refused(row)
    return row


def _refused(row: TrialRow) -> FinishedTrialError:
    never = "; a finished trial never changes" if TrialState(row.state).is_finished else ""
    return FinishedTrialError(f"trial {row.number} is {row.state}{never}")


def _attempt(session: Session, trial: TrialRow, number: int) -> AttemptRow:
    row = session.scalars(_ATTEMPT, {"trial": trial.id, "number": number}).one_or_none()
    if row is None:
        raise NotFoundError(f"trial {trial.number} has no attempt {number!r}")
    return row


def _last_attempt(session: Session, trial: TrialRow) -> AttemptRow:
    return _attempt(session, trial, trial.attempt)
