"""The remedies for slow first cycles do in the training interpreter what their variables say; on a CPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.trl_trials import (
    PLAIN,
    QUIET,
    ROOT,
    build_tiny,
    environment,
    reward_file,
    run_child,
    tiny_spec,
    training_python,
)

pytestmark = [pytest.mark.slow, pytest.mark.trl]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("remedies") / "found.json"
    command = [training_python(), str(ROOT / "tests" / "support" / "remedies_checks.py"), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent, env=environment())
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(path.read_text())


def test_cudnns_attention_is_switched_and_left_alone_without_the_variable(found: Any) -> None:
    assert found["switched"] == {"0": False, "1": True, "without": False}


def test_the_allocator_takes_the_share_once_and_keeps_it_for_others(found: Any) -> None:
    assert found["reserved"] == 500
    assert found["asked"] == [["alloc", 500], ["delete", 77]]
    assert found["without"] is None
    assert (found["on a CPU"], found["asked of none"]) == (None, [])


def test_other_values_are_refused_by_name(found: Any) -> None:
    attention, *reserves = found["refused"]
    assert attention == "IllegalSettingError: AUTOTUNE_TRIAL_CUDNN_ATTENTION: expected 0 or 1, got 'off'"
    for value, said in zip(("8GiB", "0.95", "nan"), reserves, strict=True):
        assert said == f"IllegalSettingError: AUTOTUNE_TRIAL_RESERVE: expected a share from 0 to 0.9, got '{value}'"


def test_a_trial_notes_that_its_attention_is_without_cudnns(tmp_path: Path) -> None:
    """And on a CPU reserves nothing."""
    tiny = build_tiny(tmp_path)
    spec = tiny_spec(tiny, reward_file(tiny / "reward", PLAIN), QUIET)
    variables = {"AUTOTUNE_TRIAL_CUDNN_ATTENTION": "0", "AUTOTUNE_TRIAL_RESERVE": "0.5"}
    ran, _ = run_child([training_python()], tmp_path / "run", spec, variables)
    assert ran.result.ok, ran.result.detail
    kernels = ran.note("attention").data["sdpa"]
    assert "cudnn" not in kernels
    assert "flash" in kernels
    assert not any(getattr(record, "name", "") == "reserved" for record in ran.records)
