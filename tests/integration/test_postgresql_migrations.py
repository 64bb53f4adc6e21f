"""PostgreSQL databases of earlier versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine

from autotune.errors import StudyBusyError
from autotune.store import open_store, schema
from autotune.store.models import Base
from tests.contracts.store_processes import received, running
from tests.fixtures.schemas import OLD, assert_contains, everything, restore_postgresql, spec_of, told_today
from tests.support.postgresql import Server

pytestmark = pytest.mark.slow


@pytest.fixture(params=OLD)
def version(request: pytest.FixtureRequest) -> str:
    given: str = request.param
    return given


@pytest.fixture
def old(version: str, address: str) -> str:
    restore_postgresql(version, address)
    return address


@contextmanager
def engine_of(address: str) -> Iterator[Engine]:
    engine = create_engine(address.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


def dumped(postgresql: Server, address: str) -> str:
    return postgresql.dump(address.rpartition("/")[2])


def test_every_value_reads_back_equal(old: str, version: str) -> None:
    said: list[str] = []
    for _ in range(2):
        store = open_store(old, talk=said.append)
        assert_contains(everything(store), told_today(version))
        assert store.study("first").spec == spec_of(version)
        assert store.study("first").beforehand is None
        store.close()
    [sentence] = said
    for part in ("PostgreSQL database tuning_", version, schema.HEAD, "no copy", "pg_dump"):
        assert part in sentence
    assert "ssword" not in sentence


def test_the_tables_are_those_of_a_new_database(old: str) -> None:
    open_store(old).close()
    with engine_of(old) as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []


def test_a_migration_that_breaks_off_leaves_the_old_database_whole(
    old: str, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, whole = dumped(postgresql, old), command.upgrade

    def break_off(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "upgrade", break_off)
    with pytest.raises(KeyboardInterrupt):
        open_store(old)
    assert dumped(postgresql, old) == before


def hold_as_an_old_tuner(address: str, gate: Any, study: int) -> None:
    """The lock every version takes."""
    with engine_of(address) as engine, engine.connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({0x41544E45}, {study})")
        gate.send("held")
        gate.recv()


def test_a_database_a_tuner_is_working_in_is_not_migrated(old: str, postgresql: Server) -> None:
    before = dumped(postgresql, old)
    with running(hold_as_an_old_tuner, old, 1) as (_, gate):
        assert received(gate) == "held"
        with pytest.raises(StudyBusyError, match="'first' is being run by another process"):
            open_store(old)
    assert dumped(postgresql, old) == before


def open_and_read(address: str, gate: Any, _: None) -> None:
    """Wait at the gate, then open an old database and tell what is in it, and what was said."""
    gate.send("ready")
    gate.recv()
    said: list[str] = []
    store = open_store(address, talk=said.append)
    gate.send((len(store.trials(1)), said))
    store.close()


def test_of_processes_that_open_it_at_once_one_migrates_and_the_other_waits(old: str) -> None:
    with running(open_and_read, old, None) as (_, one), running(open_and_read, old, None) as (_, two):
        for gate in (one, two):
            assert received(gate) == "ready"
        for gate in (one, two):
            gate.send("go")
        answers = [received(gate) for gate in (one, two)]
    assert [trials for trials, _ in answers] == [4, 4]
    assert sorted(len(said) for _, said in answers) == [0, 1]
