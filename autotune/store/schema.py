"""Creates and migrates the tables at open; refuses a database it does not know."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from autotune.errors import NoDatabaseError, UnfitDatabaseError
from autotune.store.backend import WRITE, Backend
from autotune.store.digests import refresh, stored_workloads
from autotune.store.models import Base
from autotune.store.patience import Talk

VERSION_TABLE = "autotune_alembic"
"""Ours alone, so that another application's migrations in the same database do not meet ours."""
HEAD = "0003"
"""The newest step. Steps are numbered with four digits, so their order is the order of their names."""
MIGRATIONS = Path(__file__).parent / "migrations"

_ALEMBIC = threading.Lock()
"""Alembic keeps its context in module globals, so two threads must not migrate at once."""


def prepare(backend: Backend, engine: Engine, talk: Talk, *, create: bool = True) -> None:
    """Bring the database to ``HEAD``: quick when it is there, one process at a time when not.

    Raises:
        NoDatabaseError: it holds none of our tables, and ``create`` is off.
        UnfitDatabaseError: it is of a newer version, or holds another application's tables under our names.
        StudyBusyError: it is of an older version, and a tuner is running a study in it.
    """
    version = _known_version(backend, engine)
    if version is None and not create:
        raise NoDatabaseError(f"{backend.place} holds no study; `autotune start` begins one, or name another database")
    if version == HEAD and backend.ready(engine):
        return
    with _ALEMBIC, backend.creation(engine):
        if not backend.ready(engine):
            backend.make_ready(engine)
        version = _known_version(backend, engine)
        if version is None:
            _upgrade(backend, engine)
        elif version != HEAD:
            with _no_tuner(backend, engine):
                kept = backend.keep_copy(version)
                talk(f"{backend.place} is brought from version {version} to {HEAD}; {kept}")
                _upgrade(backend, engine)


def _known_version(backend: Backend, engine: Engine) -> str | None:
    with engine.connect() as connection:
        version = _version(backend, connection)
    if version is not None and version > HEAD:
        raise UnfitDatabaseError(
            f"{backend.place} is of version {version}, and this autotune knows versions up to {HEAD}; "
            "upgrade autotune, or name another database"
        )
    return version


def _version(backend: Backend, connection: Connection) -> str | None:
    """The step the database is at; ``None`` if it has none of our tables yet."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - ours
        if version is not None:
            return str(version)
    taken = sorted(tables & set(Base.metadata.tables))
    if taken:
        raise UnfitDatabaseError(
            f"{backend.place} has tables of another application ({', '.join(taken)}); name another database"
        )
    return None


@contextmanager
def _no_tuner(backend: Backend, engine: Engine) -> Iterator[None]:
    """Keeps every study from being run: a tuner of an older version must not have its tables changed under it."""
    with engine.connect() as connection:
        studies = connection.execute(text("SELECT id, name FROM studies")).all()
    with ExitStack() as locks:
        for study, name in studies:
            locks.enter_context(backend.study_lock(engine, study, name))
        yield


def _upgrade(backend: Backend, engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with (
        engine.connect().execution_options(**{WRITE: True}) as connection,
        backend.schema_change(connection),
        connection.begin(),
    ):
        before = stored_workloads(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        refresh(connection, before)
