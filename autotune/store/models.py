"""The tables of the database, and their creation. Nothing is stored twice.

Values that may hold foreign text, NaN or a structure are canonical JSON (``codec``); values that are counted, ordered
or joined on are columns. Seconds, bytes and tokens; times are UTC seconds since the epoch.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Double,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from autotune.errors import NoDatabaseError, UnfitDatabaseError
from autotune.store.backend import WRITE, Backend


class Base(DeclarativeBase):
    """Base of the tables. Constraint names are fixed, so that a migration can name them on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    # SQLite numbers rows by itself only in a column called INTEGER, which holds 64 bits there.
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger().with_variant(Integer(), "sqlite"),
        float: Double(),
        str: Text(),
    }


class SchemaRow(Base):
    """Version of the tables; one row."""

    __tablename__ = "autotune_schema"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class StudyRow(Base):
    """A study. Every change of anything in it locks this row, so that changes have one order."""

    __tablename__ = "studies"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    digest: Mapped[str]
    """Digest of the specification's identity, for people who query with SQL."""
    spec: Mapped[str]
    status: Mapped[str]
    lengths: Mapped[str]
    beforehand: Mapped[str | None]
    """Prior knowledge as JSON; ``None`` if the study started without any."""
    revision: Mapped[int]
    created_at: Mapped[float]


class TrialRow(Base):
    """A trial, without the measurements of its attempts."""

    __tablename__ = "trials"
    __table_args__ = (UniqueConstraint("study_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"))
    number: Mapped[int]
    kind: Mapped[str]
    state: Mapped[str]
    attempt: Mapped[int]
    """Number of the last attempt; 0 before the first."""
    configuration: Mapped[str]
    protocol: Mapped[str]
    rows_per_update: Mapped[int]
    pair: Mapped[int | None]
    source: Mapped[str]
    outcome: Mapped[str | None]
    host_peak: Mapped[int | None]
    created_at: Mapped[float]
    finished_at: Mapped[float | None]


class AttemptRow(Base):
    """An attempt at a trial; a trial has several after INFRA or a killed tuner."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("trial_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"))
    number: Mapped[int]
    started_at: Mapped[float]
    seconds: Mapped[float | None]
    """Wall seconds of the attempt; ``None`` until it has ended."""


class StartupRow(Base):
    """A part of an attempt's start-up."""

    __tablename__ = "startup_parts"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    part: Mapped[str] = mapped_column(primary_key=True)
    seconds: Mapped[float]


class WorstCaseRow(Base):
    """Record of an attempt's passed worst case; no row means that the attempt has not passed it."""

    __tablename__ = "worst_cases"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    record: Mapped[str]


class NoteRow(Base):
    """A record of an attempt that is not a measurement."""

    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), index=True)
    record: Mapped[str]


class CycleRow(Base):
    """A cycle of one rank."""

    __tablename__ = "cycles"
    __table_args__ = (UniqueConstraint("attempt_id", "rank", "position"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"))
    rank: Mapped[int]
    position: Mapped[int]
    """``CycleRecord.index``; INDEX is a word of SQL."""
    record: Mapped[str]


class EventRow(Base):
    """An entry of a study's log, numbered 1, 2, 3 ... within the study."""

    __tablename__ = "events"

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    trial: Mapped[int | None]
    at: Mapped[float]
    message: Mapped[str]
    data: Mapped[str]


class SessionRow(Base):
    """One run of the tuner on a study, with the time it used; the study's total is the sum over its sessions."""

    __tablename__ = "sessions"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), index=True)
    started_at: Mapped[float]
    updated_at: Mapped[float]
    wall_s: Mapped[float]
    gpu_s: Mapped[float]


class FingerprintRow(Base):
    """Machine and software that figures were measured on; the newest row counts."""

    __tablename__ = "fingerprints"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), index=True)
    digest: Mapped[str]
    body: Mapped[str]
    created_at: Mapped[float]


class RecommendationRow(Base):
    """A recommendation and its time; the newest row counts."""

    __tablename__ = "recommendations"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), index=True)
    body: Mapped[str]
    created_at: Mapped[float]


class ReceiptRow(Base):
    """The last committed write of one writer, so that a write whose answer was lost is not repeated."""

    __tablename__ = "receipts"

    writer: Mapped[str] = mapped_column(primary_key=True)
    ticket: Mapped[int]


VERSION = 1
"""Version of the tables. The first release that changes them brings a migration from version 1."""


def prepare(backend: Backend, engine: Engine, *, create: bool = True) -> None:
    """Creates the tables if they are missing, in one process at a time; quick if they exist.

    Raises:
        NoDatabaseError: the database has none of autotune's tables, and ``create`` is off.
        UnfitDatabaseError: the tables are of another version, or of another application with the same names.
    """
    made = _has_tables(backend, engine)
    if not made and not create:
        raise NoDatabaseError(f"{backend.place} holds no study; `autotune start` begins one, or name another database")
    if made and backend.ready(engine):
        return
    with backend.creation(engine):
        if not backend.ready(engine):
            backend.make_ready(engine)
        if not _has_tables(backend, engine):
            with engine.connect().execution_options(**{WRITE: True}) as connection, connection.begin():
                Base.metadata.create_all(connection)
                connection.execute(insert(SchemaRow).values(version=VERSION))


def _has_tables(backend: Backend, engine: Engine) -> bool:
    with engine.connect() as connection:
        ours = sorted(set(inspect(connection).get_table_names()) & set(Base.metadata.tables))
        query = select(SchemaRow.version)
        version = connection.execute(query).scalar() if SchemaRow.__tablename__ in ours else None
    if version is None and ours:
        raise UnfitDatabaseError(
            f"{backend.place} has tables ({', '.join(ours)}) of another application or of an autotune before its first "
            "release; it is left as it is, and another database is to be named"
        )
    if version not in (None, VERSION):
        way_out = "upgrade autotune" if version > VERSION else "use the autotune that made it"
        raise UnfitDatabaseError(
            f"{backend.place} is of version {version}, and this autotune knows version {VERSION} alone; {way_out}, "
            "or name another database"
        )
    return version is not None
