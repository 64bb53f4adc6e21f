import errno
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.commands.start_request import interpreter_asked
from autotune.cli.failures import exit_code_of
from autotune.cli.option_groups import PANELS
from autotune.domain import Study
from autotune.errors import AutotuneError, MachineError, StoreError, StudyBusyError, UsageError
from autotune.frameworks import framework_named
from autotune.settings import HomePaths
from search_spaces.errors import SpaceError
from tests.unit.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ("start", "status", "trials", "best", "export", "verify", "show", "logs", "serve", "doctor", "space")
COMMANDS += ("compare", "note", "retry", "report", "plan", "watch")


def raising(error: Any) -> Any:
    def run() -> None:
        raise error

    return run


def test_help_lists_every_command(autotune: Run) -> None:
    code, out, err = autotune("--help")
    assert (code, err) == (0, "")
    panels = re.findall(r"^(Begin|Look|Use):\n((?:  .+\n)+)", out, re.MULTILINE)
    listed = [line.split()[0] for _, lines in panels for line in lines.splitlines()]
    assert sorted(listed) == sorted(COMMANDS), "each once"
    assert "..." not in out.split("Begin:")[1], "each summary is whole"
    assert "Exit codes: 0 done" in out
    assert "--install-completion" in out


def test_options_stand_in_panels(autotune: Run) -> None:
    _, out, _ = autotune("start", "--help")
    heads = [line for line in out.splitlines() if line.rstrip(":") in PANELS]
    assert len(heads) == len(PANELS)
    rest = out.split("\nHelp:\n")[1]
    assert re.findall(r"--[\w-]+", rest) == ["--help"], "every other option has a panel"


def test_the_interpreter_is_one_that_has_the_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trl, site = framework_named("trl"), tmp_path / "lib/python3.11/site-packages"
    monkeypatch.setattr("sys.prefix", str(tmp_path / "tool"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    with pytest.raises(UsageError, match=r"with --python PATH: .* lacks TRL"):
        interpreter_asked(None, trl)
    for each in trl.environment.needed:
        (site / each.name.replace("-", "_")).mkdir(parents=True)
    assert interpreter_asked(None, trl) == str(tmp_path / "bin" / "python")
    assert interpreter_asked("~/env/bin/python", trl).startswith("/")


def test_no_arguments_is_help(autotune: Run) -> None:
    _, out, err = autotune()
    assert "Usage: autotune" in out + err


@pytest.mark.parametrize("command", ["status", "trials", "best", "show", "logs", "serve", "doctor"])
def test_the_help_of_each_command_gives_examples_line_by_line(autotune: Run, command: Any) -> None:
    code, out, _ = autotune(command, "--help")
    assert code == 0
    examples = out.split("Examples:")[1]
    assert f"\n    autotune {command}" in examples
    assert max(len(line) for line in out.splitlines()) <= 80


def test_version(autotune: Run) -> None:
    code, out, err = autotune("--version")
    assert (code, err) == (0, "")
    assert out.startswith("autotune ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("bad budget"), 2),
        (SpaceError("bad space"), 2),
        (MachineError("no GPU"), 5),
        (StudyBusyError("another tuner"), 5),
        (StoreError("disk is full"), 6),
        (AutotuneError("hm"), 1),
    ],
)
def test_our_errors_are_one_line_and_their_own_code(
    home: HomePaths, capsys: pytest.CaptureFixture[str], error: Any, code: int
) -> None:
    assert exit_code_of(raising(error)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"autotune: {error}\n"
    assert not home.crashes.exists()


@pytest.mark.parametrize(
    ("number", "named", "code", "said"),
    [
        (errno.ENAMETOOLONG, "x" * 300, 2, "255 bytes at most: xxx"),
        (errno.ENOSPC, "/some/file", 5, "no space is left on the disk; free some, or name another folder: /some/file"),
        (errno.EDQUOT, None, 5, "no space is left on the disk"),
        (errno.EROFS, "/some/file", 5, "can only be read; name another folder: /some/file"),
        (
            errno.EIO,
            "/some/file",
            5,
            "the disk failed (Input/output error); mend it, or name another folder: /some/file",
        ),
    ],
)
def test_what_a_file_system_refuses_is_one_sentence(
    home: HomePaths, capsys: pytest.CaptureFixture[str], number: int, named: str | None, code: int, said: str
) -> None:
    assert exit_code_of(raising(OSError(number, "as the system says it", named))) == code
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert named is not None or str(home.root) in line
    assert not home.crashes.exists()


LONG = "x" * 300
TOO_LONG = (
    ("status", "--home", LONG),
    ("status", "--database", LONG),
    ("report", "-o", LONG),
    ("plan", "--gpu", "h100", "--model", LONG),
    ("plan", "--gpu", "h100", "--model", "./x", "--space", LONG),
    ("doctor", "--config", LONG),
    ("space", "check", LONG),
    ("space", "show", LONG),
    ("start", "--budget", "1m", "--dry-run", "--model", f"./{LONG}"),
    ("start", "--budget", "1m", "--dry-run", "--config", LONG),
    ("start", "--budget", "1m", "--dry-run", "--space", LONG),
    ("start", "--budget", "1m", "--dry-run", "--python", LONG),
    ("start", "--budget", "1m", "--dry-run", "--data", LONG),
    ("start", "--budget", "1m", "--dry-run", "--reward", f"{LONG}.py:reward"),
    ("export", "-o", LONG),
    ("serve", "--port", "0", "--token-file", LONG),
)


@pytest.mark.parametrize("words", TOO_LONG, ids=lambda words: " ".join(words).replace(LONG, "LONG"))
def test_a_name_that_no_file_can_have_is_bad_usage(
    autotune: Run, home: HomePaths, study: Study, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "nice", lambda increment: 0)  # `serve` makes its whole process nice: this one
    code, out, err = autotune(*words)
    # Of an interpreter it is the environment's fault, where a model is at hand to be looked at with it.
    assert (code, out) == (code if "--python" in words and code == 5 else 2, ""), err
    assert not home.crashes.exists()


def test_a_word_without_end_is_cut(home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(UsageError(f"--set {'9' * 4000} is no number")))
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("autotune: --set 999")
    assert line.endswith("(4,000 characters) is no number")
    assert len(line) < 400


READERS = ("status", "trials", "best", "report", "export", "show 1", "logs 1", "compare 0 1", "retry 1", "verify")


@pytest.mark.parametrize("words", READERS)
@pytest.mark.parametrize("kind", ["absent", "below an absent folder", "empty", "text", "another application's"])
def test_looking_makes_no_database(autotune: Run, home: HomePaths, tmp_path: Path, words: str, kind: str) -> None:
    place = tmp_path / ("no/such" if kind == "below an absent folder" else "") / "prompts.jsonl"
    if kind == "empty":
        place.touch()
    elif kind == "text":
        place.write_text('{"prompt": "1 + 1"}\n')
    elif kind == "another application's":
        with closing(sqlite3.connect(place)) as database, database:
            database.execute("CREATE TABLE bookmarks (url TEXT)")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, out, err = autotune(*words.split(), "--database", str(place))
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    assert str(place) in line
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert not (tmp_path / "no").exists()


def test_a_message_of_many_lines_becomes_one_and_harmless(home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(UsageError("one\ntwo\x1b[31m three")))
    assert capsys.readouterr().err == "autotune: one two three\n"


def test_the_unexpected_names_its_crash_file(home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(ZeroDivisionError("division by zero"))) == 1
    captured = capsys.readouterr()
    (file,) = home.crashes.iterdir()
    assert captured.err == f"autotune: unexpected ZeroDivisionError: division by zero; the details are in {file}\n"
    assert "Traceback" in file.read_text()
    assert "raise error" in file.read_text()


def test_debug_shows_the_traceback(
    home: HomePaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_DEBUG", "1")
    exit_code_of(raising(ZeroDivisionError("oh")))
    exit_code_of(raising(UsageError("bad")))
    assert capsys.readouterr().err.count("Traceback") == 2


def test_a_home_that_cannot_be_written_still_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("AUTOTUNE_HOME", str(blocker / "below"))
    assert exit_code_of(raising(ZeroDivisionError("oh"))) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "could not be saved" in err


@pytest.mark.parametrize(
    ("raised", "code"), [(SystemExit(3), 3), (SystemExit(None), 0), (SystemExit("text"), 1), (KeyboardInterrupt(), 130)]
)
def test_ends_that_are_no_errors(raised: BaseException, code: int) -> None:
    assert exit_code_of(raising(raised)) == code


def test_ctrl_c_inside_a_command(autotune: Run, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.store.open_store", interrupted)
    assert autotune("status") == (130, "", "")


def test_a_crash_inside_a_command_goes_to_the_home_it_was_given(
    autotune: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("boom")

    other = tmp_path / "other"
    other.mkdir()
    (other / "autotune.sqlite").write_text("")
    monkeypatch.setattr("autotune.store.open_store", broken)
    code, _, err = autotune("status", "--home", str(other))
    assert code == 1
    assert str(other / "crashes") in err
    assert "Traceback" not in err


def run_main(home: Path, word: str, before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
    """Runs ``autotune WORD`` in a process of its own, between two pieces of Python."""
    script = (
        f"import atexit, os, signal, sys\nsys.argv = ['autotune', {word!r}]\n{before}\n"
        "from autotune.cli.__main__ import main\n"
        f"try:\n    main()\nexcept SystemExit as ended:\n    code = ended.code\n{after}\nsys.exit(code)\n"
    )
    environment = {**os.environ, "AUTOTUNE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=environment)


def test_help_loads_nothing_heavy_and_needs_no_home(tmp_path: Path) -> None:
    heavy = {"sqlalchemy", "optuna", "torch", "alembic", "numpy", "scipy", "fastapi", "pydantic", "yaml", "jinja2"}
    ended = run_main(tmp_path / "home", "--help", after=f"assert not {heavy} & set(sys.modules)")
    assert ended.returncode == 0, ended.stderr
    assert "autotune start --budget 10m" in ended.stdout
    assert not (tmp_path / "home").exists()


def test_status_of_a_study_loads_no_scipy(home: HomePaths, study: Study) -> None:
    """Its import takes longer than the command."""
    loaded = "assert 'autotune.recommendation.reading' in sys.modules\nassert 'scipy' not in sys.modules"
    ended = run_main(home.root, "status", after=loaded)
    assert ended.returncode == 0, ended.stderr
    assert "+100.0 %" in ended.stdout


MOMENTS = {
    "imported": "sys.addaudithook(lambda event, given: event == 'import' and given[0] == 'typer.core' and kill())",
    "exits": "atexit.register(kill)",
}


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("when", MOMENTS)
def test_ctrl_c_before_and_after_the_command_is_no_traceback(tmp_path: Path, when: str, ignored: bool) -> None:
    """``ignored``: as a script's shell starts what ends in ``&``."""
    before = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" * ignored
    before += "kill = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
    ended = run_main(tmp_path, "--version", before + MOMENTS[when])
    assert (ended.returncode, ended.stderr) == (0 if ignored else -signal.SIGINT, "")
