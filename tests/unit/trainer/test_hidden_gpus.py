"""What the tests start as a trial on the CPU runs on the CPU, on a machine with a GPU too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.trl_trials import QUIET, RewardSpec, hidden, tiny_spec, write_spec


def test_a_trial_on_the_cpu_sees_no_gpu_and_another_sees_all(tmp_path: Path) -> None:
    spec = tiny_spec(tmp_path, RewardSpec("file", "reward", "reward.py"), QUIET)
    for device, expected in (("cpu", {"CUDA_VISIBLE_DEVICES": ""}), ("cuda", {})):
        write_spec(tmp_path / device, replace(spec, device=device))
        assert hidden(tmp_path / device) == expected


def test_what_is_no_specification_hides_nothing(tmp_path: Path) -> None:
    assert hidden(tmp_path) == {}
    (tmp_path / "config.json").write_text("[")
    assert hidden(tmp_path) == {}
