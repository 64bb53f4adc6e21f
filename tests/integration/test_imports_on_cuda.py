"""No import ahead of a trial opens a GPU: the installed packages on a made-up H100."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import nvidia
from tests.support.trl_trials import ROOT, build_tiny, environment, tiny_spec, training_python, write_spec
from trainer.child.contract import RewardSpec

pytestmark = [pytest.mark.slow, pytest.mark.trl]


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_nothing_opens_the_gpu(tmp_path: Path, engine: str) -> None:
    spec = replace(tiny_spec(build_tiny(tmp_path / "tiny"), RewardSpec("reasoning_gym", "chain_sum")), device="cuda")
    if engine == "vllm":
        spec = replace(spec, settings={**spec.settings, "use_vllm": True})
    paths = write_spec(tmp_path / "trial", spec)
    script, out = ROOT / "tests" / "support" / "made_up_cuda.py", tmp_path / "found.json"
    run = subprocess.run(
        [training_python(), str(script), str(paths.config), str(out)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=nvidia.environment(environment()),
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: Any = json.loads(out.read_text())
    assert found["noted"] == []
    assert found["culprit"] == ""
    assert found["platform"] == ("NvmlCudaPlatform" if engine == "vllm" else "")
