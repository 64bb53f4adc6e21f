"""Creating, migrating and refusing: the database is ours, of a known version, and whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from autotune.errors import StoreError
from autotune.store import open_store, schema
from autotune.store.models import Base
from autotune.store.repository import SqlStore
from tests.contracts.store_cases import begin
from tests.support import factories as make
from tests.support.migrated import real_migrations


@pytest.fixture(autouse=True)
def _migrated() -> Iterator[None]:
    with real_migrations():
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


def sql(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def tables(path: Path) -> set[str]:
    return {name for (name,) in sql(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_migrations_make_the_tables_the_code_uses(path: Path) -> None:
    open_store(path).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()
    assert tables(path) == {*Base.metadata.tables, schema.VERSION_TABLE}


def test_the_steps_are_one_line_that_ends_at_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    steps = [s.revision for s in ScriptDirectory.from_config(config).walk_revisions()]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == schema.HEAD
    assert all(len(step) == 4 and step.isdigit() for step in steps)


def test_opening_again_migrates_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(open_store(path))
    monkeypatch.setattr(command, "upgrade", lambda *_: pytest.fail("migrated again"))
    assert len(open_store(path).trials(1)) == 1


def test_no_ini_file_is_needed_or_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    open_store(path).close()
    assert {p.name for p in path.parent.iterdir()} == {"studies.db", "studies.db.lock"}


@pytest.mark.parametrize("version", ["0004", "0917", "9f3ac1d2"])
def test_a_newer_database_is_refused_and_left_alone(path: Path, version: str) -> None:
    begin(open_store(path))
    sql(path, f"UPDATE {schema.VERSION_TABLE} SET version_num = '{version}'")  # noqa: S608 - the words are ours
    before = sql(path, "SELECT * FROM studies")
    with pytest.raises(StoreError) as caught:
        open_store(path)
    message = str(caught.value)
    for part in (str(path), version, schema.HEAD, "upgrade autotune"):
        assert part in message
    assert sql(path, "SELECT * FROM studies") == before
    assert sql(path, f"SELECT version_num FROM {schema.VERSION_TABLE}") == [(version,)]  # noqa: S608


@pytest.mark.parametrize("ours", ["studies", "trials", "events"])
def test_another_applications_tables_are_refused_and_left_alone(path: Path, ours: str) -> None:
    sql(path, f"CREATE TABLE {ours} (something TEXT)")
    with pytest.raises(StoreError, match=f"another application \\({ours}\\)"):
        open_store(path)
    assert tables(path) == {ours}


def test_another_applications_tables_beside_ours_are_no_matter(path: Path) -> None:
    for table in ("alembic_version", "invoices"):
        sql(path, f"CREATE TABLE {table} (version_num TEXT)")
    sql(path, "INSERT INTO alembic_version VALUES ('theirs')")
    begin(open_store(path))
    assert sql(path, "SELECT version_num FROM alembic_version") == [("theirs",)]
    assert len(open_store(path).trials(1)) == 1


def test_a_creation_that_breaks_off_leaves_nothing_half_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = command.upgrade

    def break_off(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "upgrade", break_off)
    with pytest.raises(KeyboardInterrupt):
        open_store(path)
    assert tables(path) == set()
    monkeypatch.undo()
    store = open_store(path)
    assert store.create_study(make.study_spec(), 1.0).id == 1
    store.close()


@pytest.mark.parametrize("memory", [True, False])
def test_foreign_keys_are_checked_on_the_creating_connection_too(path: Path, memory: bool) -> None:
    store = open_store(":memory:" if memory else path)
    assert isinstance(store, SqlStore)
    orphan = Base.metadata.tables["attempts"].insert().values(trial_id=99, number=1, started_at=0.0)
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        store.transactions.write(lambda session: session.execute(orphan))
    store.close()
