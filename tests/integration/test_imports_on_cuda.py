"""No import ahead of a trial opens a GPU: the installed packages on a made-up H100."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import nvidia
from tests.support.side_effects import effects
from tests.support.trl_trials import ROOT, build_tiny, environment, tiny_spec, training_python, write_spec
from trainer.child.contract import RewardSpec

OF_TORCHAO = {
    "torchao.float8.float8_utils: torch.cuda.is_available()",
    "torchao.prototype.mx_formats.kernels: has_triton()",
    "torchao.prototype.mx_formats.kernels: is_sm_at_least_100()",
    "torchao.prototype.mx_formats.kernels: torch.cuda.is_available()",
}
"""Asked at import, and answered without CUDA: by NVML (``is_available``), or by ``gpu_opened.ANSWERS``."""
OF_VLLM = {
    "vllm.platforms.cuda: torch.backends.cuda.enable_cudnn_sdp()",  # ``leave_out`` does the same
    "vllm.utils.torch_utils: torch.cuda.set_stream =",  # as before, and remembers which
}
EFFECTS = {"transformers": OF_TORCHAO, "vllm": OF_TORCHAO | OF_VLLM}

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
    assert set(found["effects"]) == EFFECTS[engine], "another package does something at import: answer it, then add it"
    assert found["platform"] == ("NvmlCudaPlatform" if engine == "vllm" else "")


def package(name: str) -> Path:
    """Folder of an installed package."""
    find = f"import importlib.util; print(importlib.util.find_spec({name!r}).submodule_search_locations[0])"
    run = subprocess.run([training_python(), "-c", find], capture_output=True, text=True, check=True)
    return Path(run.stdout.strip())


def test_the_worker_that_takes_the_events_out_of_torch_would_be_seen() -> None:
    """vLLM's for CPUs, imported where a GPU computes, ended every engine that compiled."""
    assert "torch.cuda.Event =" in set(effects(package("vllm") / "v1" / "worker" / "cpu" / "shm.py"))
