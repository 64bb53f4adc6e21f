"""Odd words and surroundings end in one sentence and a code, never in a crash file and never in waiting."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from errno import EPIPE
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.cli import console
from autotune.cli.app import build_app
from autotune.cli.commands.start import _show_plan
from autotune.cli.commands.start_request import config_text
from autotune.cli.failures import exit_code_of
from autotune.cli.screens.text import clock_time
from autotune.domain import Budget, Study
from autotune.domain.differences import differing
from autotune.errors import UsageError
from autotune.settings import HomePaths
from autotune.specification.resolve import keep_prompts
from autotune.specification.user_input import sha256_of
from tests.support.factories import study_spec
from tests.unit.cli.conftest import Run


def test_in_a_folder_that_is_gone_a_command_says_so(autotune: Run, tmp_path: Path, monkeypatch: Any) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = autotune("start", "--budget", "1m")
    monkeypatch.chdir(tmp_path)
    assert code == 2
    assert err == "autotune: the folder that this runs in is gone; change to another\n"


def test_a_pipe_is_read_and_one_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    os.mkfifo(silent)
    with pytest.raises(UsageError, match="nothing more comes from it"):
        config_text(silent, patience_s=0.05)
    reading, writing = os.pipe()
    os.write(writing, b"beta: 0.1\n")
    os.close(writing)
    assert config_text(Path(f"/dev/fd/{reading}")) == "beta: 0.1\n"
    os.close(reading)


@pytest.mark.parametrize("words", ["best", "best --json", "trials", "--help", "space show cpu"])
@pytest.mark.parametrize("how", ["", "-u"])
def test_a_full_output_is_not_called_a_full_home(home: HomePaths, study: Study, words: str, how: str) -> None:
    environment = {**os.environ, "AUTOTUNE_HOME": str(home.root), "PYTHONUNBUFFERED": ""}
    line = f"exec {sys.executable} {how} -m autotune.cli {words} >/dev/full"
    run = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, check=False)
    said = "autotune: no space is left on the disk; free some, or name another folder: the command's output"
    assert (run.returncode, run.stderr.splitlines()[-1]) == (5, said)


def test_a_closed_stream_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    console.set_up()
    console.line("nobody reads this")

    def full(_: str, number: int = 28) -> None:
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=full, flush=lambda: None))
    console.say("nor this")
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=partial(full, number=EPIPE), flush=lambda: None))
    assert exit_code_of(lambda: build_app()(["--version"])) == 141


def test_help_and_version_are_words_too(autotune: Run) -> None:
    assert autotune("help", "best") == autotune("best", "--help")
    assert autotune("version") == autotune("--version")


def test_a_database_that_hides_the_one_of_the_home_is_told(
    autotune: Run, home: HomePaths, study: Study, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("AUTOTUNE_DATABASE", str(tmp_path / "other.sqlite"))
    assert "$AUTOTUNE_DATABASE names another database" in autotune("status", "--home", str(home.root))[2]
    assert "$AUTOTUNE_DATABASE" not in autotune("status", "--home", str(tmp_path / "new"))[2]


def test_a_plan_in_json_is_one_record(capsys: pytest.CaptureFixture[str]) -> None:
    _show_plan(SimpleNamespace(spec=study_spec(), legal=7), Budget(60.0, None, None), as_json=True)  # type: ignore[arg-type]
    found = json.loads(capsys.readouterr().out)
    assert (found["type"], found["legal_combinations"], found["budget"]["wall_seconds"]) == ("plan", 7, 60.0)
    assert found["baseline"] == dict(study_spec().baseline)


def test_a_time_that_no_clock_shows_is_no_crash() -> None:
    assert clock_time(1e300) == "?"
    assert clock_time(float("nan")) == "?"


def test_prompts_that_somebody_changed_are_written_anew(tmp_path: Path) -> None:
    written = tmp_path / "prompts.jsonl"
    written.write_text('{"prompt": "a"}\n')
    kept = keep_prompts(tmp_path, written, sha256_of(written))
    kept.write_text(kept.read_text() + '{"prompt": "by hand"}\n')
    assert keep_prompts(tmp_path, written, sha256_of(written)).read_text() == written.read_text()


def test_a_digest_is_told_by_its_beginning() -> None:
    assert differing({"sha256": "ab" * 32}, {"sha256": "cd" * 32}) == ["sha256: abababab -> cdcdcdcd"]


def test_a_state_of_a_later_version_is_told_as_that(autotune: Run, home: HomePaths, study: Study) -> None:
    with sqlite3.connect(home.database) as connection:
        connection.execute("update trials set state = 'SLEEPING' where number = 0")
    code, _, err = autotune("trials")
    assert code == 6
    assert "'SLEEPING' is not a valid TrialState; a later autotune may have written it" in err
