"""What torch's compiler leaves running in a process that is kept for further trials."""

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


def test_a_kept_process_ends_the_compilers_processes() -> None:
    answer = subprocess.run([training_python(), "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["True", "0", "True", "0"]
