"""A disk that is full or may only be read: a sentence, nothing half written, and it goes on when it is mended."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.serving import Address, Serving
from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from autotune.errors import StoreError
from autotune.store import open_store
from tests.contracts.store_cases import begin
from tests.e2e.commands import environment_for, tagged, written_cycles
from tests.support import factories as make
from tests.support import here
from tests.support.served import settings_in, whole_study
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PLAN: dict[str, Any] = {"max_trials": 5, "script": {"sleep": 0.02}}

TUNER = """
import json, sys
from autotune.cli.failures import exit_code_of
from tests.e2e.tuner import main
sys.exit(exit_code_of(lambda: main(sys.argv[1], json.loads(sys.argv[2]))))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB; ``grow`` makes it larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = mount("-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder))
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=PATIENCE_S)


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def grow(folder: Path) -> None:
    assert mount("-o", "remount,size=64m", str(folder)).returncode == 0


def make_read_only(folder: Path) -> None:
    assert mount("-o", "remount,ro", str(folder)).returncode == 0


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tuner(home: Path, database: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TUNER, str(home), json.dumps(PLAN)],
        cwd=ROOT,
        env={**os.environ, "AUTOTUNE_DATABASE": str(database)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def check_whole(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_study_on_a_full_disk_stops_with_a_sentence_and_goes_on_later(tmp_path: Path, small_disk: Path) -> None:
    home, path = tmp_path / "home", small_disk / "studies.db"
    done = tuner(home, path)
    assert done.returncode == 6
    [line] = done.stderr.splitlines()
    assert line == f"autotune: database {path}: the disk is full; free some space and start again " + (
        "(what was acknowledged is kept)"
    )
    assert tagged(home) == [], "a trial runs on without its tuner"
    store = open_store(path)
    before = store.trials(1)
    store.close()
    assert any(t.cycles for t in before), "the disk was full too early to show anything"

    grow(small_disk)
    check_whole(path)
    again = tuner(home, path)
    assert again.returncode == 0, again.stderr
    check_whole(path)
    store = open_store(path)
    after = store.trials(1)
    assert store.recommendation(1) is not None
    store.close()
    assert all(t.state.is_finished for t in after)
    for old, new in zip(before, after, strict=False):
        assert new.configuration == old.configuration
        assert not old.state.is_finished or new == old
        if new.attempt == old.attempt:
            assert new.cycles[: len(old.cycles)] == old.cycles
            assert len(new.cycles) == written_cycles(home, new.number, new.attempt)


def test_a_first_use_without_room_leaves_nothing_that_stands_in_the_way(small_disk: Path) -> None:
    filler = small_disk / "filler"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    filler.write_bytes(b"\0" * (free - 20_000))
    path = small_disk / "studies.db"
    with pytest.raises(StoreError, match="the disk is full"):
        open_store(path)
    filler.unlink()
    store = open_store(path)
    assert begin(store) == 1
    assert store.study(1).spec == make.study_spec()
    store.close()


START = ("start", "--budget", "1m", "--no-serve", "--python", sys.executable, "--model", "model")


def make_model(folder: Path) -> None:
    """Enough of one to be looked at."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"")


def test_a_study_cannot_begin_in_a_home_that_may_only_be_read(small_disk: Path, tmp_path: Path) -> None:
    home = small_disk / "home"
    home.mkdir()
    make_read_only(small_disk)
    make_model(tmp_path)
    done = here.autotune(START, tmp_path, environment_for(home))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert str(home) in line
    assert "cannot be written (Read-only file system)" in line
    assert "--home" in line
    assert files(small_disk) == {}


READING = (("status",), ("trials", "--json"), ("show", "1"), ("best", "--json"), ("report",))


@pytest.mark.parametrize("named", [False, True])
def test_an_archived_study_can_be_read(
    small_disk: Path, tmp_path: Path, named: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reading command says on a read-only mount what it says on a disk that can be written."""

    def said() -> list[tuple[int, str, str]]:
        found = []
        for command in READING:
            code = exit_code_of(lambda words=command: build_app()([*words, *place], prog_name="autotune"))  # type: ignore[misc]
            found.append((code, *capsys.readouterr()))
        return found

    grow(small_disk)
    whole_study(settings_in(small_disk))
    home = small_disk / "home"
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "none" if named else home))
    place = ("--database", str(home / "autotune.sqlite")) if named else ()
    before, writable = files(small_disk), said()
    assert [code for code, _, _ in writable] == [0] * len(READING), writable
    make_read_only(small_disk)
    assert said() == writable
    assert files(small_disk) == before
    assert not (tmp_path / "none").exists()


def test_an_archived_study_can_be_served(small_disk: Path) -> None:
    grow(small_disk)
    settings = settings_in(small_disk)
    whole_study(settings)
    make_read_only(small_disk)
    said: list[str] = []
    serving = Serving(settings, said.append, Address())
    try:
        for path in ("/readyz", "/", "/api/v1/studies", "/studies/1"):
            assert httpx.get(serving.url + path).status_code == 200, path
    finally:
        serving.close()
    assert said == []
