"""Databases of earlier versions: nothing in them is lost, and what they were is kept beside them."""

from __future__ import annotations

import hashlib
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from autotune import wiring
from autotune.domain import Outcome, TrialState
from autotune.errors import StudyBusyError
from autotune.specification.build import fingerprint_of
from autotune.store import open_store, schema
from autotune.store.locks import FileStudyLock
from autotune.store.models import Base
from tests.contracts.store_processes import PATIENCE_S, received, remaining, running
from tests.fixtures.schemas import OLD, assert_contains, everything, restore, spec_of, told_today
from tests.support import factories as make
from tests.support.migrated import real_migrations

ROOT = Path(__file__).parents[3]
VERSION = f"SELECT version_num FROM {schema.VERSION_TABLE}"  # noqa: S608 - ours


@pytest.fixture(autouse=True)
def _migrated() -> Iterator[None]:
    with real_migrations():
        yield


@pytest.fixture(params=OLD)
def version(request: pytest.FixtureRequest) -> str:
    given: str = request.param
    return given


@pytest.fixture
def old(version: str, tmp_path: Path) -> Path:
    path = tmp_path / "autotune.sqlite"
    restore(version, path)
    return path


def dumped(path: Path) -> str:
    """All of a database as text; equal text is an equal database."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return "\n".join(connection.iterdump())


def copies(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.glob("*.bak"))


def test_there_is_a_database_of_every_earlier_version() -> None:
    assert [*OLD, schema.HEAD] == [f"{n:04}" for n in range(1, len(OLD) + 2)]


def test_every_value_reads_back_equal(old: Path, version: str) -> None:
    store = open_store(old)
    assert_contains(everything(store), told_today(version))
    store.close()
    store = open_store(old)
    assert_contains(everything(store), told_today(version))
    store.close()


def test_the_tables_are_those_of_a_new_database(old: Path) -> None:
    open_store(old).close()
    engine = create_engine(f"sqlite:///{old}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_digests_are_those_made_today_so_that_the_study_goes_on(old: Path, version: str) -> None:
    """A study that is taken for another one, or for another machine's, could not be continued."""
    store = open_store(old)
    spec = spec_of(version)
    study, existed = wiring.find_or_create(store, spec, make.NOW, fork=False)
    assert existed
    assert study.beforehand is None, "a search that began without goes on without"
    today = fingerprint_of(spec, make.fingerprint().hardware)
    wiring.check_machine(store, study, today)
    recommendation = store.recommendation(study.id)
    assert recommendation is not None
    assert recommendation.fingerprint == today.digest
    store.finish_trial(study.id, 2, TrialState.COMPLETE, Outcome(), 1.0, 2.0, None)
    assert store.add_trial(study.id, make.draft(), 1.0).number == 4
    other = store.fingerprint(2)
    assert other == make.fingerprint(), "a fingerprint of something else was rewritten"
    store.close()
    with closing(sqlite3.connect(old)) as connection:
        digests = connection.execute("SELECT digest FROM studies ORDER BY id").fetchall()
        prints = connection.execute("SELECT digest FROM fingerprints WHERE study_id = 1 ORDER BY id").fetchall()
    assert digests[0] == (spec.digest,)
    assert prints == [(make.fingerprint().digest,), (today.digest,)]


def test_what_it_was_is_kept_beside_it_and_said(old: Path, version: str) -> None:
    before, said = dumped(old), []
    old.chmod(0o640)
    open_store(old, talk=said.append).close()
    copy = old.with_name(f"autotune.sqlite.r{version}.bak")
    assert dumped(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o640
    [sentence] = said
    for part in (str(old), version, schema.HEAD, str(copy)):
        assert part in sentence
    open_store(old, talk=said.append).close()
    assert len(said) == 1
    assert copies(old) == [copy.name]
    assert not list(old.parent.glob("*copying*"))


def test_a_copy_is_never_overwritten(old: Path, version: str) -> None:
    taken = old.with_name(f"autotune.sqlite.r{version}.bak")
    taken.write_text("something of the user's own")
    before = dumped(old)
    open_store(old).close()
    assert taken.read_text() == "something of the user's own"
    assert dumped(old.with_name(f"autotune.sqlite.r{version}.2.bak")) == before


def test_a_migration_that_breaks_off_leaves_the_old_database_whole(
    old: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, whole = dumped(old), command.upgrade

    def break_off(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "upgrade", break_off)
    with pytest.raises(KeyboardInterrupt):
        open_store(old)
    assert dumped(old) == before
    monkeypatch.undo()
    store = open_store(old)
    assert_contains(everything(store), told_today(version))
    store.close()


KILLED = """
import os, signal, sys
from alembic import command
from autotune.store import open_store
whole = command.upgrade
def killed(*arguments):
    whole(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
command.upgrade = killed
open_store(sys.argv[1])
"""


def run(script: str, path: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )


def test_a_migration_that_is_killed_leaves_the_old_database_whole(old: Path, version: str) -> None:
    before = dumped(old)
    assert run(KILLED, old).returncode == -9
    assert dumped(old) == before
    open_store(old).close()
    assert copies(old) == [f"autotune.sqlite.r{version}.2.bak", f"autotune.sqlite.r{version}.bak"]


def open_and_read(address: str, gate: Any, _: None) -> None:
    """Wait at the gate, then open an old database and tell what is in it, and what was said."""
    gate.send("ready")
    gate.recv()
    said: list[str] = []
    store = open_store(address, talk=said.append)
    gate.send((len(store.trials(1)), said))
    store.close()


def test_of_processes_that_open_it_at_once_one_migrates_and_the_others_wait(old: Path) -> None:
    with (
        running(open_and_read, str(old), None) as (_, one),
        running(open_and_read, str(old), None) as (_, two),
        running(open_and_read, str(old), None) as (_, three),
    ):
        gates = (one, two, three)
        assert [received(gate) for gate in gates] == ["ready"] * 3
        for gate in gates:
            gate.send("go")
        answers = [received(gate) for gate in gates]
    assert [trials for trials, _ in answers] == [4, 4, 4]
    assert sorted(len(said) for _, said in answers) == [0, 0, 1]
    assert len(copies(old)) == 1


def hold_file_lock(address: str, gate: Any, study: int) -> None:
    """What a tuner of any version holds while it runs."""
    with FileStudyLock(Path(f"{address}.study-{study}"), "first"):
        gate.send("held")
        gate.recv()


def test_a_database_a_tuner_is_working_in_is_not_migrated(old: Path, version: str) -> None:
    """It would go on with the code of its own version."""
    before = dumped(old)
    with running(hold_file_lock, str(old), 1) as (process, gate):
        assert received(gate) == "held"
        with pytest.raises(StudyBusyError, match=f"'first' is being run by process {process.pid}"):
            open_store(old)
        assert remaining(gate) == []
    assert dumped(old) == before
    assert copies(old) == []
    open_store(old).close()


REFUSED = """
import sys
from autotune.errors import StoreError
from autotune.store import open_store
try:
    open_store(sys.argv[1])
except StoreError as error:
    print(error)
"""


def test_without_room_for_the_copy_nothing_is_changed(old: Path, version: str) -> None:
    """The room is a limit on the size of files: what SQLite meets is what a full disk does to it."""
    before = hashlib.sha256(old.read_bytes()).digest()
    half = old.stat().st_size // 2

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (half, half))

    done = run(REFUSED, old, preexec_fn=limit)
    assert done.returncode == 0, done.stderr
    [sentence] = done.stdout.splitlines()
    assert str(old) in sentence
    assert "disk" in sentence
    assert hashlib.sha256(old.read_bytes()).digest() == before
    assert copies(old) == []
    assert not list(old.parent.glob("*copying*"))
    store = open_store(old)
    assert_contains(everything(store), told_today(version))
    store.close()
