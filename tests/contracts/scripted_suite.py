"""The runner suite with trials of the scripted child."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotune.ports import Assignment
from tests.contracts.runner_suite import Assign, TrialRunnerSuite
from tests.support.scripted import assignment


def scripted(folder: Path, *, slow: bool = False, deadline_s: float = 30.0) -> Assignment:
    script: dict[str, Any] = {"sleep": 0.5} if slow else {}
    return assignment(folder / "attempt", script, deadline_s=deadline_s)


class ScriptedRunnerSuite(TrialRunnerSuite):
    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        return partial(scripted, tmp_path)
