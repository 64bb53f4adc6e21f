"""Runs the installed command as a user does, and finds what it leaves running."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.running.local import home_tag
from tests.e2e.forked import Forked
from tests.support import here
from trainer.child.contract import TAG_VARIABLE

COMMAND = Path(sys.executable).with_name("autotune")
_begun: list[subprocess.Popen[str] | Forked] = []


def environment_for(home: Path) -> dict[str, str]:
    """The test's own, without what would put the source tree in front of the installed package."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"AUTOTUNE_HOME": str(home)}


def begin(*arguments: str, home: Path, cwd: Path) -> subprocess.Popen[str]:
    """The command, running."""
    assert COMMAND.exists(), f"{COMMAND} is missing: install the project into this environment"
    command = [str(COMMAND), *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=cwd, env=environment_for(home), stdout=pipe, stderr=pipe, text=True)
    _begun.append(process)
    return process


def end_later(process: Forked) -> None:
    """When the test is over, if it still runs then."""
    _begun.append(process)


def end_what_was_begun(patience: float = 60.0) -> None:
    """A test that failed must not leave a study running beside the next one."""
    while _begun:
        process = _begun.pop()
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def autotune(*arguments: str, home: Path, cwd: Path, timeout: float = 800.0) -> subprocess.CompletedProcess[str]:
    """The command, finished: another working directory, no PYTHONPATH, output not to a terminal."""
    process = begin(*arguments, home=home, cwd=cwd)
    out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def document(*arguments: str, home: Path, cwd: Path) -> Any:
    """What a reading command prints with ``--json``; in this process, as the command itself is another test's."""
    done = here.autotune([*arguments, "--json", "--home", str(home)], cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def trials_of(home: Path, cwd: Path) -> list[Mapping[str, Any]]:
    """Every trial with its cycles, by number."""
    numbers = sorted(t["number"] for t in document("trials", home=home, cwd=cwd)["trials"])
    shown = (document("show", str(number), home=home, cwd=cwd) for number in numbers)
    return [s.get("trial", s) for s in shown]


def tagged(home: Path) -> list[int]:
    """Processes that carry this home's tag, whoever their parent is."""
    needle = f"{TAG_VARIABLE}=autotune:{home_tag(home)}:".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if needle in Path(entry.path, "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


STORED_CYCLES = """
    SELECT count(*) FROM cycles JOIN attempts ON attempts.id = cycles.attempt_id
    JOIN trials ON trials.id = attempts.trial_id WHERE trials.number = ? AND attempts.number = ?
"""


def stored_cycles(home: Path, trial: int, attempt: int) -> int:
    """Cycles of one attempt in the database, read past the store: it shows only the last attempt's."""
    connection = sqlite3.connect(home / "autotune.sqlite")
    try:
        return int(connection.execute(STORED_CYCLES, (trial, attempt)).fetchone()[0])
    finally:
        connection.close()


def states(home: Path) -> list[str]:
    """Of the trials of the home's only study by number, read past the store; empty before there is a database."""
    if not (home / "autotune.sqlite").exists():
        return []
    connection = sqlite3.connect(f"file:{home / 'autotune.sqlite'}?mode=ro", uri=True)
    try:
        return [row[0] for row in connection.execute("SELECT state FROM trials ORDER BY number")]
    except sqlite3.OperationalError:  # its tables are just being made
        return []
    finally:
        connection.close()


def written_cycles(home: Path, trial: int, attempt: int) -> int:
    """Whole cycle lines the child wrote."""
    files = home.glob(f"runs/*/{trial}/{attempt}/metrics.jsonl")
    lines = (line for path in files for line in path.read_bytes().splitlines(keepends=True))
    return sum(line.endswith(b"\n") and b'"kind":"cycle"' in line for line in lines)
