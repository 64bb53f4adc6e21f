"""Creates the tables when a database is opened; refuses tables of another version."""

from __future__ import annotations

from sqlalchemy import Engine, insert, inspect, select

from autotune.errors import NoDatabaseError, UnfitDatabaseError
from autotune.store.backend import WRITE, Backend
from autotune.store.models import Base, SchemaRow

VERSION = 1
"""Version of the tables. The first release that changes them brings a migration from version 1."""


def prepare(backend: Backend, engine: Engine, *, create: bool = True) -> None:
    """Creates the tables if they are missing, in one process at a time; quick if they exist.

    Raises:
        NoDatabaseError: the database has none of our tables, and ``create`` is off.
        UnfitDatabaseError: the tables are of another version, or of another application with our names.
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
