"""What can be wrong with a file, and what is said about it; and the settings durability rests on."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

from autotune.domain import StudyStatus
from autotune.errors import StoreError, StudyBusyError
from autotune.store import OutageLimits, open_store
from tests.contracts.store_cases import begin
from tests.contracts.store_processes import PATIENCE_S, hold_lock, received, running
from tests.support import factories as make
from tests.support.fakes import FakeStop

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


@pytest.fixture
def used(path: Path) -> Path:
    """A closed database with a study in it, and some bulk."""
    store = open_store(path)
    study = begin(store)
    for i in range(50):
        store.add_cycle(study, 0, 1, make.cycle(i + 1))
    store.close()
    return path


def refusal(path: Path) -> str:
    """The sentence with which opening, reading or writing ends."""

    opened = []

    def use() -> None:
        store = open_store(path, busy_timeout_s=0.2, patience=OutageLimits(total_s=0.0))
        opened.append(store)
        try:
            store.trials(1)
            store.set_status(1, StudyStatus.DONE)
        finally:
            store.close()

    with pytest.raises(StoreError) as caught:
        use()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert caught.value.exit_code == (6 if opened else 2), "2 is for what was refused before anything was done"
    return message


def test_the_settings_durability_rests_on(path: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def look(connection: sqlite3.Connection, *_: object) -> None:
        names = ("synchronous", "foreign_keys", "busy_timeout")
        seen.append(tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names))

    event.listen(Pool, "checkout", look)
    try:
        begin(open_store(path))
    finally:
        event.remove(Pool, "checkout", look)
    full, on, at_least_ms = 2, 1, 5000
    assert seen
    assert all(s == full and f == on and t >= at_least_ms for s, f, t in seen)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_writes_lock_before_they_read(path: Path) -> None:
    begun: list[str] = []

    def look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("BEGIN"):
            begun.append(statement)

    store = open_store(path)
    event.listen(Engine, "before_cursor_execute", look)
    try:
        store.create_study(make.study_spec(), 1.0)
        store.study(1)
    finally:
        event.remove(Engine, "before_cursor_execute", look)
        store.close()
    assert begun == ["BEGIN IMMEDIATE", "BEGIN"]


def test_reading_takes_as_many_queries_for_many_trials_as_for_one(path: Path) -> None:
    store = open_store(path)
    study = begin(store)
    queries: list[str] = []

    def look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        queries.append(statement)

    def count() -> int:
        queries.clear()
        event.listen(Engine, "before_cursor_execute", look)
        try:
            store.trials(study)
        finally:
            event.remove(Engine, "before_cursor_execute", look)
        return len(queries)

    one = count()
    for number in range(1, 12):
        store.add_trial(study, make.draft(), 1.0)
        store.start_attempt(study, number, 1.0)
        for index in range(3):
            store.add_cycle(study, number, 1, make.cycle(index))
    assert count() == one <= 10
    store.close()


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.touch()
    begin(open_store(path))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_a_path_through_a_file_is_refused(path: Path) -> None:
    path.touch()
    refusal(path / "below" / "studies.db")


@pytest.mark.parametrize(
    "content", [b"not a database at all " * 100, b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 8192]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    message = refusal(path)
    assert "not a database" in message or "damaged" in message
    assert path.read_bytes() == content


def test_a_damaged_file_is_refused(used: Path) -> None:
    content = bytearray(used.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    used.write_bytes(content)
    assert "damaged" in refusal(used)


def test_a_file_cut_short_is_refused(used: Path) -> None:
    os.truncate(used, used.stat().st_size // 2)
    assert "damaged" in refusal(used)


def test_a_damaged_value_is_refused(used: Path) -> None:
    with closing(_plain(used)) as connection:
        connection.execute('UPDATE trials SET protocol = \'{"warmup": "many"}\'')
    assert "warmup" in refusal(used)
    with closing(_plain(used)) as connection:
        connection.execute("UPDATE trials SET state = 'SLEEPING'")
    refusal(used)


def _plain(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_a_lock_kept_too_long_by_another_is_named(used: Path) -> None:
    with closing(_plain(used)) as other:
        other.execute("BEGIN IMMEDIATE")
        message = refusal(used)
        assert "another process has kept it locked for 0.2 s" in message
        other.execute("ROLLBACK")
    store = open_store(used)
    store.set_status(1, StudyStatus.DONE)
    assert store.study(1).status is StudyStatus.DONE
    store.close()


@pytest.mark.parametrize("kind", ["used", "path"])
def test_a_file_that_another_holds_is_waited_for_and_the_wait_is_told(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """It lets go only when the wait was told, so a tuner that gives up at the first refusal fails here.

    A database whose log is not set up yet is written to when it is opened.
    """
    held, said = request.getfixturevalue(kind), []
    with closing(_plain(held)) as other:
        if kind == "path":
            other.execute("PRAGMA user_version = 1")
        other.execute("BEGIN IMMEDIATE" if kind == "used" else "BEGIN EXCLUSIVE")

        def talk(sentence: str) -> None:
            said.append(sentence)
            if other.in_transaction:
                other.execute("ROLLBACK")

        store = open_store(held, busy_timeout_s=0.05, talk=talk)
        begin(store, name="second")
        assert store.study("second").id
        store.close()
    assert ["in use" in said[0], "for up to 5 min" in said[0], "is free after" in said[1]] == [True] * 3
    assert len(said) == 2


def test_opening_waits_to_a_bound(used: Path) -> None:
    with closing(_plain(used)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE studies SET name = name")
        other.execute("COMMIT")
        said: list[str] = []
        with pytest.raises(StoreError, match="kept it locked"):
            open_store(used, busy_timeout_s=0.01, patience=OutageLimits(total_s=0.2), talk=said.append)
        assert len(said) == 1


def test_a_user_who_stops_does_not_wait_for_a_file_that_another_holds(used: Path) -> None:
    with closing(_plain(used)) as other:
        other.execute("BEGIN IMMEDIATE")
        store = open_store(used, busy_timeout_s=0.05, stop=FakeStop(2), talk=lambda _: None)
        with pytest.raises(StoreError, match="kept it locked"):
            store.set_status(1, StudyStatus.DONE)
        store.close()


def test_a_reader_does_not_wait_for_a_writer(used: Path) -> None:
    with closing(_plain(used)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM cycles")
        store = open_store(used, busy_timeout_s=0.0)
        assert store.trial(1, 0).cycles[0] == make.cycle(0)
        store.close()
        other.execute("ROLLBACK")


@pytest.fixture
def almost_full() -> Iterator[None]:
    """Databases that may not grow: what SQLite says is what it says of a full disk."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # raised by SQLite to the present size

    event.listen(Pool, "connect", limit)
    yield
    event.remove(Pool, "connect", limit)


def test_a_full_disk_is_named_and_loses_nothing(used: Path, almost_full: None) -> None:
    store = open_store(used)
    stored = [c.index for c in store.trial(1, 0).cycles]

    def fill() -> None:
        for index in range(100, 1000):
            store.add_cycle(1, 0, 1, make.cycle(index))
            stored.append(index)

    with pytest.raises(StoreError, match="the disk is full") as caught:
        fill()
    assert str(used) in str(caught.value)
    assert [c.index for c in store.trial(1, 0).cycles] == stored
    store.close()


def test_the_holder_of_a_study_is_named_while_it_lives(used: Path) -> None:
    store = open_store(used)
    with running(hold_lock, str(used), 1) as (process, gate):
        assert received(gate) == "held"
        named = f"process {process.pid} on {os.uname().nodename} since 20[0-9: -]* UTC"
        with pytest.raises(StudyBusyError, match=named), store.lock(1):
            pytest.fail("two tuners hold one study")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE_S)
        with store.lock(1), pytest.raises(StudyBusyError, match=f"process {os.getpid()}\\b"), store.lock(1):
            pytest.fail("two tuners hold one study")
    store.close()


AS_NOBODY = """
import os, sys
from autotune.documents.codec import load
from autotune.errors import StoreError
from autotune.store import OutageLimits, open_store
open_store(":memory:").close(), load(str, '""')  # loads what a user who may read nothing could not
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    store = open_store(sys.argv[1])
    eval(sys.argv[2])
except StoreError as error:
    print(error)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder others may look into; ``tmp_path`` is the user's alone."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o755)


def as_nobody(path: Path, then: str) -> str:
    """What a user who may write nothing is told when the store is opened and used."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path), then],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("exists", [True, False])
def test_what_may_not_be_written_is_refused_in_one_sentence(folder: Path, exists: bool) -> None:
    path = folder / "studies.db"
    if exists:
        store = open_store(path)
        begin(store)
        store.close()
        path.chmod(0o444)
    folder.chmod(0o555)
    said = as_nobody(path, "store.open_session(1, 1.0)")
    assert len(said.splitlines()) == 1
    assert str(path) in said
    assert "permissions" in said or "may be written" in said
    assert path.exists() == exists


def test_a_file_whose_folder_became_read_only_says_so(folder: Path) -> None:
    """The lock files cannot be made either; the sentence names what was asked for."""
    path = folder / "studies.db"
    begin(open_store(path))
    folder.chmod(0o555)
    assert str(path) in as_nobody(path, "store.lock(1).__enter__()")
