"""The runner suite on ``LocalRunner`` with the scripted child."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contracts.runner_suite import Assign, MakeRunner
from tests.contracts.scripted_suite import ScriptedRunnerSuite, scripted
from tests.support.scripted import keeper, local_runner, searched


class TestLocalRunner(ScriptedRunnerSuite):
    @pytest.fixture
    def make_runner(self) -> MakeRunner:
        return lambda **changes: local_runner(self.home, **changes)


class TestWarmRunner(ScriptedRunnerSuite):
    """The same, by a worker that stays; the assigned trial is a search trial."""

    home = f"warm-suite-{os.getpid()}"

    @pytest.fixture
    def make_runner(self, tmp_path: Path) -> MakeRunner:
        return lambda **changes: local_runner(self.home, **{"keeper": keeper(tmp_path / "workers"), **changes})

    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        return lambda **changes: searched(scripted(tmp_path, **changes))
