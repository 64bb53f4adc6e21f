"""The real NVML binding, and what asks the driver by itself, over a library of our own (``tests/support/nvidia``)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support import nvidia
from tests.support.trl_trials import ROOT

GIB = 2**30
READ = """
from dataclasses import asdict
from autotune.errors import MachineError
from autotune.machine.nvml import open_gpus, read_machine
try:
    machine = read_machine()
except MachineError as error:
    found = {"error": str(error)}
else:
    found = asdict(machine)
    reader = open_gpus([gpu.uuid for gpu in machine.gpus[:1]])
    found["readings"] = [asdict(reader.read()[0]) for _ in range(3)]
    found["faults"] = [asdict(fault) for fault in reader.faults()]
    reader.close()
found["left_open"] = ctypes.CDLL("libnvidia-ml.so.1").nvml_opened()
"""
ASK = """
import pathlib, sys, tempfile
from trainer.child.preload import GpuOpenWatch, driver_capability, uses_gpu
found = {"capability": driver_capability(), "unloaded": uses_gpu()}
driver = ctypes.CDLL("libcuda.so.1")
found["loaded"] = uses_gpu()
folder = tempfile.mkdtemp()
sys.path.insert(0, folder)
body = "import ctypes, colorsys\\nctypes.CDLL('libcuda.so.1').cuInit(0)\\nimport wave"
pathlib.Path(folder, "opens.py").write_text(body)
with GpuOpenWatch(there=True) as watch:
    import opens
found["culprit"], found["initialised"] = watch.culprit, uses_gpu()
"""


def answers(script: str, **driver: object) -> Any:
    """What ``script`` puts into ``found``, in a process that has the libraries."""
    whole = f"import ctypes, json\n{script}\nprint(json.dumps(found))"
    command = [sys.executable, "-c", whole]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=nvidia.environment(**driver)
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_gpus_are_read_by_the_real_binding() -> None:
    found = answers(READ)
    first, second = found["gpus"]
    assert [first["index"], second["index"]] == [0, 1]
    assert first["uuid"] == "GPU-00000000-0000-0000-0000-000000000000"
    assert (first["name"], first["compute_capability"]) == ("NVIDIA H100 80GB HBM3", [9, 0])
    assert (first["memory"], first["memory_used"]) == (80 * GIB, GIB), "the driver's own share is left out"
    assert first["processes"] == [{"pid": 4242, "memory": GIB // 2}, {"pid": 4243, "memory": None}]
    assert (first["driver"], first["mig"], first["persistent"]) == ("580.159.04", False, True)
    assert found["left_open"] == 0


def test_readings_have_their_units_and_counters_go_on_where_they_begin_again() -> None:
    one, two, three = answers(READ)["readings"]
    assert (one["busy"], one["sm_mhz"], one["sm_mhz_max"]) == (0.25, 1929.0, 1980.0)
    assert (one["watts"], one["joules"], one["celsius"]) == (350.5, 7.5, 61.0)
    assert (one["power_capped"], one["hot"]) == (1.0, 0.0)
    assert [each["pcie_sent"] for each in (one, two, three)] == [0, 1500, 3000], "32 bits of them"
    assert [each["nvlink_received"] for each in (one, two, three)] == [0, 10 * 1024, 20 * 1024]


def test_a_gpu_that_answers_little_is_read_all_the_same() -> None:
    found = answers(READ, plain=1)
    assert found["gpus"][0]["memory_used"] == 2 * GIB
    assert found["gpus"][0]["persistent"] is None
    assert set(found["readings"][2].values()) == {None}


def test_slices_are_told_apart_from_their_gpu() -> None:
    (gpu,) = answers(READ, gpus=1, slices=2)["gpus"]
    assert gpu["mig"]
    assert [each["uuid"] for each in gpu["slices"]] == [
        f"MIG-00000000-0000-0000-0000-00000000000{place}" for place in (1, 2)
    ]
    assert gpu["slices"][0]["name"].endswith("MIG 1g.10gb")


def test_a_lost_gpu_is_left_out_and_a_driver_without_another_is_an_error() -> None:
    found = answers(READ, lost=0)
    assert [gpu["index"] for gpu in found["gpus"]] == [1]
    assert [fault["index"] for fault in found["unfit"]] == [0]
    assert "GPU is lost" in answers(READ, gpus=1, lost=0)["error"]


@pytest.mark.parametrize(("xid", "count"), [(79, 1), (13, 0)])
def test_an_event_of_the_driver_is_a_fault_where_the_gpu_is_to_blame(xid: int, count: int) -> None:
    found = answers(READ, xid=xid)
    assert len(found["faults"]) == count
    assert all(fault["uuid"] == found["gpus"][0]["uuid"] for fault in found["faults"])


def test_only_initialised_cuda_counts_as_an_open_gpu_and_whoever_initialised_it_is_named() -> None:
    found = answers(ASK)
    assert found["capability"] == [9, 0]
    assert (found["unloaded"], found["loaded"], found["initialised"]) == (False, False, True)
    assert found["culprit"] == "opens"


def test_paths_between_gpus_and_the_cpus_beside_them() -> None:
    gpus = answers(READ, gpus=5, linked=2)["gpus"]
    assert gpus[0]["paths"] == [
        [1, "NVLink"],
        [2, "one socket"],
        [3, "one socket"],
        [4, "the link between two sockets"],
    ]
    assert [gpu["cpus"] for gpu in gpus] == [[0, 1]] * 4 + [[2, 3]]
    assert [gpu["paths"] for gpu in answers(READ, plain=1)["gpus"]] == [[], []], "not reported is not slow"
    assert [gpu["paths"] for gpu in answers(READ, gpus=3, lost=1)["gpus"]] == [[[2, "one socket"]], [[0, "one socket"]]]
