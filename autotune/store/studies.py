"""Studies with their events, spent time, fingerprints and recommendations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from autotune.documents import codec
from autotune.domain import Event, Fingerprint, PriorKnowledge, Recommendation, Study, StudySpec, StudyStatus
from autotune.errors import AlreadyExistsError, FinishedTrialError, NotFoundError
from autotune.store.measurements import event_of, study_of
from autotune.store.models import EventRow, FingerprintRow, RecommendationRow, SessionRow, StudyRow

_BY_ID = select(StudyRow).where(StudyRow.id == bindparam("study"))
_LAST_EVENT = select(func.max(EventRow.id)).where(EventRow.study_id == bindparam("study"))
_BY_NAME = select(StudyRow).where(StudyRow.name == bindparam("study"))


def existing(session: Session, name_or_id: str | int) -> StudyRow:
    """Returns the study's row. Raises ``NotFoundError``."""
    named = _BY_NAME if isinstance(name_or_id, str) else _BY_ID
    row = session.scalars(named, {"study": name_or_id}).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no study {name_or_id!r}")
    return row


def locked(session: Session, study_id: int) -> StudyRow:
    """Returns the study's row, locked until the transaction ends. Raises ``NotFoundError``."""
    row = session.get(StudyRow, study_id, with_for_update=True)
    if row is None:
        raise NotFoundError(f"there is no study {study_id!r}")
    return row


def changing(session: Session, study_id: int) -> StudyRow:
    """Returns the study's row, locked, with its revision increased. Raises ``NotFoundError``.

    Every change in a study calls it before reading anything that the change depends on, so that changes have one order
    and numbers have no gaps, on any database.
    """
    row = locked(session, study_id)
    row.revision += 1
    return row


def create(session: Session, spec: StudySpec, now: float) -> Study:
    """Stores a new study. Raises ``AlreadyExistsError`` if its name is taken."""
    text = codec.dump(spec)
    row = StudyRow(
        name=spec.name,
        digest=spec.digest,
        spec=text,
        status=StudyStatus.OPEN.value,
        lengths=codec.dump(()),
        revision=1,
        created_at=now,
    )
    session.add(row)
    try:
        session.flush()
    except IntegrityError:
        raise AlreadyExistsError(f"a study {spec.name!r} exists already") from None
    return study_of(row)


def one(session: Session, name_or_id: str | int) -> Study:
    """Returns a study by name or id. Raises ``NotFoundError``."""
    return study_of(existing(session, name_or_id))


def every(session: Session) -> tuple[Study, ...]:
    """Returns all studies, newest first."""
    return tuple(study_of(row) for row in session.scalars(select(StudyRow).order_by(StudyRow.id.desc())))


def revisions(session: Session) -> Mapping[int, int]:
    """Returns study id -> revision, newest first, without reading specifications."""
    rows = session.execute(select(StudyRow.id, StudyRow.revision).order_by(StudyRow.id.desc())).all()
    return {row.id: row.revision for row in rows}


def set_lengths(session: Session, study_id: int, lengths: Sequence[int]) -> None:
    """Sets a study's recorded lengths, in tokens. Raises ``FinishedTrialError`` if others are set."""
    text = codec.dump(tuple(lengths))
    row = locked(session, study_id)
    if row.lengths == text:
        return
    if row.lengths != codec.dump(()):
        raise FinishedTrialError(f"the recorded lengths of study {row.name!r} are set and never change")
    changing(session, study_id).lengths = text


def set_beforehand(session: Session, study_id: int, beforehand: PriorKnowledge) -> Study:
    """Sets the prior knowledge of a study, once; later calls change nothing. Raises ``NotFoundError``."""
    row = locked(session, study_id)
    if row.beforehand is None:
        row = changing(session, study_id)
        row.beforehand = codec.dump(beforehand)
    return study_of(row)


def set_status(session: Session, study_id: int, status: StudyStatus) -> None:
    """Sets the status of a study; the same status again changes nothing. Raises ``NotFoundError``."""
    if locked(session, study_id).status != status.value:
        changing(session, study_id).status = status.value


def add_event(session: Session, study_id: int, event: Event) -> Event:
    """Stores an event with the next id, under the study's lock, so that a reader of later ids misses none."""
    changing(session, study_id)
    row = EventRow(
        study_id=study_id,
        id=_last_event(session, study_id) + 1,
        kind=event.kind,
        trial=event.trial,
        at=event.at,
        message=codec.dump(event.message),
        data=codec.dump(event.data),
    )
    session.add(row)
    return event_of(row)


def read_events(
    session: Session, study_id: int, after: int = 0, limit: int = 1000, kind: str | None = None
) -> tuple[Event, ...]:
    """Reads at most ``limit`` events with ids above ``after``, oldest first."""
    existing(session, study_id)
    query = select(EventRow).where(EventRow.study_id == study_id, EventRow.id > after)
    if kind is not None:
        query = query.where(EventRow.kind == kind)
    return tuple(event_of(row) for row in session.scalars(query.order_by(EventRow.id).limit(max(0, limit))))


def last_event_id(session: Session, study_id: int) -> int:
    """Returns the greatest id of a study's events; 0 before the first."""
    existing(session, study_id)
    return _last_event(session, study_id)


def _last_event(session: Session, study_id: int) -> int:
    return session.scalar(_LAST_EVENT, {"study": study_id}) or 0


def open_session(session: Session, study_id: int, now: float) -> int:
    """Opens a session of the tuner on a study and returns its id."""
    changing(session, study_id)
    row = SessionRow(study_id=study_id, started_at=now, updated_at=now, wall_s=0.0, gpu_s=0.0)
    session.add(row)
    session.flush()
    return row.id


def spend(session: Session, session_id: int, wall_s: float, gpu_s: float, now: float) -> None:
    """Stores the wall and GPU seconds a session has used so far. Raises ``NotFoundError``."""
    row = session.get(SessionRow, session_id)
    if row is None:
        raise NotFoundError(f"there is no session {session_id!r}")
    changing(session, row.study_id)
    row.wall_s, row.gpu_s, row.updated_at = wall_s, gpu_s, now


def spent(session: Session, study_id: int) -> tuple[float, float]:
    """Sums a study's sessions: returns (wall seconds, GPU seconds)."""
    existing(session, study_id)
    rows = session.execute(select(SessionRow.wall_s, SessionRow.gpu_s).where(SessionRow.study_id == study_id)).all()
    return sum((wall for wall, _ in rows), 0.0), sum((gpu for _, gpu in rows), 0.0)


def save_fingerprint(session: Session, study_id: int, fingerprint: Fingerprint, now: float) -> None:
    """Stores a fingerprint unless it equals the newest one."""
    locked(session, study_id)
    body = codec.dump(fingerprint)
    if _newest(session, FingerprintRow, study_id) == body:
        return
    changing(session, study_id)
    session.add(FingerprintRow(study_id=study_id, digest=fingerprint.digest, body=body, created_at=now))


def newest_fingerprint(session: Session, study_id: int) -> Fingerprint | None:
    """Returns the newest fingerprint; ``None`` before the first."""
    existing(session, study_id)
    body = _newest(session, FingerprintRow, study_id)
    return codec.load(Fingerprint, body) if body is not None else None


def fingerprints(session: Session, study_id: int) -> tuple[tuple[Fingerprint, float], ...]:
    """Returns all fingerprints with their UTC seconds, oldest first."""
    existing(session, study_id)
    query = select(FingerprintRow.body, FingerprintRow.created_at).where(FingerprintRow.study_id == study_id)
    rows = session.execute(query.order_by(FingerprintRow.id)).all()
    return tuple((codec.load(Fingerprint, body), at) for body, at in rows)


def save_recommendation(session: Session, study_id: int, recommendation: Recommendation) -> None:
    """Adds a recommendation; earlier ones stay."""
    changing(session, study_id)
    body = codec.dump(recommendation)
    session.add(RecommendationRow(study_id=study_id, body=body, created_at=recommendation.created_at))


def newest_recommendation(session: Session, study_id: int) -> Recommendation | None:
    """Returns the newest recommendation; ``None`` before the first."""
    existing(session, study_id)
    body = _newest(session, RecommendationRow, study_id)
    return codec.load(Recommendation, body) if body is not None else None


def _newest(session: Session, table: type[FingerprintRow] | type[RecommendationRow], study_id: int) -> str | None:
    return session.scalar(select(table.body).where(table.study_id == study_id).order_by(table.id.desc()).limit(1))
