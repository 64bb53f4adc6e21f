"""The runner suite on ``LocalRunner`` with the real child of a verl trial and a stand-in for verl."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.ports import Assignment
from tests.contracts.runner_suite import Assign, MakeRunner, TrialRunnerSuite
from tests.support.verl_trials import StandIn, assignment, left_by, runner


class TestVerlRunner(TrialRunnerSuite):
    home = f"verl-suite-{os.getpid()}"
    script: dict[str, Any]

    @pytest.fixture(autouse=True)
    def _leave_no_ray(self, tmp_path: Path) -> Iterator[None]:
        self.script = {}
        yield
        assert left_by(assignment(tmp_path)) == []

    @pytest.fixture
    def make_runner(self) -> MakeRunner:
        return lambda **changes: runner(self.home, StandIn(self.script), **changes)

    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        def assign(*, slow: bool = False, deadline_s: float = 30.0) -> Assignment:
            self.script.update({"step_s": 0.5} if slow else {})
            return assignment(tmp_path, deadline_s=deadline_s)

        return assign
