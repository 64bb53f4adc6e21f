"""A server that answers no commit at once: what was done must be done exactly once all the same.

The database is SQLite in memory, behind a connection that behaves as one to a server that is being restarted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from itertools import chain, cycle, repeat
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from autotune.errors import StoreError
from autotune.ports import Store
from autotune.store.repository import SqlStore
from autotune.store.sqlite import SqliteMemory
from autotune.store.transactions import OutageLimits
from tests.contracts.store_cases import begin
from tests.contracts.store_machine import StoreMachine, play
from tests.contracts.store_suite import StoreSuite
from tests.support import factories as make
from tests.support.fakes import FakeClock, FakeStop

AWAY = "the answer is lost"


class Unsteady(SqliteMemory):
    """Of every three commits one is made without an answer, one is not made, and one is answered."""

    remote = True
    place = "database somewhere"

    def __init__(self) -> None:
        super().__init__()
        self.fates: Iterator[str] = repeat("answered")
        self.commits = 0

    def engine(self) -> Engine:
        engine = super().engine()
        commit = engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            fate = next(self.fates)
            if fate != "not made":
                commit(connection)
                self.commits += 1
            if fate != "answered":
                raise sqlite3.OperationalError(AWAY)

        engine.dialect.do_commit = do_commit  # type: ignore[method-assign]
        return engine

    def lost(self, error: Exception) -> bool:
        return isinstance(error, DBAPIError) and AWAY in str(error.orig)


def opened(backend: Unsteady, talk: list[str], clock: FakeClock, stop: FakeStop | None = None) -> SqlStore:
    store = SqlStore(backend, OutageLimits(total_s=60.0), clock, talk.append, stop)
    backend.fates = cycle(["made", "not made", "answered"])
    return store


class OwnFates(threading.local):
    """Each thread has the three fates in order: threads that take turns would leave one of them no answer at all."""

    def __init__(self) -> None:
        self._fates = cycle(["made", "not made", "answered"])

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._fates)


class OwnClock(threading.local, FakeClock):
    """No thread's patience ends by what the others have waited."""


@pytest.fixture
def store() -> Iterator[Store]:
    backend = Unsteady()
    made = opened(backend, [], OwnClock())
    backend.fates = OwnFates()
    yield made
    made.close()


class TestUnsteadyStore(StoreSuite):
    """Nothing is done twice and nothing is left out, whatever the operation."""


class UnsteadyMachine(StoreMachine):
    def open_empty(self) -> Store:
        return opened(Unsteady(), [], FakeClock())


def test_random_histories() -> None:
    play(UnsteadyMachine, often=3, full=5)


def test_an_absence_is_told_once_and_its_end_too() -> None:
    backend, said, clock = Unsteady(), [], FakeClock()
    store = opened(backend, said, clock)
    study = begin(store)
    said.clear()
    backend.fates = chain(["not made"] * 5, repeat("answered"))
    began = clock.monotonic()
    store.add_event(study, make.event())
    assert len(said) == 2
    assert said[0].startswith("database somewhere is away (the answer is lost); trying again for up to 1 min")
    assert "is back after" in said[1]
    assert 0.5 < clock.monotonic() - began < 10
    assert len(store.events(study)) == 1


def test_patience_ends_and_is_not_asked_for_twice() -> None:
    """Whoever tidies up after the error does not wait a second time; when the server is back, all is as before."""
    backend, said, clock = Unsteady(), [], FakeClock()
    store = opened(backend, said, clock)
    study = begin(store)
    backend.fates = cycle(["not made"])
    began = clock.monotonic()
    with pytest.raises(StoreError, match=AWAY):
        store.add_event(study, make.event())
    waited = clock.monotonic() - began
    assert 60 <= waited < 70
    with pytest.raises(StoreError, match=AWAY):
        store.open_session(study, 1.0)
    assert clock.monotonic() - began - waited < 1
    backend.fates = cycle(["answered"])
    store.add_event(study, make.event())
    assert len(store.events(study)) == 1


def test_a_user_who_stops_does_not_wait() -> None:
    backend, clock, stop = Unsteady(), FakeClock(), FakeStop()
    store = opened(backend, [], clock, stop)
    study = begin(store)
    backend.fates, stop.level = cycle(["not made"]), 2
    began = clock.monotonic()
    with pytest.raises(StoreError, match=AWAY):
        store.add_event(study, make.event())
    assert clock.monotonic() - began < 1


def test_receipts_do_not_pile_up() -> None:
    backend = Unsteady()
    store = opened(backend, [], FakeClock())
    study = begin(store)
    for _ in range(5):
        store.add_event(study, make.event())
    count = "SELECT count(*) FROM receipts"
    engine = store._engine
    with engine.connect() as connection:
        assert connection.exec_driver_sql(count).scalar() == 1
    backend.fates = cycle(["answered"])
    dispose, left = engine.dispose, []

    def look(*_: Any) -> None:
        with engine.connect() as connection:
            left.append(connection.exec_driver_sql(count).scalar())
        dispose()

    engine.dispose = look  # type: ignore[method-assign]
    store.close()
    assert left == [0]
