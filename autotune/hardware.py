"""What this machine has, as far as this process may use it. The one file that speaks to NVML.

Starts no process. A machine without a driver simply has no GPU.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.errors import MachineError
from search_spaces.configuration import Resources

GPU_LOCK_DRIVER = 580
"""Oldest driver branch the locked GPU packages run on."""
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
UNLIMITED = 1 << 60
"""Bytes above which a version 1 control group means "no limit"."""


@dataclass(frozen=True)
class GpuProcess:
    """A process computing on a GPU, by the driver's process id; ``None`` bytes = not told."""

    pid: int
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver sees it now; memory in bytes."""

    index: int
    uuid: str
    name: str
    memory: int
    memory_used: int
    compute_capability: tuple[int, int]
    driver: str
    mig: bool = False
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class Files:
    """Where the kernel tells about the machine."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    sys: Path = Path("/sys")


HOST = Files()


def visible_gpus(environment: Mapping[str, str] | None = None, library: Any = None) -> tuple[Gpu, ...]:
    """The GPUs ``CUDA_VISIBLE_DEVICES`` leaves, in its order; empty without a driver.

    Args:
        environment: the process's own by default.
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.

    Raises:
        MachineError: the driver is there but a GPU cannot be read (lost, resetting).
    """
    with _nvml(library) as nvml:
        if nvml is None:
            return ()
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            found = [_gpu(nvml, i, driver) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            raise MachineError(f"the driver does not answer for its GPUs: {error}") from error
    chosen = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    return tuple(found) if chosen is None else _select(found, chosen)


def _select(gpus: list[Gpu], chosen: str) -> tuple[Gpu, ...]:
    """CUDA's rule: by index or start of the UUID; the first that does not exist ends the list."""
    selected: list[Gpu] = []
    for word in (w.strip() for w in chosen.split(",")):
        match = [g for g in gpus if word == str(g.index) or (word.startswith("GPU-") and g.uuid.startswith(word))]
        if len(match) != 1 or match[0] in selected:
            break
        selected.append(match[0])
    return tuple(selected)


@contextmanager
def _nvml(library: Any) -> Iterator[Any]:
    try:
        nvml = library or importlib.import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int, driver: str) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    # version 2 leaves out what the driver keeps for itself, which version 1 counts as used
    memory = _ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2), None)
    memory = memory or nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    processes = _ask(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), [])
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory=int(memory.total),
        memory_used=int(memory.used),
        compute_capability=(int(major), int(minor)),
        driver=driver,
        mig=bool(_ask(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0)),
        processes=tuple(GpuProcess(p.pid, p.usedGpuMemory) for p in processes),
    )


def _ask(nvml: Any, question: Callable[[], Any], otherwise: Any) -> Any:
    """An answer not every GPU has."""
    try:
        return question()
    except nvml.NVMLError:
        return otherwise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def driver_process_ids_are_ours(files: Files = HOST) -> bool:
    """False in a container with its own process ids: the driver reports the host's."""
    try:
        return os.readlink(files.proc / "self" / "ns" / "pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def driver_problem(driver: str) -> str | None:
    """Why the locked GPU packages cannot run under this driver, or ``None`` if they can."""
    branch = driver.partition(".")[0]
    if branch.isdigit() and int(branch) >= GPU_LOCK_DRIVER:
        return None
    return (
        f"The GPU packages need CUDA 13, that is NVIDIA driver {GPU_LOCK_DRIVER} or newer; this machine has "
        f"{driver or 'an unknown driver'}. Update the driver, or name your own training environment with PYTHON=."
    )


def cpu_model(files: Files = HOST) -> str:
    """Its name, by the kernel; the architecture where it gives none."""
    for line in _read(files.proc / "cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def usable_cores(files: Files = HOST) -> int:
    """Cores this process may keep busy: affinity, and the control group's quota rounded up."""
    quotas = [q for group in _groups(files, "cpu") if (q := _quota(group)) is not None]
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *(int(-(-q // 1)) for q in quotas)]))


def usable_memory(files: Files = HOST) -> int | None:
    """Bytes: the machine's memory or the tightest control group limit; ``None`` if neither is told."""
    limits = []
    for line in _read(files.proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            limits.append(int(line.split()[1]) * 1024)
    for group in _groups(files, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(group / name).strip()
            if text.isdigit() and int(text) < UNLIMITED:
                limits.append(int(text))
    return min(limits, default=None)


def _quota(group: Path) -> float | None:
    """Cores by ``cpu.max`` (version 2) or ``cpu.cfs_quota_us`` (version 1)."""
    words = _read(group / "cpu.max").split() or [
        _read(group / "cpu.cfs_quota_us").strip(),
        _read(group / "cpu.cfs_period_us").strip(),
    ]
    if len(words) != 2 or not all(w.isdigit() for w in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _groups(files: Files, controller: str) -> Iterator[Path]:
    """This process's control group and all above it, of both versions."""
    for line in _read(files.proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = files.cgroup / controllers if controllers else files.cgroup
        group = root / path.lstrip("/")
        while group != root:
            yield group
            group = group.parent
        yield root


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def describe(files: Files = HOST, gpus: tuple[Gpu, ...] | None = None) -> dict[str, Any]:
    """The hardware part of the fingerprint: nothing that changes while nothing is changed."""
    gpus = visible_gpus() if gpus is None else gpus
    fixed = ("name", "memory", "compute_capability", "mig")
    return {
        "cpu": cpu_model(files),
        "cores": usable_cores(files),
        "memory": usable_memory(files),
        "machine": platform.machine(),
        "driver": gpus[0].driver if gpus else None,
        "gpus": [{k: v for k, v in asdict(gpu).items() if k in fixed} for gpu in gpus],
    }


def resources(framework: str = "trl", files: Files = HOST, gpus: tuple[Gpu, ...] | None = None) -> Resources:
    """All of this machine that may be used; the smallest GPU speaks for all."""
    gpus = visible_gpus() if gpus is None else gpus
    least = min(gpus, key=lambda g: (g.memory, g.compute_capability)) if gpus else None
    return Resources(
        gpus=len(gpus),
        cpu_cores=usable_cores(files),
        device="cuda" if gpus else "cpu",
        device_memory=least.memory if least else None,
        host_memory=usable_memory(files),
        compute_capability=min(g.compute_capability for g in gpus) if gpus else None,
        framework=framework,
    )
