"""Studies whose trials have two nodes of a real Ray cluster: real TRL and ms-swift over gloo, and what is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from autotune.domain import FailureReason, StudyStatus, Trial, TrialState
from autotune.store import open_store
from tests.e2e.commands import states, tagged
from tests.e2e.test_ray_study import ROOT, SILENCE_S, cycles, events, tuner
from tests.support.ray_nodes import Nodes, needs_ray, nodes
from tests.support.swift_trials import swift_python
from tests.support.trl_trials import ONE_THREAD, build_tiny, training_python
from tests.support.waiting import wait_for

needs_ray()
pytestmark = [pytest.mark.full, pytest.mark.trl, pytest.mark.alone, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(2) as found:
        yield found


def start(
    cluster: Nodes, tiny: Path, home: Path, *words: str, python: Callable[[], str] = training_python
) -> subprocess.Popen[str]:
    """A study of a real framework: two nodes with one process each, on their CPUs."""
    sizes = ("--rows-per-update", "8", "--max-prompt-length", "260", "--max-completion-length", "16")
    using = ("--ray", cluster.address, "--gpus", "0", "--nodes", "2", "--home", str(home), "--no-live", "--no-serve")
    command = [sys.executable, "-m", "autotune.cli", "start", "--model", str(tiny / "model"), *sizes, *using, *words]
    with (home.parent / "out.txt").open("a") as out:
        return subprocess.Popen(
            [*command, "--python", python()],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            stdout=out,
            stderr=out,
            text=True,
        )


def ranks(home: Path) -> dict[int, int]:
    """Process of each rank that runs."""
    found = {}
    for pid in tagged(home):
        try:
            number = psutil.Process(pid).environ().get("RANK")
        except psutil.Error:
            continue
        if number is not None:
            found[int(number)] = pid
    return found


def stored(home: Path) -> tuple[StudyStatus, tuple[Trial, ...]]:
    store = open_store(str(home / "autotune.sqlite"))
    study = store.studies()[0]
    trials = tuple(store.trials(study.id))
    store.close()
    return study.status, trials


def told_by_both(trial: Trial) -> bool:
    """Both ranks have told of the same cycles, each with its phases and its peak."""
    counts = Counter(cycle.rank for cycle in trial.cycles)
    whole = all(c.phases["generate"] > 0 and c.phases["update"] > 0 and c.peaks["cycle"].host for c in trial.cycles)
    return counts.keys() == {0, 1} and counts[0] == counts[1] and whole


@pytest.mark.parametrize(("framework", "python"), [("trl", training_python), ("swift", swift_python)])
def test_both_ranks_of_a_real_trial_on_two_nodes_are_recorded(
    cluster: Nodes, tmp_path: Path, framework: str, python: Callable[[], str]
) -> None:
    home, out, tiny = tmp_path / "home", tmp_path / "out.txt", build_tiny(tmp_path / "tiny", python=python())
    study = start(cluster, tiny, home, "--framework", framework, "--max-trials", "1", python=python)
    try:
        assert study.wait(900.0) == 0, out.read_text()
    finally:
        study.kill()
    assert "1 trial at once on n1+n2 (1)" in out.read_text()
    status, (trial,) = stored(home)
    assert status is StudyStatus.DONE
    assert trial.state is TrialState.COMPLETE
    assert told_by_both(trial)
    waits = [(c.rank, c.phases.get("wait", 0.0)) for c in trial.cycles]
    assert {rank for rank, seconds in waits if seconds > 0} == {0, 1}, "each waits for the other"
    assert trial.startup["spawn"] > 0
    assert tagged(home) == []


def test_a_killed_rank_ends_the_trial_on_both_nodes_and_so_does_a_killed_driver(
    cluster: Nodes, tiny: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    study = start(cluster, tiny, home, "--max-trials", "4")
    try:
        wait_for(lambda: home.exists() and states(home) and cycles(home), "a cycle", 600.0)
        begun = ranks(home)
        assert begun.keys() == {0, 1}
        psutil.Process(begun[1]).kill()
        wait_for(lambda: not set(begun.values()) & set(tagged(home)), "the end of both ranks", 120.0)
        wait_for(lambda: "RUNNING" in states(home)[1:] and ranks(home).keys() == {0, 1}, "the next trial", 600.0)
        study.kill()
        wait_for(lambda: not tagged(home), "the end of all", 120.0)
    finally:
        study.kill()
        study.wait()
    _, trials = stored(home)
    assert trials[0].outcome.reason is FailureReason.CRASH, trials[0].outcome.sentence()
    assert "SIGKILL" in trials[0].outcome.message


def test_a_killed_agent_ends_the_trial_on_both_nodes_and_the_study_goes_on(cluster: Nodes, tmp_path: Path) -> None:
    """Scripted ranks, which do not notice by themselves that the other is gone."""
    home = tmp_path / "home"
    plan = {"ray": cluster.address, "at_once": 1, "nodes": 2, "max_trials": 2, "script": {"sleep": 1.0}}
    study = tuner(home, {**plan, "silence_s": SILENCE_S})
    try:
        wait_for(lambda: home.exists() and ranks(home).keys() == {0, 1}, "both ranks", 600.0)
        begun = ranks(home)
        cluster.agents("n2")[0].kill()
        wait_for(lambda: not set(begun.values()) & set(tagged(home)), "the end of both ranks", 120.0)
        wait_for(lambda: any("agent on node n2" in text for text in events(home, "trial_repeated")), "a repeat", 600.0)
        assert study.wait(900.0) == 0, (tmp_path / "out.txt").read_text()
    finally:
        study.kill()
        study.wait()
    assert tagged(home) == []
    status, trials = stored(home)
    assert status is StudyStatus.DONE
    complete = [{cycle.rank for cycle in t.cycles} for t in trials if t.state is TrialState.COMPLETE]
    assert complete == [{0, 1}] * len(trials)
