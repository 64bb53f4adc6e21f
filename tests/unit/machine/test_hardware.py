from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import MachineError
from autotune.machine import hardware
from autotune.machine.hardware import Files
from tests.support.imports import of
from tests.support.made_up_files import write

GIB = 1 << 30


class FakeNvml:
    """The part of ``nvidia-ml-py`` that is used, with its names and its error."""

    class NVMLError(Exception):
        pass

    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, gpus: list[dict[str, Any]], driver: bool = True) -> None:
        self.gpus, self.driver, self.open = gpus, driver, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("no driver")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.95.05"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        if self.gpus[index].get("lost"):
            raise self.NVMLError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: int = 1) -> Any:  # noqa: N802
        return SimpleNamespace(total=handle["memory"], used=handle["used"] if version == 2 else handle["used"] + GIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: dict[str, Any]) -> list[int]:  # noqa: N802
        return list(handle["capability"])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=p, usedGpuMemory=None) for p in handle.get("pids", ())]

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> str:  # noqa: N802
        return str(handle["uuid"])

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> bytes:  # noqa: N802
        return b"Example 80GB"

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> list[int]:  # noqa: N802
        if "slices" not in handle:
            raise self.NVMLError("not supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], index: int) -> dict[str, Any]:  # noqa: N802
        if index >= len(handle["slices"]):
            raise self.NVMLError("not found")
        return dict(handle["slices"][index])


def gpu(letter: str, **changes: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{letter}{letter}", "memory": 80 * GIB, "used": 0, "capability": (9, 0), **changes}


@pytest.mark.parametrize(("visible", "uuids"), of("the_visible_gpus_are_cudas"))
def test_the_visible_gpus_are_cudas(visible: str | None, uuids: list[str]) -> None:
    nvml = FakeNvml([gpu("a"), gpu("b"), gpu("c")])
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [g.uuid for g in hardware.visible_gpus(environment, nvml)] == uuids
    assert nvml.open == 0


SLICED = gpu("b", slices=[gpu("p", uuid="MIG-pp", memory=10 * GIB), gpu("q", uuid="MIG-qq", memory=20 * GIB, used=GIB)])


@pytest.mark.parametrize(("visible", "uuids"), of("slices_stand_for_the_gpu_they_were_cut_from"))
def test_slices_stand_for_the_gpu_they_were_cut_from(visible: str | None, uuids: list[str]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = hardware.visible_gpus(environment, FakeNvml([gpu("a"), SLICED]))
    assert [g.uuid for g in found] == uuids


def test_a_slice_has_a_memory_and_a_name_for_cuda_of_its_own() -> None:
    whole, part = hardware.visible_gpus({"CUDA_VISIBLE_DEVICES": "0,MIG-qq"}, FakeNvml([gpu("a"), SLICED]))
    assert (part.memory, part.memory_used, part.mig, part.index) == (20 * GIB, GIB, True, 1)
    assert (whole.cuda_name, part.cuda_name) == ("0", "MIG-qq")


def test_without_a_driver_there_is_no_gpu_and_one_that_fell_off_the_bus_is_a_named_problem() -> None:
    assert hardware.visible_gpus({}, FakeNvml([gpu("a")], driver=False)) == ()
    nvml = FakeNvml([gpu("a", lost=True)])
    with pytest.raises(MachineError, match="GPU is lost"):
        hardware.visible_gpus({}, nvml)
    assert nvml.open == 0


def test_a_gpu_that_is_lost_while_the_machine_is_read_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([gpu("a"), gpu("b")])

    def last_answer(handle: dict[str, Any]) -> list[int]:
        handle["lost"] = handle["uuid"] == "GPU-bb"
        return [0, 0, 0, 0]

    monkeypatch.setattr(nvml, "nvmlDeviceGetRemappedRows", last_answer, raising=False)
    assert [each.index for each in hardware.visible_gpus({}, nvml)] == [0, 1]


@pytest.mark.parametrize(("driver", "fits"), [("580.95.05", True), ("595.1", True), ("575.57", False), ("", False)])
def test_an_old_driver_is_explained(driver: str, fits: bool) -> None:
    problem = hardware.driver_problem(driver)
    assert (problem is None) == fits
    assert fits or "580" in str(problem)


def test_a_control_group_limits_memory_in_both_versions(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\n")
    write(tmp_path, "proc/self/cgroup", "4:memory:/job/step\n0::/user/job\n")
    here = Files(tmp_path / "proc", tmp_path / "cgroup")
    assert hardware.usable_memory(here) == 64 * GIB
    write(tmp_path, "cgroup/memory/job/step/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, "cgroup/memory/job/memory.limit_in_bytes", str(32 * GIB))
    assert hardware.usable_memory(here) == 32 * GIB, "a parent's limit holds too"
    write(tmp_path, "cgroup/user/memory.max", str(16 * GIB))
    write(tmp_path, "cgroup/user/job/memory.max", "max\n")
    assert hardware.usable_memory(here) == 16 * GIB


@pytest.mark.parametrize(("quota", "cores"), [("100000 100000", 1), ("max 100000", None), ("50000 100000", 1)])
def test_a_quota_limits_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/job\n")
    write(tmp_path, "cgroup/job/cpu.max", quota)
    found = hardware.usable_cores(Files(tmp_path / "proc", tmp_path / "cgroup"))
    assert found == (cores or len(os.sched_getaffinity(0)))


def test_a_version_1_quota_limits_the_cores(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "1:cpu,cpuacct:/job\n")
    write(tmp_path, "cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "100000")
    write(tmp_path, "cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    assert hardware.usable_cores(Files(tmp_path / "proc", tmp_path / "cgroup")) == 1


def test_a_machine_that_tells_nothing_still_has_a_core(tmp_path: Path) -> None:
    nothing = Files(tmp_path / "proc", tmp_path / "cgroup")
    assert hardware.usable_cores(nothing) >= 1
    assert hardware.usable_memory(nothing) is None
    assert (hardware.by_core((3, 1), tmp_path), hardware.threads_of_core(tmp_path)) == ((1, 3), 1)
    assert hardware.cpu_model(nothing)
    assert not hardware.driver_process_ids_are_ours(nothing)


@pytest.mark.parametrize(("line", "emulates"), of("a_cpu_without_instructions_for_bf16_is_known_by_its_flags"))
def test_a_cpu_without_instructions_for_bf16_is_known_by_its_flags(tmp_path: Path, line: str, emulates: bool) -> None:
    write(tmp_path, "proc/cpuinfo", f"processor\t: 0\n{line}\n")
    assert hardware.emulates_bf16(Files(tmp_path / "proc", tmp_path / "cgroup")) is emulates


def test_the_description_holds_nothing_that_changes_by_itself() -> None:
    idle = hardware.visible_gpus({}, FakeNvml([gpu("a")]))
    busy = hardware.visible_gpus({}, FakeNvml([gpu("a", used=9 * GIB, pids=[3])]))
    assert hardware.describe(gpus=idle) == hardware.describe(gpus=busy)
    assert hardware.describe(gpus=idle) != hardware.describe(gpus=())


def test_the_compiler_is_the_one_inductor_asks_for(tmp_path: Path) -> None:
    nowhere = {"PATH": str(tmp_path)}
    assert (hardware.compiler_name({}), hardware.compiler_name({"CXX": "mine"})) == ("g++", "mine")
    assert hardware.compiler(nowhere) is None
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert hardware.compiler(nowhere) is None
    assert hardware.compiler({**nowhere, "CXX": "mine"}) == str(program)


def test_the_smallest_gpu_speaks_for_all_and_without_one_it_is_a_cpu_machine() -> None:
    gpus = hardware.visible_gpus({}, FakeNvml([gpu("a"), gpu("b", memory=24 * GIB, capability=(8, 6))]))
    found = hardware.resources(gpus=gpus)
    assert (found.gpus, found.device, found.device_memory, found.compute_capability) == (2, "cuda", 24 * GIB, (8, 6))
    none = hardware.resources(gpus=())
    assert (none.gpus, none.device, none.device_memory) == (0, "cpu", None)
    assert none.host_memory


def test_a_process_computes_on_a_gpu_if_it_has_one_open(tmp_path: Path) -> None:
    files = hardware.Files(proc=tmp_path)
    for pid, target in ((5, "/dev/nvidia0"), (6, "/dev/nvidia-uvm"), (7, "/dev/null"), (8, "socket:[17]")):
        folder = tmp_path / str(pid) / "fd"
        folder.mkdir(parents=True)
        (folder / "0").symlink_to("/dev/null")
        (folder / "3").symlink_to(target)
    assert [pid for pid in (5, 6, 7, 8, 40_005) if hardware.has_gpu_open(pid, files)] == [5, 6]


def test_a_process_that_may_not_be_looked_into_might_compute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    assert hardware.has_gpu_open(1, hardware.Files(proc=tmp_path))
