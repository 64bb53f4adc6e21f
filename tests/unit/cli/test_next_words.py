"""What is printed to be pasted must work where it was printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.screens.shell_words import command_line, short_path
from autotune.settings import HomePaths, Settings, read_settings


def test_by_its_path_where_it_is_not_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "an env" / "autotune"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("sys.argv", [str(program), "start"])
    assert command_line("best", read_settings()) == "'an env/autotune' best"
    monkeypatch.setenv("PATH", str(program.parent))
    assert command_line("best", read_settings()) == "autotune best"


def test_a_home_named_by_an_option_is_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["python"])
    monkeypatch.chdir(tmp_path)
    home = HomePaths(tmp_path / "my home")
    assert command_line("trials", Settings(home, str(home.database))) == "autotune trials --home 'my home'"
    assert command_line("best", read_settings(database="postgresql://db/a b")).endswith(
        " best --database 'postgresql://db/a b'"
    )
    monkeypatch.setenv("AUTOTUNE_DATABASE", "postgresql://me:secret@db/tuning")
    assert command_line("best", read_settings()) == "autotune best", "the same shell names it"


def test_paths_outside_stay_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert short_path(tmp_path / "there") == str(tmp_path / "there")
    assert short_path(Path("runs") / "1") == "runs/1"
