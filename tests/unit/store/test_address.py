"""What a user may write for a database, and what no message may repeat."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from autotune.errors import StoreError
from autotune.store import backend_of, open_store
from tests.support.imports import of

SECRET = "hunter2"
NAMES = ("studies.db", "with space.db", "100%.db", "ünï.db")


@pytest.mark.parametrize("address", [":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", Path(":memory:")])
def test_memory(address: str | Path) -> None:
    assert backend_of(address, 1.0).place == "database :memory:"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *(("{0}", name) for name in (*NAMES, "a?b#c.db")),
        *(("sqlite:///{0}", name) for name in NAMES),
        ("sqlite+pysqlite:///{0}", "studies.db"),
    ],
)
def test_a_file_is_made_where_it_was_named(tmp_path: Path, given: str, name: str) -> None:
    path = tmp_path / "new" / "folder" / name
    open_store(given.format(path)).close()
    assert path.is_file()
    assert backend_of(given.format(path), 1.0).place == f"database {path}"


def test_a_relative_path_keeps_its_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("here.db")
    monkeypatch.chdir("/")
    assert store.studies() == ()
    store.close()
    assert (tmp_path / "here.db").is_file()


def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_store("~/mine.db").close()
    assert (tmp_path / "mine.db").is_file()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_server_is_named_without_its_user_and_password(scheme: str) -> None:
    place = backend_of(f"{scheme}://somebody:{SECRET}@db.example:5433/tuning?sslpassword={SECRET}", 1.0).place
    assert place == "PostgreSQL database tuning on db.example:5433"


@pytest.mark.parametrize(("address", "sentence"), of("an_address_that_cannot_be_used_is_refused_without_its_password"))
def test_an_address_that_cannot_be_used_is_refused_without_its_password(address: str, sentence: str) -> None:
    with pytest.raises(StoreError, match=sentence) as caught:
        open_store(address)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg2", "pg8000"])
def test_another_driver_of_postgresql_is_refused_by_its_name(driver: str) -> None:
    with pytest.raises(StoreError, match=rf"by psycopg, not by {driver}; write postgresql://") as caught:
        backend_of(f"postgresql+{driver}://user:{SECRET}@host/studies", 1.0)
    assert SECRET not in str(caught.value)
