"""The tuner itself is killed in mid-trial: the next one sweeps what is left, of this study only."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.running import proc
from tests.contracts.runner_suite import tagged
from tests.support.not_none import not_none
from tests.support.scripted import local_runner
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
KILLED, OTHER = f"killed-{os.getpid()}", f"other-{os.getpid()}"
"""Tags of this process's own: tests that run at the same time must not end each other's processes."""
TUNER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.contracts.runner_suite import Seen
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner

home, study, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
acts = [{"do": "spawn", "count": 2, "how": how} for how in ("session", "double_fork")]
acts += [{"do": "ignore_sigterm"}, {"do": "sleep", "at": 2}]
wanted = assignment(directory / "attempt", {"acts": acts})
wanted = replace(wanted, study=replace(wanted.study, id=study))
local_runner(home).run(wanted, Seen(), FakeStop())
"""


def spawned(directory: Path) -> bool:
    pids = directory / "attempt" / "pids"
    return pids.exists() and len(pids.read_text().split()) == 4 and "cycle" in metrics(directory)


def metrics(directory: Path) -> str:
    path = directory / "attempt" / "metrics.jsonl"
    return path.read_text() if path.exists() else ""


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[Callable[[str, int], Path]]:
    """Starts a tuner, kills it with SIGKILL once its trial is under way, and gives its directory."""
    started: list[subprocess.Popen[bytes]] = []

    def start(home: str, study: int) -> Path:
        directory = tmp_path / f"{home}-{study}"
        directory.mkdir()
        argv = [sys.executable, "-c", TUNER, home, str(study), str(directory)]
        started.append(subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}))
        wait_for(lambda: spawned(directory) and metrics(directory).count('"kind":"cycle"') >= 2)
        started[-1].send_signal(signal.SIGKILL)
        started[-1].wait()
        return directory

    yield start
    for home in (KILLED, OTHER):
        for pid in tagged(home):
            os.kill(pid, signal.SIGKILL)


def test_what_a_killed_tuner_left_is_swept(tuner: Callable[[str, int], Path]) -> None:
    directory = tuner(KILLED, 1)
    left = tagged(KILLED)
    assert len(left) == 5, "the child and four grandchildren outlive a killed tuner"
    runner = local_runner(KILLED)
    assert set(left) <= set(runner.sweep(1))
    assert tagged(KILLED) == []
    records, result = runner.recover(directory / "attempt")
    assert [r.kind for r in records].count("cycle") == 2
    assert result is None


def test_a_sweep_spares_other_studies_and_other_homes(tuner: Callable[[str, int], Path]) -> None:
    tuner(KILLED, 1)
    tuner(KILLED, 11)
    tuner(OTHER, 1)
    local_runner(KILLED).sweep(1)
    assert len(tagged(KILLED)) == 5
    assert len(tagged(OTHER)) == 5
    assert len(local_runner(KILLED).sweep(11)) == 5
    assert len(local_runner(OTHER).sweep(1)) == 5


@pytest.mark.parametrize("seed", range(6))
def test_whenever_the_tuner_is_killed_nothing_is_left_and_nobody_else_is_hurt(tmp_path: Path, seed: int) -> None:
    """Also in the middle of starting its child, which is in the tuner's own session until it is in its own."""
    argv = [sys.executable, "-c", TUNER, KILLED, "1", str(tmp_path)]
    shell = "sleep 600 & echo $!; exec 1>&2; exec " + shlex.join(argv)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    tuner = subprocess.Popen(
        ["sh", "-c", shell],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    bystander = int(tuner.stdout.readline())
    try:
        wait_for((tmp_path / "attempt").exists)
        time.sleep(random.Random(seed).random() * 0.1)
        tuner.kill()
        tuner.wait()
        local_runner(KILLED).sweep(1)
        assert tagged(KILLED) == []
        stat = not_none(proc.read_stat(bystander))
        assert not stat.ended
    finally:
        tuner.stdout.close()
        os.kill(bystander, signal.SIGKILL)
