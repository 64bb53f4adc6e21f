"""New SQLite databases in a test's process: the tables the migrations made once, since to run them takes most of an
opening. Whatever is old, or on a server, is migrated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from autotune.store import schema
from autotune.store.backend import WRITE, Backend

MIGRATE = schema._upgrade
_made: list[str] = []
"""Statements that make what the migrations left in the first new database of this process."""


def install() -> None:
    """From now on in this process."""
    schema._upgrade = _upgrade


@contextmanager
def real_migrations() -> Iterator[None]:
    """For tests of the migrations themselves."""
    before, schema._upgrade = schema._upgrade, MIGRATE
    try:
        yield
    finally:
        schema._upgrade = before


def _upgrade(backend: Backend, engine: Engine) -> None:
    if backend.remote or not _is_new(engine):
        MIGRATE(backend, engine)
    elif not _made:
        MIGRATE(backend, engine)
        _made.extend(_statements(engine))
    else:
        with (
            engine.connect().execution_options(**{WRITE: True}) as connection,
            backend.schema_change(connection),
            connection.begin(),
        ):
            for statement in _made:
                connection.exec_driver_sql(statement)


def _is_new(engine: Engine) -> bool:
    with engine.connect() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar() == 0


def _statements(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
        tables = [name for name, kind, _ in found if kind == "table" and name != schema.VERSION_TABLE]
        rows = {name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar() for name in tables}  # noqa: S608
        assert not any(rows.values()), "rows that a migration makes would be missing"
    version = f"INSERT INTO {schema.VERSION_TABLE} (version_num) VALUES ('{schema.HEAD}')"  # noqa: S608
    return [*(sql for _, _, sql in found), version]
