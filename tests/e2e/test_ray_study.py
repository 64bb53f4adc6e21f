"""Studies of scripted trials on four nodes of a real Ray cluster, whose parts are killed one after the other."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import StudyStatus
from autotune.store import open_store
from tests.e2e.commands import states, tagged
from tests.support.node import Node
from tests.support.not_none import not_none
from tests.support.ray_nodes import Nodes, needs_ray, nodes
from tests.support.waiting import wait_for

needs_ray()
pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
SILENCE_S = 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(4) as found:
        yield found


def tuner(home: Path, plan: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.e2e.tuner", str(home), json.dumps(plan)]
    environment = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}
    with (home.parent / "out.txt").open("a") as out:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, text=True)


def events(home: Path, kind: str) -> list[str]:
    with sqlite3.connect(f"file:{home / 'autotune.sqlite'}?mode=ro", uri=True) as database:
        return [json.loads(row[0]) for row in database.execute("SELECT message FROM events WHERE kind = ?", (kind,))]


def cycles(home: Path) -> set[tuple[int, int, int]]:
    """(trial, attempt, cycle) of all that is stored."""
    query = """SELECT trials.number, attempts.number, cycles.position FROM cycles
        JOIN attempts ON attempts.id = cycles.attempt_id JOIN trials ON trials.id = attempts.trial_id"""
    with sqlite3.connect(f"file:{home / 'autotune.sqlite'}?mode=ro", uri=True) as database:
        return set(database.execute(query))


def on(home: Path, node: str) -> bool:
    """Whether a trial runs on a node."""
    begun = [text for text in events(home, "trial_started") if f"on {node} " in text]
    number = int(begun[-1].split()[1]) if begun else -1
    return number >= 0 and states(home)[number] == "RUNNING"


def test_whatever_is_killed_the_study_ends_with_an_answer(cluster: Nodes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    plan = {"ray": cluster.address, "at_once": 4, "max_trials": 16, "script": {"sleep": 1.0}, "silence_s": SILENCE_S}
    first = tuner(home, plan)
    try:
        wait_for(lambda: home.exists() and states(home).count("RUNNING") == 4, "four trials at once", 600.0)
        wait_for(lambda: on(home, "n2") and len(tagged(home)) >= 4, "a trial on n2", 600.0)
        psutil.Process(tagged(home)[0]).kill()
        cluster.agents("n2")[0].kill()
        wait_for(lambda: any("agent on node n2" in text for text in events(home, "trial_repeated")), "a repeat", 600.0)
        wait_for(lambda: on(home, "n2"), "a new agent on n2", 600.0)
        wait_for(lambda: on(home, "n3"), "a trial on n3", 600.0)
        cluster.raylet("n3").kill()
        cluster.remove("n4")
        lost = lambda: {text.split()[0] for text in events(home, "place_left")}  # noqa: E731
        wait_for(lambda: lost() == {"n3", "n4"}, "both nodes given up", 900.0)
        wait_for(lambda: states(home).count("RUNNING") == 2, "the others to go on", 600.0)
        kept = cycles(home)
        first.kill()
        wait_for(lambda: not tagged(home), "the end of all trials", 120.0)
    finally:
        first.kill()
        first.wait()
    again = tuner(home, {**plan, "at_once": 2})
    try:
        assert again.wait(900.0) == 0, (tmp_path / "out.txt").read_text()
    finally:
        again.kill()
    assert kept <= cycles(home), "nothing that was stored is lost"
    assert tagged(home) == []
    store = open_store(str(home / "autotune.sqlite"))
    study = store.studies()[0]
    assert study.status is StudyStatus.DONE
    assert all(trial.state.is_finished for trial in store.trials(study.id))
    answer = not_none(store.recommendation(study.id))
    assert answer.rows
    nodes_named = {
        note.data["node"]
        for t in store.trials(study.id)
        for note in store.notes(study.id, t.number)
        if note.name == "place"
    }
    assert nodes_named >= {"n1", "n2"}
    store.close()


def test_a_cut_driver_ends_what_it_ran(cluster: Nodes, tmp_path: Path) -> None:
    """A frozen tuner cannot be told from one behind a network that is cut: the agents end their trials."""
    home = tmp_path / "home"
    plan = {"ray": cluster.address, "at_once": 2, "max_trials": 4, "script": {"sleep": 2.0}, "silence_s": SILENCE_S}
    frozen = tuner(home, plan)
    try:
        wait_for(lambda: home.exists() and tagged(home), "a trial", 600.0)
        frozen.send_signal(signal.SIGSTOP)
        wait_for(lambda: not tagged(home), "the end of the trial", SILENCE_S + 120.0)
    finally:
        frozen.kill()
        frozen.wait()


def test_start_runs_a_whole_study_there(cluster: Nodes, tmp_path: Path) -> None:
    made_up = Node(tmp_path / "node", [{}] * 8)
    words = ("--max-trials", "6", "--sampler", "random", "--gpus", "4", "--ray", cluster.address, "--at-once", "2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "environment", lambda visible=None: {**os.environ})
        batch = ("--effective-batch", "24", "--max-completion-length", "32")
        done = made_up.start(*words, *batch, timeout=1200.0)
        assert done.returncode == 0, done.stderr
        assert "2 trials at once on n1 (1), n2 (1)" in done.stderr
        trials = made_up.document("trials")["trials"]
    assert {trial["state"] for trial in trials} <= {"COMPLETE", "PRUNED", "FAIL"}
    assert tagged(made_up.home) == []
