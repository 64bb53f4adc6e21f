"""The runner suite on ``LocalRunner`` with the scripted child."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autotune.ports import Assignment
from tests.contracts.runner_suite import Assign, MakeRunner, TrialRunnerSuite
from tests.support.scripted import assignment, keeper, local_runner, searched


class TestLocalRunner(TrialRunnerSuite):
    @pytest.fixture
    def make_runner(self) -> MakeRunner:
        return lambda **changes: local_runner(self.home, **changes)

    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        def assign(*, slow: bool = False, deadline_s: float = 30.0) -> Assignment:
            script: dict[str, Any] = {"sleep": 0.5} if slow else {}
            return assignment(tmp_path / "attempt", script, deadline_s=deadline_s)

        return assign


class TestWarmRunner(TrialRunnerSuite):
    """The same, by a worker that stays; the assigned trial is a search trial."""

    home = f"warm-suite-{os.getpid()}"

    @pytest.fixture
    def make_runner(self, tmp_path: Path) -> MakeRunner:
        return lambda **changes: local_runner(self.home, **{"keeper": keeper(tmp_path / "workers"), **changes})

    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        def assign(*, slow: bool = False, deadline_s: float = 30.0) -> Assignment:
            script: dict[str, Any] = {"sleep": 0.5} if slow else {}
            return searched(assignment(tmp_path / "attempt", script, deadline_s=deadline_s))

        return assign
