"""The command line on a PostgreSQL database: how it is named, and that its password is never shown."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.store import open_store
from tests.contracts.store_cases import begin, finish
from tests.e2e.commands import COMMAND, environment_for
from tests.support.postgresql import OWNER, Server, server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SENTINEL = "s3ntin3l@pass/word"


@pytest.fixture(scope="module")
def secret_server() -> Iterator[Server]:
    with server(SENTINEL) as made:
        yield made


@pytest.fixture
def address(secret_server: Server) -> str:
    """A database with a study in it."""
    made = secret_server.new_database()
    store = open_store(made)
    finish(store, begin(store))
    store.close()
    return made


def without_password(address: str) -> str:
    return f"postgresql://{OWNER}@{address.rpartition('@')[2]}"


def autotune(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *arguments],
        env={**environment_for(home), **environment},
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def pgpass(folder: Path) -> None:
    file = folder / ".pgpass"
    file.write_text(f"*:*:*:*:{SENTINEL}\n")
    file.chmod(0o600)


@pytest.mark.parametrize("way", ["PGPASSWORD", "~/.pgpass", "AUTOTUNE_DATABASE"])
def test_a_password_can_be_given_in_three_ways(tmp_path: Path, address: str, way: str) -> None:
    given = {"PGPASSWORD": {"PGPASSWORD": SENTINEL}, "~/.pgpass": {"HOME": str(tmp_path)}}
    pgpass(tmp_path)
    bare = ("--database", without_password(address))
    environment = given.get(way, {"AUTOTUNE_DATABASE": address})
    environment.setdefault("HOME", str(tmp_path / "nowhere"))
    done = autotune("trials", "--json", *(bare if way in given else ()), home=tmp_path / "home", **environment)
    assert done.returncode == 0, done.stderr
    assert [t["number"] for t in json.loads(done.stdout)["trials"]] == [0]


@pytest.mark.parametrize("wrong", ["nothing", "port", "database", "password", "unreadable"])
def test_the_password_is_in_nothing_that_is_printed_or_written(tmp_path: Path, address: str, wrong: str) -> None:
    home = tmp_path / "home"
    port = address.rpartition(":")[2].partition("/")[0]
    bad = {
        "nothing": address,
        "port": address.replace(f":{port}/", ":1/"),
        "database": f"{address}_of_nobody",
        "password": address.replace("pass", "pazz"),
        "unreadable": address.replace(f":{port}/", f":{SENTINEL}/"),
    }[wrong]
    printed = ""
    commands = [("status",), ("doctor",), ("doctor", "--json")]
    commands += [("trials",), ("show", "0"), ("best",)] if wrong == "nothing" else []
    for command in commands:
        done = autotune(*command, home=home, AUTOTUNE_DATABASE=bad, AUTOTUNE_DEBUG="1")
        assert (done.returncode == (2 if wrong == "unreadable" else 6)) == (
            command == ("status",) and wrong != "nothing"
        ), done.stderr
        printed += done.stdout + done.stderr
    assert "Traceback" in printed or wrong == "nothing"
    pieces = ["s3ntin3l", "pass/word", "pass%2Fword", "pazz"]
    assert [piece for piece in pieces if piece in printed] == []
    for path in (p for p in home.rglob("*") if p.is_file()):
        assert b"s3ntin3l" not in path.read_bytes(), path


def test_what_is_shown_of_a_database_that_fails_is_enough_to_find_it(tmp_path: Path, address: str) -> None:
    gone = address.replace("tuning_", "tuning_x")
    done = autotune("status", home=tmp_path / "home", AUTOTUNE_DATABASE=gone)
    assert done.returncode == 6
    [line] = done.stderr.splitlines()
    for part in ("127.0.0.1", address.rpartition(":")[2].partition("/")[0], "does not exist"):
        assert part in line


def test_the_servers_environment_is_that_of_the_tests(secret_server: Server) -> None:
    """The sentinel is really the password: without it nobody gets in."""
    done = subprocess.run(
        [str(COMMAND), "status", "--database", secret_server.address("postgres", password=False)],
        env={k: v for k, v in os.environ.items() if not k.startswith("PG")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 6
    assert "password" in done.stderr
