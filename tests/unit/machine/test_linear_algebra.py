"""Linear algebra of the tuner's process."""

import os
import subprocess
import sys

SCRIPT = """
import numpy
from threadpoolctl import threadpool_info
from autotune.wiring import use_one_thread

def threads():
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]

before = threads()
use_one_thread()
print(before, threads())
"""


def test_one_thread_from_now_on() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment)
    assert answer.stdout.strip() == "[2] [1]"
