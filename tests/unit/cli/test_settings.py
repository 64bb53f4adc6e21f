import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.settings import HomePaths, read_settings


def test_the_option_goes_before_the_environment_before_the_default(tmp_path: Path) -> None:
    environ = {"AUTOTUNE_HOME": str(tmp_path / "environment")}
    assert read_settings(environ, tmp_path / "option").home.root == tmp_path / "option"
    assert read_settings(environ).home.root == tmp_path / "environment"
    assert read_settings({}).home.root.name == "autotune"
    assert read_settings({"AUTOTUNE_HOME": "  "}).home.root == read_settings({}).home.root


def test_a_relative_home_and_the_users_own_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_settings({"AUTOTUNE_HOME": "x"}).home.root == tmp_path / "x"
    assert read_settings({"AUTOTUNE_HOME": "~/y"}).home.root == tmp_path / "y"


def test_database_and_debug(tmp_path: Path) -> None:
    here = {"AUTOTUNE_HOME": str(tmp_path)}
    assert read_settings(here).database == str(tmp_path / "autotune.sqlite")
    assert read_settings({**here, "AUTOTUNE_DATABASE": "postgresql://h/n"}).database == "postgresql://h/n"
    assert not read_settings(here).debug
    assert not read_settings({**here, "AUTOTUNE_DEBUG": "0"}).debug
    assert read_settings({**here, "AUTOTUNE_DEBUG": "1"}).debug


def test_reading_settings_creates_nothing(tmp_path: Path) -> None:
    read_settings({"AUTOTUNE_HOME": str(tmp_path / "home")})
    assert not (tmp_path / "home").exists()


@contextmanager
def closed_to_others(folder: str) -> Iterator[None]:
    """In it this process is a user who may not enter ``folder``; root becomes another, for whom modes count."""
    mine = os.getresuid()
    os.chmod(folder, 0)
    if mine[0] == 0:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(*mine)
        os.chmod(folder, 0o700)


def test_a_home_that_is_a_file_or_no_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file", "loop"):
        with pytest.raises(UsageError, match="is no folder that you may read"):
            read_settings({"AUTOTUNE_HOME": str(tmp_path / name)})
    with tempfile.TemporaryDirectory() as closed, closed_to_others(closed), pytest.raises(UsageError, match="may read"):
        read_settings({"AUTOTUNE_HOME": closed})
    with pytest.raises(UsageError, match="not a usable path"):
        read_settings({"AUTOTUNE_HOME": "~nobody-of-this-name/x"})


def test_prepare_makes_a_private_home_and_can_be_repeated(tmp_path: Path) -> None:
    home = HomePaths(tmp_path / "a" / "b")
    home.prepare()
    home.prepare()
    assert home.root.stat().st_mode & 0o077 == 0
    assert list(home.root.iterdir()) == []


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        HomePaths(tmp_path / "file" / "home").prepare()
    assert "\n" not in str(caught.value)
    assert "AUTOTUNE_HOME" in str(caught.value)


@given(st.text(max_size=80), st.integers(1, 10**6), st.integers(0, 10**4), st.integers(1, 9))
def test_an_attempts_folder_stays_inside_its_study_whatever_the_name(
    name: str, study: int, trial: Any, attempt: int
) -> None:
    home = HomePaths(Path("/home/x"))
    path = home.attempt(study, name, trial, attempt)
    assert path.parts[-2:] == (str(trial), str(attempt))
    assert path.parent.parent.parent == home.runs
    assert ".." not in path.parts
    assert path.parent.parent.name.split("-")[0] == str(study)


def test_different_attempts_never_share_a_folder() -> None:
    home = HomePaths(Path("/home/x"))
    places = {home.attempt(s, n, t, a) for s in (1, 2) for n in ("a/b", "a b") for t in (0, 1) for a in (1, 2)}
    assert len(places) == 8
