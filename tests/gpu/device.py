"""What the GPU tests run on, and what they need there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import MachineError
from autotune.machine import hardware, nvml
from tests.support.trl_trials import Ran, end, launch, training_python, write_spec
from trainer.child.contract import TrialSpec

WATCHED = Path(__file__).with_name("watched_trial.py")
CPU = "cpu"
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
BOTH = (CPU, CUDA)
ASKED = """
import importlib.metadata, importlib.util, json, torch
names = ("vllm", "deepspeed", "torchao", "flash_attn")
there = {n: importlib.metadata.version(n) for n in names if importlib.util.find_spec(n) and n in known()}
print(json.dumps({"cuda": torch.cuda.is_available(), "packages": there}))
""".replace("known()", "{d.metadata['Name'].replace('-', '_') for d in importlib.metadata.distributions()}")


def _look() -> tuple[tuple[nvml.Gpu, ...], str]:
    try:
        gpus = hardware.visible_gpus()
    except MachineError as error:
        return (), str(error)
    return gpus, "no CUDA GPU is visible here, so this is not yet measured on a GPU"


GPUS, WHY_NOT = _look()


@cache
def training() -> Mapping[str, Any]:
    """What the training interpreter has: ``cuda``, and ``packages`` with their versions."""
    run = subprocess.run([training_python(), "-c", ASKED], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


def require(*packages: str, capability: tuple[int, int] = (0, 0), gpus: int = 1) -> None:
    """Skip what cannot run on this GPU or in this environment, naming what is missing."""
    if len(GPUS) < gpus:
        pytest.skip(f"needs {gpus} GPUs, and {len(GPUS)} is visible")
    if not training()["cuda"]:
        pytest.skip("the training interpreter's torch is not a CUDA build, or does not find the GPU")
    missing = [name for name in packages if name not in training()["packages"]]
    if missing:
        pytest.skip(f"the training environment has no {', '.join(missing)}")
    have = GPUS[0].compute_capability
    if have < capability:
        pytest.skip(f"needs compute capability {capability[0]}.{capability[1]}, and this GPU has {have[0]}.{have[1]}")


def watched(directory: Path, spec: TrialSpec, device_bytes: int | None = None) -> Ran:
    """A trial whose synchronisations are counted; ``device_bytes`` is all its process may have of the GPU."""
    paths = write_spec(directory, spec)
    words = [directory] if device_bytes is None else [directory, Path(str(device_bytes))]
    process = launch(WATCHED, words, paths.scratch)
    end(process)
    assert paths.result.exists(), paths.log.read_text()[-3000:]
    return Ran(directory)


def synchronised(ran: Ran) -> dict[str, Any]:
    """What ``watched_trial.py`` counted."""
    found: dict[str, Any] = json.loads((ran.paths.root / "synchronised.json").read_text())
    return found
