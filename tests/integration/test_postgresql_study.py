"""A whole study on a PostgreSQL that is restarted twice under it, and whose password nobody may see.

Everything but the training framework is real: the tuner is a process of its own, so are its trials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Trial
from autotune.store import open_store
from tests.e2e.commands import tagged, written_cycles
from tests.e2e.studies import UNDISTURBED, undisturbed
from tests.support.not_none import not_none
from tests.support.postgresql import Server, server
from tests.support.waiting import PATIENCE_S, wait_for
from trainer.child.contract import write_atomic

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SENTINEL = "s3ntin3l-pass"
TRIALS = UNDISTURBED
ABSENT_S = 1.5
SCRIPT = {"sleep": 0.15, "held": [[1, 2], [3, 2]]}

ACKNOWLEDGED = """
    SELECT trials.number, attempts.number, cycles.position FROM cycles
    JOIN attempts ON attempts.id = cycles.attempt_id JOIN trials ON trials.id = attempts.trial_id
"""


@dataclass
class Run:
    """What was seen of the study."""

    home: Path
    address: str
    server: Server
    acknowledged: set[tuple[Any, ...]] = field(default_factory=set)
    seen: bytes = b""
    """Command lines and environments of all its processes but the tuner's own environment."""
    output: str = ""
    code: int | None = None
    wall_s: float = 0.0


def tuner(home: Path, address: str, script: Mapping[str, Any]) -> subprocess.Popen[str]:
    plan = {"max_trials": TRIALS, "script": script}
    argv = [sys.executable, "-m", "tests.e2e.tuner", str(home), json.dumps(plan)]
    environment = {**os.environ, "AUTOTUNE_DATABASE": address}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def acknowledged(run: Run) -> set[tuple[Any, ...]]:
    database = run.address.rpartition("/")[2]
    if not run.server.sql("SELECT 1 FROM pg_tables WHERE tablename = 'cycles'", database):
        return set()
    return set(run.server.sql(ACKNOWLEDGED, database))


def restart_in_trial(run: Run, number: int, mode: str, script: Path, then: Mapping[str, Any]) -> None:
    """The trial waits in ``script`` until its processes were looked at; what it measures next finds no server."""
    wait_for(lambda: len([a for a in acknowledged(run) if a[0] == number]) >= 2, f"two cycles of trial {number}")
    run.seen += visible(run.home)
    run.acknowledged |= acknowledged(run)
    write_atomic(script, json.dumps(then))
    run.server.stop(mode)
    time.sleep(ABSENT_S)
    run.server.start()


def visible(home: Path) -> bytes:
    """What others can see of the processes: all command lines, and the environments of the trial's."""
    trial = tagged(home)
    assert trial, "no trial is running"
    found = [(Path(entry.path) / "cmdline") for entry in os.scandir("/proc") if entry.name.isdigit()]
    found += [Path(f"/proc/{pid}/environ") for pid in trial]
    text = b""
    for path in found:
        try:
            text += path.read_bytes()
        except OSError:
            continue
    return text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with server(SENTINEL) as made:
        made_run = Run(tmp_path_factory.mktemp("home"), made.new_database(), made)
        script = tmp_path_factory.mktemp("script") / "script.json"
        script.write_text(json.dumps(SCRIPT))  # until it was restarted in the middle of two trials
        began = time.monotonic()
        process = tuner(made_run.home, made_run.address, {"file": str(script)})
        try:
            restart_in_trial(made_run, 1, "immediate", script, {**SCRIPT, "held": [[3, 2]]})
            restart_in_trial(made_run, 3, "fast", script, {})
            made_run.output, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        made_run.code, made_run.wall_s = process.returncode, time.monotonic() - began
        yield made_run


def trials_of(address: str) -> tuple[Trial, ...]:
    store = open_store(address)
    try:
        return store.trials(1)
    finally:
        store.close()


def test_the_study_ends_properly(run: Run) -> None:
    assert run.code == 0, run.output
    trials = trials_of(run.address)
    assert json.loads(run.output.splitlines()[-1])["trials"] == len(trials) > TRIALS
    assert all(t.state.is_finished and t.outcome is not None and t.outcome.ok for t in trials)
    store = open_store(run.address)
    found = not_none(store.recommendation(1))
    assert found.rows
    store.close()
    assert tagged(run.home) == []


def test_every_cycle_is_there_once_and_no_attempt_was_wasted(run: Run) -> None:
    assert len(run.acknowledged) >= 4
    stored = acknowledged(run)
    assert run.acknowledged <= stored
    for trial in trials_of(run.address):
        assert trial.attempt == 1
        of_it = [row for row in stored if row[0] == trial.number]
        assert len(of_it) == written_cycles(run.home, trial.number, 1) > 0


def test_it_did_what_it_would_have_done_undisturbed(run: Run) -> None:
    whole, disturbed = undisturbed().study()[1], trials_of(run.address)
    assert [(t.kind, t.configuration) for t in disturbed] == [(t.kind, t.configuration) for t in whole]


def test_its_budget_counts_the_time_it_ran_once(run: Run) -> None:
    store = open_store(run.address)
    spent, _ = store.spent(1)
    trials = sum(t.seconds or 0.0 for t in store.trials(1))
    store.close()
    assert trials <= spent <= run.wall_s
    assert spent >= 2 * ABSENT_S
    assert run.server.sql("SELECT count(*) FROM sessions", run.address.rpartition("/")[2]) == [(1,)]


def test_its_events_have_no_gap_and_none_twice(run: Run) -> None:
    store = open_store(run.address)
    events = store.events(1)
    store.close()
    assert [e.id for e in events] == list(range(1, len(events) + 1))
    for kind in ("trial_started", "trial_finished"):
        numbers = [e.trial for e in events if e.kind == kind]
        assert numbers == sorted(set(numbers))
    assert [e.kind for e in events].count("study_ended") == 1


def test_an_absence_is_one_line_and_one_when_it_is_over(run: Run) -> None:
    away = [line for line in run.output.splitlines() if " is away (" in line]
    back = [line for line in run.output.splitlines() if " is back after " in line]
    assert len(away) == len(back) == 2
    assert all(line.startswith("PostgreSQL database tuning_1 on 127.0.0.1") for line in (*away, *back))


def test_the_password_is_nowhere_to_be_seen(run: Run) -> None:
    assert SENTINEL in run.address
    assert b"tests.e2e.tuner" in run.seen
    assert b"AUTOTUNE" in run.seen, "the environment of no trial was looked at"
    assert SENTINEL.encode() not in run.seen
    assert SENTINEL not in run.output
    files = [path for path in run.home.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert SENTINEL.encode() not in path.read_bytes(), path
