"""Creates and migrates the tables at open; refuses a database it does not know."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, inspect, text

from autotune.errors import StoreError
from autotune.store.backend import WRITE, Backend
from autotune.store.models import Base

__all__ = ["HEAD", "MIGRATIONS", "VERSION_TABLE", "prepare"]

VERSION_TABLE = "autotune_alembic"
"""Ours alone, so that another application's migrations in the same database do not meet ours."""
HEAD = "0001"
"""The newest step. Steps are numbered with four digits, so their order is the order of their names."""
MIGRATIONS = Path(__file__).parent / "migrations"

_ALEMBIC = threading.Lock()
"""Alembic keeps its context in module globals, so two threads must not migrate at once."""


def prepare(backend: Backend, engine: Engine) -> None:
    """Bring the database to ``HEAD``: quick when it is there, one process at a time when not.

    Raises:
        StoreError: it is of a newer version, or holds another application's tables under our names.
    """
    if _current(backend, engine) and backend.ready(engine):
        return
    with _ALEMBIC, backend.creation(engine):
        if not backend.ready(engine):
            backend.make_ready(engine)
        if not _current(backend, engine):
            _upgrade(backend, engine)


def _current(backend: Backend, engine: Engine) -> bool:
    with engine.connect() as connection:
        version = _version(backend, connection)
    if version is not None and version > HEAD:
        raise StoreError(
            f"{backend.place} is of version {version}, and this autotune knows versions up to {HEAD}; "
            "upgrade autotune, or name another database"
        )
    return version == HEAD


def _version(backend: Backend, connection: Connection) -> str | None:
    """The step the database is at; ``None`` if it has none of our tables yet."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - ours
        if version is not None:
            return str(version)
    taken = sorted(tables & set(Base.metadata.tables))
    if taken:
        raise StoreError(
            f"{backend.place} has tables of another application ({', '.join(taken)}); name another database"
        )
    return None


def _upgrade(backend: Backend, engine: Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with (
        engine.connect().execution_options(**{WRITE: True}) as connection,
        backend.schema_change(connection),
        connection.begin(),
    ):
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
