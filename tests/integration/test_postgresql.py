"""The store's whole contract on a real PostgreSQL, and what only a server can do to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from autotune.errors import StoreError, StudyBusyError
from autotune.ports import Store
from autotune.store import open_store
from tests.contracts.store_cases import begin
from tests.contracts.store_processes import PATIENCE_S, SharedStoreSuite, hold_lock, received, running
from tests.contracts.store_suite import StoreSuite
from tests.support import factories as make
from tests.support.postgresql import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = open_store(address)
    yield opened
    opened.close()


class TestStore(StoreSuite):
    pass


class TestSharedStore(SharedStoreSuite):
    pass


def lock_sessions(postgresql: Server) -> list[tuple[int, str]]:
    """(server process, its name) of everyone who holds an advisory lock."""
    return postgresql.sql(
        "SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'"
    )  # type: ignore[return-value]


def test_the_holder_of_a_study_is_named(address: str, store: Store) -> None:
    study = begin(store)
    with running(hold_lock, address, study) as (process, gate):
        assert received(gate) == "held"
        host = os.uname().nodename
        with pytest.raises(StudyBusyError, match=f"process {process.pid} on {host} since 20.* UTC"), store.lock(study):
            pytest.fail("two tuners hold one study")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE_S)


def test_a_lock_the_server_forgot_is_taken_again_before_anything_is_written(
    address: str, store: Store, postgresql: Server
) -> None:
    """The session that holds it can break off alone; from then on anyone could take the study."""
    study, second = begin(store), open_store(address)
    with store.lock(study):
        for pid, _ in lock_sessions(postgresql):
            postgresql.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
        assert lock_sessions(postgresql) == []
        store.add_cycle(study, 0, 1, make.cycle(1))
        with pytest.raises(StudyBusyError, match=f"process {os.getpid()}"), second.lock(study):
            pytest.fail("two tuners hold one study")
    with second.lock(study):
        pass
    assert lock_sessions(postgresql) == []
    second.close()


def test_a_tuner_that_lost_its_study_to_another_writes_nothing_more(
    address: str, store: Store, postgresql: Server
) -> None:
    study = begin(store)
    other = open_store(address)
    before = store.trial(study, 0)
    with store.lock(study):
        for pid, _ in lock_sessions(postgresql):
            postgresql.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
        with other.lock(study):
            for write in (lambda: store.add_cycle(study, 0, 1, make.cycle(1)), lambda: store.open_session(study, 1.0)):
                with pytest.raises(StudyBusyError, match="first"):
                    write()
            other.add_event(study, make.event())
        assert store.trial(study, 0) == before
    other.close()


def test_a_wrong_password_is_one_sentence_at_once(postgresql: Server) -> None:
    address = postgresql.address("postgres").replace("ssword", "ssw0rd")
    with pytest.raises(StoreError) as caught:
        open_store(address)
    message = str(caught.value)
    assert "password authentication failed" in message
    assert "PGPASSWORD" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("database", "sentence"),
    [("nowhere", 'database "nowhere" does not exist'), ("postgres", "needs the right to create")],
)
def test_a_database_that_cannot_be_used_is_one_sentence(postgresql: Server, database: str, sentence: str) -> None:
    if not postgresql.sql("SELECT 1 FROM pg_roles WHERE rolname = 'guest'"):
        postgresql.sql("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        postgresql.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    address = f"postgresql://guest:guest@127.0.0.1:{postgresql.port}/{database}"
    with pytest.raises(StoreError, match=sentence) as caught:
        open_store(address)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 6


def test_a_database_that_can_only_be_read_is_one_sentence(postgresql: Server, address: str) -> None:
    store = open_store(address)
    begin(store)
    store.close()
    postgresql.sql(f"ALTER DATABASE {address.rpartition('/')[2]} SET default_transaction_read_only = on")
    store = open_store(address)
    assert len(store.trials(1)) == 1
    with pytest.raises(StoreError, match="can only be read"):
        store.open_session(1, 1.0)
    store.close()


def test_connections_are_tried_before_they_are_used(address: str, postgresql: Server) -> None:
    """A server restarted between two writes is not even noticed."""
    said: list[str] = []
    store = open_store(address, talk=said.append)
    study = begin(store)
    postgresql.sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    store.add_cycle(study, 0, 1, make.cycle(1))
    assert len(store.trial(study, 0).cycles) == 2
    assert said == []
    store.close()
