"""Creating and refusing: the database is ours, of this version, and whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData

from autotune.errors import StoreError
from autotune.store import models, open_store
from autotune.store.models import Base, SchemaRow
from autotune.store.repository import SqlStore
from tests.contracts.store_cases import begin
from tests.contracts.store_processes import received, running
from tests.support import factories as make

VERSION = f"SELECT version FROM {SchemaRow.__tablename__}"  # noqa: S608 - ours


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


def sql(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def tables(path: Path) -> set[str]:
    return {name for (name,) in sql(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_tables_are_made_once_with_their_version(path: Path) -> None:
    open_store(path).close()
    assert tables(path) == set(Base.metadata.tables)
    assert sql(path, VERSION) == [(models.VERSION,)]


def test_opening_again_makes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(open_store(path))
    monkeypatch.setattr(MetaData, "create_all", lambda *_: pytest.fail("made again"))
    assert len(open_store(path).trials(1)) == 1


def open_and_count(address: str, gate: Any, _: None) -> None:
    """Wait at the gate, then open a new database and tell how many studies it has."""
    gate.send("ready")
    gate.recv()
    store = open_store(address)
    gate.send(len(store.studies()))
    store.close()


def test_of_processes_that_open_it_at_once_one_makes_the_tables_and_the_others_wait(path: Path) -> None:
    with running(open_and_count, str(path), None) as (_, one), running(open_and_count, str(path), None) as (_, two):
        for gate in (one, two):
            assert received(gate) == "ready"
        for gate in (one, two):
            gate.send("go")
        assert [received(gate) for gate in (one, two)] == [0, 0]
    assert sql(path, VERSION) == [(models.VERSION,)]


@pytest.mark.parametrize("version", [0, models.VERSION + 1, 917])
def test_a_database_of_another_version_is_refused_and_left_alone(path: Path, version: int) -> None:
    begin(open_store(path))
    sql(path, f"UPDATE {SchemaRow.__tablename__} SET version = {version}")  # noqa: S608 - the words are ours
    before = sql(path, "SELECT * FROM studies")
    with pytest.raises(StoreError) as caught:
        open_store(path)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    way_out = "upgrade autotune" if version else "use the autotune that made it"
    for part in (str(path), f"of version {version}", f"version {models.VERSION} alone", way_out):
        assert part in message
    assert sql(path, "SELECT * FROM studies") == before
    assert sql(path, VERSION) == [(version,)]


@pytest.mark.parametrize("ours", ["studies", "trials", "events", SchemaRow.__tablename__])
def test_another_applications_tables_are_refused_and_left_alone(path: Path, ours: str) -> None:
    sql(path, f"CREATE TABLE {ours} (version TEXT)")
    with pytest.raises(
        StoreError,
        match=rf"has tables \({ours}\) of another application or of an autotune before its first release; it is left",
    ):
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
    whole = MetaData.create_all

    def break_off(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(MetaData, "create_all", break_off)
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
