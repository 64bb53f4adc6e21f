"""ZeRO with an optimizer on the host: priming leaves it able to train, on DeepSpeed's CPU accelerator."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.trl_trials import ROOT, environment, training_python

pytestmark = [pytest.mark.slow, pytest.mark.trl]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("offloaded")
    command = [training_python(), str(ROOT / "tests" / "support" / "offload_steps.py"), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment())
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("place", ["", ", offloaded", ", a part offloaded"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_primed_optimizer_trains_as_another_does(cases: Any, stage: int, place: str) -> None:
    if place == ", a part offloaded" and stage < 3:
        pytest.skip("DeepSpeed offloads a part in stage 3 only")
    found = cases[f"stage {stage}{place}"]
    assert "error" not in found, found
    assert found["primed"]
    assert found["unchanged"]
    assert found["weights"] == found["plain"]
