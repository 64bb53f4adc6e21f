"""A server that goes away between and inside transactions: whatever was acknowledged is there, and there once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from autotune.domain import TrialState
from autotune.errors import StoreError
from autotune.store import OutageLimits, open_store
from autotune.store.repository import SqlStore
from tests.contracts.store_cases import STUDY_CHANGES, TRIAL_CHANGES, begin
from tests.support import factories as make
from tests.support.postgresql import Server, server
from tests.support.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow

CHANGES = STUDY_CHANGES | {
    name: change for name, change in TRIAL_CHANGES.items() if name not in ("start_attempt", "add_cycle again")
}


@pytest.fixture
def own_server() -> Iterator[Server]:
    with server() as made:
        yield made


def losing(store: Any, fate: str) -> None:
    """Let the connection break at the next commit: after the server has made it, or before it has heard of it."""
    dialect = store._engine.dialect
    whole = dialect.do_commit

    def do_commit(connection: Any) -> None:
        dialect.do_commit = whole
        if fate == "made":
            whole(connection)
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    dialect.do_commit = do_commit


def everything(store: SqlStore) -> list[Any]:
    return [
        store.study(1),
        store.trials(1),
        store.notes(1, 0),
        store.events(1),
        store.spent(1),
        store.recommendation(1),
    ]


@pytest.mark.parametrize("fate", ["made", "not made"])
def test_a_commit_whose_answer_is_lost_changes_what_it_would_have_once(postgresql: Server, fate: str) -> None:
    """Compared with what the same change does where nothing is ever lost."""
    for name, change in CHANGES.items():
        said: list[str] = []
        address, results = postgresql.new_database(), []
        for where in (":memory:", address):
            store = open_store(where, talk=said.append)
            assert isinstance(store, SqlStore)
            begin(store)
            if where == address:
                losing(store, fate)
            result = change(store, 0 if name in TRIAL_CHANGES else 1)
            results.append((None if name == "open_session" else result, everything(store)))
            store.close()
        assert results[0] == results[1], name
        assert said == [], "one broken connection is no absence"
        postgresql.drop(address)


def test_every_acknowledged_write_survives_restart_after_restart(own_server: Server) -> None:
    """The server is stopped in the midst of whatever it is doing, five times."""
    store = open_store(own_server.new_database(), talk=lambda _: None)
    study = store.create_study(make.study_spec(), 1.0).id
    acknowledged: list[tuple[int, int]] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def write() -> None:
        try:
            while not over.is_set():
                number = store.add_trial(study, make.draft(), 1.0).number
                store.start_attempt(study, number, 2.0)
                store.add_cycle(study, number, 1, make.cycle(0))
                event = store.add_event(study, make.event(trial=number)).id
                acknowledged.append((number, event))
        except BaseException as error:
            failed.append(error)

    def wrote_two_more() -> None:
        enough = len(acknowledged) + 2
        wait_for(lambda: len(acknowledged) >= enough or failed, "two more writes")

    with store.lock(study):
        writer = threading.Thread(target=write)
        writer.start()
        for pause in (0.31, 0.17, 0.43, 0.05, 0.29):
            wrote_two_more()
            time.sleep(pause)
            own_server.stop("immediate")
            own_server.start()
        wrote_two_more()
        over.set()
        writer.join(PATIENCE_S)
    assert failed == []
    assert len(acknowledged) >= 12
    assert acknowledged == [(n, n + 1) for n in range(len(acknowledged))]
    trials = store.trials(study)
    assert [t.number for t in trials] == list(range(len(acknowledged)))
    assert all((t.state, t.attempt, t.cycles) == (TrialState.RUNNING, 1, (make.cycle(0),)) for t in trials)
    assert [e.trial for e in store.events(study, limit=10**6)] == list(range(len(acknowledged)))
    store.close()


def test_an_absence_that_lasts_too_long_is_an_error_after_which_all_goes_on(own_server: Server) -> None:
    said: list[str] = []
    patience = OutageLimits(total_s=1.0, longest_s=0.2)
    store = open_store(own_server.new_database(), talk=said.append, patience=patience)
    study = begin(store)
    began = time.monotonic()

    def while_away() -> None:
        with store.lock(study):
            own_server.stop("immediate")
            store.add_event(study, make.event())

    with pytest.raises(StoreError, match=r"PostgreSQL database tuning_1 on 127\.0\.0\.1:.*refused") as caught:
        while_away()
    assert caught.value.exit_code == 6
    assert time.monotonic() - began < PATIENCE_S
    assert [" is away (" in line for line in said] == [True]
    own_server.start()
    with store.lock(study):
        assert store.add_event(study, make.event()).id == 1
    store.close()


def test_a_server_that_is_away_from_the_start_is_told_at_once(own_server: Server) -> None:
    address, said = own_server.new_database(), []
    own_server.stop()
    with pytest.raises(StoreError, match="refused"):
        open_store(address, talk=said.append)
    assert said == [], "it was waited for"
    own_server.start()
