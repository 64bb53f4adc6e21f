"""What a process that is kept for further trials ends, and sets again, of torch; where batching leaves its error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.trl_trials import training_python

pytestmark = [pytest.mark.slow, pytest.mark.trl]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, threading

def children():
    return sum(open(f"/proc/self/task/{t}/children").read().split() != [] for t in os.listdir("/proc/self/task"))

import torch._inductor.config as config
config.compile_threads = 2
from torch._inductor.async_compile import AsyncCompile
from trainer.child.frameworks.trl.kept import end_compile_workers

for _ in range(2):  # it starts them again on demand
    AsyncCompile.process_pool()
    begun = children()
    end_compile_workers()
    print(begun > 0, children())
"""


PRODUCTS = """
import os, sys, types, torch
from trainer.child.frameworks.trl import kept

trial = types.SimpleNamespace(kept={})
module = sys.modules[kept.MODULE] = types.ModuleType(kept.MODULE)
for precision in "highest", "highest", "medium":
    os.environ["VLLM_FLOAT32_MATMUL_PRECISION"] = precision
    module.LLM = lambda model: torch.set_float32_matmul_precision(precision) or "an engine"
    kept.hand_on(trial)
    torch.set_float32_matmul_precision("high")  # this trial's TF32, set before its engine is there
    module.LLM(model="m")
    print(torch.get_float32_matmul_precision())
"""
ENDED = """
from types import SimpleNamespace as Of
from trainer.child.frameworks.trl.drive import _ended_by

error = MemoryError()
for manager in Of(fatal_error=error), Of(background_thread_status=Of(fatal_error=error)):
    print(_ended_by(manager, {}, 1) is error)
"""


RUNS = {
    "compilers-processes": (SCRIPT, ["True", "0", "True", "0"]),
    "precision-of-products": (PRODUCTS, ["highest", "highest", "medium"]),
    "error-of-a-batch": (ENDED, ["True", "True"]),
}


@pytest.mark.parametrize(("script", "lines"), RUNS.values(), ids=RUNS)
def test_what_only_a_gpu_reaches_does_as_is_said(script: str, lines: list[str]) -> None:
    answer = subprocess.run([training_python(), "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == lines
