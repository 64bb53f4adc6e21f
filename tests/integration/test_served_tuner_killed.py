"""The tuner is killed while a trial and its rollout server run: the next one sweeps both, and what they held."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.running.companion import free_ports
from tests.contracts.runner_suite import tagged
from tests.contracts.served_suite import listened
from tests.integration.test_process_tree_tuner_killed import ROOT, metrics, wait_for
from tests.support.scripted import local_runner
from tests.support.scripted_framework import SERVER

HOME = f"served-killed-{os.getpid()}"
TUNER = f"""
import sys
from dataclasses import replace
from pathlib import Path
from tests.contracts.runner_suite import Seen
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner

server = {{"segment": 1 << 20, "spawn": ["session", "double_fork"], "ignores": True, "ready": float(sys.argv[2])}}
wanted = assignment(Path(sys.argv[1]), {{"server": server, "acts": [{{"do": "sleep", "at": 2}}]}})
local_runner({HOME!r}).run(wanted, Seen(), FakeStop())
"""


VERIFIER = f"""
import sys
from pathlib import Path
from autotune.ports import ServerLaunch
from autotune.running.local import TOOL, study_tag, tool_owner
from autotune.running.companion import server_beside
from tests.contracts.runner_suite import RealClock
from tests.support.fakes import FakeStop

port, folder = int(sys.argv[2]), Path(sys.argv[1])
script = '{{"spawn": ["session", "double_fork"], "ignores": true}}'
argv = (sys.executable, {str(SERVER)!r}, str(port), "name", script)
launch = ServerLaunch(argv=argv, health=f"http://127.0.0.1:{{port}}/health", answer="", ready_s=60)
with server_beside(launch, folder, study_tag({HOME!r}, TOOL) + tool_owner() + ":verify", FakeStop(), clock=RealClock()):
    (folder / "ready").touch()
    RealClock().sleep(600)
"""


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    left = tagged(HOME)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
    assert listened(tmp_path) == set()


def start(directory: Path, ready: float) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", TUNER, str(directory), str(ready)]
    return subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def segment(directory: Path) -> Path:
    return Path("/dev/shm") / (directory / "scratch" / "segment").read_text().lstrip("/")


def end(tuner: subprocess.Popen[bytes]) -> None:
    tuner.kill()
    tuner.wait()


def test_both_are_swept_with_what_they_held(tmp_path: Path) -> None:
    directory = tmp_path / "attempt"
    tuner = start(directory, 0)
    try:
        wait_for(lambda: metrics(tmp_path).count('"kind":"cycle"') >= 2)
    finally:
        end(tuner)
    left, held = tagged(HOME), segment(directory)
    assert len(left) >= 4, "trial, server and its two grandchildren outlive a killed tuner"
    assert held.exists()
    assert set(left) <= set(local_runner(HOME).sweep(1))
    assert tagged(HOME) == []
    assert not held.exists()


@pytest.mark.parametrize("seed", range(6))
def test_whenever_the_tuner_is_killed_nothing_is_left(tmp_path: Path, seed: int) -> None:
    """Before the server, while it starts, between the two, and while both run."""
    directory = tmp_path / "attempt"
    tuner = start(directory, 0.3)
    try:
        wait_for(directory.exists)
        time.sleep(random.Random(seed).random())
    finally:
        end(tuner)
    local_runner(HOME).sweep(1)
    assert tagged(HOME) == []
    if (directory / "scratch" / "segment").exists():
        assert not segment(directory).exists()


def test_the_server_of_a_killed_verification_is_swept(tmp_path: Path) -> None:
    """It is no study's, so the next tuner knows it by the process that started it and is gone."""
    (port,) = free_ports(1)
    argv = [sys.executable, "-c", VERIFIER, str(tmp_path), str(port)]
    tuner = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_for((tmp_path / "ready").exists)
        assert local_runner(HOME).sweep(1) == (), "of one that lives nothing is taken"
    finally:
        end(tuner)
    left = tagged(HOME)
    assert len(left) >= 3, "the server and its two grandchildren outlive it"
    assert set(left) <= set(local_runner(HOME).sweep(1))
    assert tagged(HOME) == []
