"""Reads the hardware this process may use. Starts no process."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import Gpu, read_machine
from search_spaces.configuration import Resources

GPU_LOCK_DRIVER = 580
"""Oldest driver branch the locked GPU packages run on."""
GPU_DEVICES = ("/dev/nvidia", "/dev/dxg")
"""What a process that computes on a GPU has open, in a Linux and in one under Windows."""
BF16_FLAGS = (frozenset({"avx512bw", "avx512vl", "avx512dq"}), frozenset({"avx_ne_convert"}), frozenset({"bf16"}))
"""Sets of CPU flags, any of which oneDNN needs for matrices in bf16 (its documentation, "Data Types"; the last is
Arm's). Without, PyTorch multiplies them with loops of its own."""
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
UNLIMITED = 1 << 60
"""Bytes above which a version 1 control group means "no limit"."""


@dataclass(frozen=True)
class Files:
    """Paths of the kernel's files about the machine."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    sys: Path = Path("/sys")


HOST = Files()


def compiler_name(environment: Mapping[str, str] | None = None) -> str:
    """The C++ compiler that PyTorch's inductor will ask for: ``CXX``, else ``g++``."""
    return (os.environ if environment is None else environment).get("CXX") or "g++"


def compiler(environment: Mapping[str, str] | None = None) -> str | None:
    """Path of that compiler; ``None`` if it is not installed."""
    variables = os.environ if environment is None else environment
    return shutil.which(compiler_name(variables), path=variables.get("PATH"))


def visible_gpus(environment: Mapping[str, str] | None = None, library: Any = None) -> tuple[Gpu, ...]:
    """The GPUs and slices of GPUs ``CUDA_VISIBLE_DEVICES`` leaves, in its order; empty without a driver.

    A number in it counts as NVML and ``nvidia-smi`` do, by the place on the bus. A GPU that nothing can compute on
    (``unfit_gpus``) is left out.

    Args:
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.

    Raises:
        MachineError: the driver is there but a GPU cannot be read (lost, resetting).
    """
    found = read_machine(library)
    chosen = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return _devices(found.gpus)
    unfit = {name for fault in found.unfit for name in (str(fault.index), fault.uuid)}
    return _select(found.gpus, [word for word in map(str.strip, chosen.split(",")) if word not in unfit])


def unfit_gpus(library: Any = None) -> tuple[GpuFault, ...]:
    """The machine's GPUs that no process can compute on; ``visible_gpus`` leaves them out.

    Raises:
        MachineError: as ``visible_gpus``.
    """
    return read_machine(library).unfit


def _devices(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs, each cut one replaced by its slices."""
    return tuple(device for gpu in gpus for device in gpu.slices or (gpu,))


def _select(gpus: tuple[Gpu, ...], chosen: Iterable[str]) -> tuple[Gpu, ...]:
    """CUDA's rule: by index or start of the UUID; the first that does not exist ends the list."""
    selected: list[Gpu] = []
    for word in chosen:
        named = _named(gpus, word)
        if not named or set(named) & set(selected):
            break
        selected.extend(named)
    return tuple(selected)


def _named(gpus: tuple[Gpu, ...], word: str) -> tuple[Gpu, ...]:
    """The GPU, the slice, or all slices of the GPU ``word`` stands for; nothing if it is not one."""
    if word.startswith("MIG-"):
        found = [part for gpu in gpus for part in gpu.slices if part.uuid.startswith(word)]
        return tuple(found) if len(found) == 1 else ()
    whole = [g for g in gpus if word == str(g.index) or (word.startswith("GPU-") and g.uuid.startswith(word))]
    return _devices(whole) if len(whole) == 1 else ()


def driver_process_ids_are_ours(files: Files = HOST) -> bool:
    """False in a container with its own process ids: the driver reports the host's."""
    try:
        return os.readlink(files.proc / "self" / "ns" / "pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def has_gpu_open(pid: int, files: Files = HOST) -> bool:
    """Whether ``pid`` is a process of this system with a GPU's device open, as each that computes on one has.

    Where the driver is reached through a virtual machine's host its ids can be the host's, though no container is
    to be seen: such an id is nobody's here, or that of somebody who has nothing to do with a GPU. True for a process
    whose open files are not ours to read.
    """
    folder = files.proc / str(pid) / "fd"
    try:
        return any(_target(handle).startswith(GPU_DEVICES) for handle in folder.iterdir())
    except PermissionError:
        return True
    except OSError:
        return False


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


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
    """The CPU's name by the kernel; the architecture where it gives none."""
    for line in kernel_text(files.proc / "cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def emulates_bf16(files: Files = HOST) -> bool:
    """Whether its CPU is known to have no instructions that PyTorch multiplies bf16 matrices with (``BF16_FLAGS``)."""
    for line in kernel_text(files.proc / "cpuinfo").splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return not any(needed <= set(flags.split()) for needed in BF16_FLAGS)
    return False


def usable_cores(files: Files = HOST) -> int:
    """Cores this process may keep busy: affinity, and the control group's quota rounded up."""
    quotas = [q for group in groups(files, "cpu") if (q := _quota(group)) is not None]
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *(int(-(-q // 1)) for q in quotas)]))


def usable_memory(files: Files = HOST) -> int | None:
    """Bytes: the machine's memory or the tightest control group limit; ``None`` if neither is told."""
    limits = [group.limit for group in memory_limits(files)]
    for line in kernel_text(files.proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            limits.append(int(line.split()[1]) * 1024)
    return min(limits, default=None)


@dataclass(frozen=True)
class MemoryLimit:
    """Memory limit of one control group of this process, in bytes."""

    limit: int
    used: int
    """What the kernel could not take back: without its cache of files."""


def contained_memory(files: Files = HOST) -> int | None:
    """Bytes that a trial may take where a control group, as a container's, has a limit: the kernel would end any of its
    processes, the tuner too. An eighth of the limit is left to the tuner, at least 512 MiB and at most 2 GiB. ``None``:
    no limit."""
    limit = min((group.limit for group in memory_limits(files)), default=None)
    if limit is None:
        return None
    return max(limit // 2, limit - min(2 << 30, max(512 << 20, limit // 8)))


def memory_limits(files: Files = HOST) -> Iterator[MemoryLimit]:
    """Memory limits of this process's control groups, the innermost first; groups without a limit are left out."""
    for group in groups(files, "memory"):
        for limit, used, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            text = kernel_text(group / limit).strip()
            if text.isdigit() and int(text) < UNLIMITED:
                taken = int(kernel_text(group / used).strip() or 0) - _statistic(group, cache)
                yield MemoryLimit(int(text), max(0, taken))


def _statistic(group: Path, name: str) -> int:
    words = (line.split() for line in kernel_text(group / "memory.stat").splitlines())
    return next((int(found[1]) for found in words if found and found[0] == name), 0)


def _quota(group: Path) -> float | None:
    """Cores by ``cpu.max`` (version 2) or ``cpu.cfs_quota_us`` (version 1)."""
    words = kernel_text(group / "cpu.max").split() or [
        kernel_text(group / "cpu.cfs_quota_us").strip(),
        kernel_text(group / "cpu.cfs_period_us").strip(),
    ]
    if len(words) != 2 or not all(w.isdigit() for w in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def groups(files: Files, controller: str) -> Iterator[Path]:
    """This process's control group and all above it, of both versions."""
    for line in kernel_text(files.proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = files.cgroup / controllers if controllers else files.cgroup
        group = root / path.lstrip("/")
        while group != root:
            yield group
            group = group.parent
        yield root


def kernel_text(path: Path) -> str:
    """Text of a file of the kernel; empty if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def describe(files: Files = HOST, gpus: tuple[Gpu, ...] | None = None) -> dict[str, Any]:
    """Hardware part of the fingerprint: only properties that stay the same while nothing is changed."""
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
    """Resources of this machine; of several GPUs the smallest counts."""
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
