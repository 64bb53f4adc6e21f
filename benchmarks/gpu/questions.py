"""``python -m benchmarks.gpu.questions OUT.jsonl``: what no machine without a GPU can answer, in under two minutes.

Each question has a process of its own and its seconds; its answer, or why there is none, is a line on disk before the
next is asked. Needs nothing but torch, and for imports TRL and vLLM.

  available         open files and the driver's state before and after torch says whether there is a GPU
  fork, fork-vllm   which import opens the GPU, and whether a fork of a process that has imported computes on it
  load              twenty cycles at full load: their seconds, the clock, the power, and how far they drift
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SECONDS = {"available": 15, "fork": 25, "fork-vllm": 40, "load": 20}
CYCLES, CYCLE_S = 20, 0.3
SENSORS = "clocks.sm,power.draw,temperature.gpu"


def opened() -> list[str]:
    """Files of the GPU that this process holds open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sorted({path for path in found if "nvidia" in path})


def driver() -> int | str:
    """What the driver says of itself in this process: 3 before anybody has initialised it, 0 after."""
    try:
        return int(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int())))
    except (OSError, AttributeError) as error:
        return str(error)


def available() -> dict[str, Any]:
    """What torch's question opens."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    before = {"opened": opened(), "driver": driver()}
    import torch  # noqa: PLC0415

    after_import = {"opened": opened(), "driver": driver()}
    answer = torch.cuda.is_available()
    after = {"opened": opened(), "driver": driver(), "initialised": torch.cuda.is_initialized()}
    return {
        "torch": torch.__version__,
        "is_available": answer,
        "before": before,
        "imported": after_import,
        "after": after,
    }


def fork(*names: str) -> dict[str, Any]:
    """Imports as a preloaded process does, then a fork that computes."""
    from trainer.child import preload  # noqa: PLC0415

    def bring_in(_: object) -> None:
        for name in names or ("torch", "transformers", "trl", "trl.trainer.grpo_trainer"):
            importlib.import_module(name)

    began = time.monotonic()
    device = "cuda" if os.path.exists("/dev/nvidia-uvm") else "cpu"
    culprit = preload.import_ahead(SimpleNamespace(bring_in_ahead=bring_in), SimpleNamespace(device=device))  # type: ignore[arg-type]
    found = {"imports_s": time.monotonic() - began, "culprit": culprit, "unfit": preload.unfit(culprit)}
    found |= {"opened": opened(), "driver": driver()}
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import torch  # noqa: PLC0415

            ones = torch.ones(512, 512, device=device)
            code = 0 if float((ones @ ones).sum()) == 512.0**3 else 2
        finally:
            os._exit(code)
    return {**found, "fork_ended_with": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def sensors() -> list[str]:
    """Clock, power and temperature of the first GPU; empty without one."""
    try:
        words = ["nvidia-smi", f"--query-gpu={SENSORS}", "--format=csv,noheader,nounits"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError, IndexError):
        return []


def load() -> dict[str, Any]:
    """The same work again and again, as much as the GPU can do."""
    import torch  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = 8192 if device == "cuda" else 256
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def cycle(times: int) -> float:
        began = time.monotonic()
        for _ in range(times):
            one @ one
        wait()
        return time.monotonic() - began

    cycle(3)
    times = max(1, round(CYCLE_S / (cycle(10) / 10)))
    rows = [[round(cycle(times), 5), *sensors()] for _ in range(CYCLES)]
    seconds = [float(row[0]) for row in rows]
    drift = statistics.fmean(seconds[-5:]) / statistics.fmean(seconds[:5]) - 1
    spread = statistics.stdev(seconds) / statistics.fmean(seconds)
    return {"device": device, "cycles": rows, "columns": f"seconds,{SENSORS}", "drift": drift, "spread": spread}


QUESTIONS = {"available": available, "fork": fork, "fork-vllm": lambda: fork("torch", "vllm", "trl"), "load": load}


def ask(name: str, out: Path) -> None:
    """Writes the answer of a process that is given the question's seconds."""
    began, words = time.monotonic(), [sys.executable, "-m", "benchmarks.gpu.questions", "--answer", name]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS[name], check=False)
        answer = (
            {"answer": json.loads(ran.stdout.splitlines()[-1])}
            if ran.returncode == 0
            else {"error": ran.stderr[-2000:]}
        )
    except subprocess.TimeoutExpired:
        answer = {"error": f"no answer within {SECONDS[name]} s"}
    line = json.dumps({"question": name, "seconds": round(time.monotonic() - began, 1), **answer})
    with out.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    print(line[:300], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        print(json.dumps(QUESTIONS[sys.argv[2]]()))
    else:
        for question in QUESTIONS:
            ask(question, Path(sys.argv[1]))
