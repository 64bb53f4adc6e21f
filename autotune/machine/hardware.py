"""Reads the hardware that this process may use. Starts no process."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import NVLINK, Gpu, read_machine
from search_spaces.configuration import Resources


def nvlink_groups(gpus: Sequence[Gpu]) -> list[list[int]]:
    """Returns groups of indices of ``gpus`` in which NVLink connects every two; empty if no paths are reported."""
    if len(gpus) < 2 or not all(gpu.paths for gpu in gpus):
        return []
    groups: list[list[int]] = []
    for place, gpu in enumerate(gpus):
        paths = dict(gpu.paths)
        group = next((g for g in groups if all(paths.get(gpus[other].index) == NVLINK for other in g)), None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    return groups


def slow_paths(gpus: Sequence[Gpu]) -> str | None:
    """Names GPUs that exchange data slowly; ``None`` if NVLink joins all of them or no paths are reported."""
    groups = [[gpus[place] for place in group] for group in nvlink_groups(gpus)]
    if len(groups) < 2:
        return None
    one, other = groups[0][0], groups[1][0]
    text = f"GPUs {one.index} and {other.index} are not joined by NVLink (they meet at {dict(one.paths)[other.index]})"
    joined = [", ".join(str(gpu.index) for gpu in group) for group in groups if len(group) > 1]
    if joined:
        text += f"; NVLink joins {' and '.join(f'GPUs {each}' for each in joined)}"
    return f"{text}: ZeRO-3 and tensor parallelism over GPUs that are not joined are slow"


GPU_LOCK_DRIVER = 580
"""Oldest driver branch that the locked GPU packages run on."""
GPU_DEVICES = ("/dev/nvidia", "/dev/dxg")
"""Device files that a process computing on a GPU has open, on Linux and on Linux under Windows."""
BF16_FLAGS = (frozenset({"avx512bw", "avx512vl", "avx512dq"}), frozenset({"avx_ne_convert"}), frozenset({"bf16"}))
"""Sets of CPU flags; oneDNN needs any one of them for bf16 matrices (its documentation, "Data Types"; the last set is
Arm's). Without them, PyTorch multiplies such matrices in plain loops."""
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
    """Returns the name of the C++ compiler that PyTorch's inductor calls: ``CXX``, else ``g++``."""
    return (os.environ if environment is None else environment).get("CXX") or "g++"


def compiler(environment: Mapping[str, str] | None = None) -> str | None:
    """Returns the path of the compiler of ``compiler_name``; ``None`` if it is not installed."""
    variables = os.environ if environment is None else environment
    return shutil.which(compiler_name(variables), path=variables.get("PATH"))


def visible_gpus(environment: Mapping[str, str] | None = None, library: Any = None) -> tuple[Gpu, ...]:
    """Lists the GPUs and slices that ``CUDA_VISIBLE_DEVICES`` leaves, in its order; empty without a driver.

    Its numbers follow the order on the bus, as those of NVML and ``nvidia-smi`` do. Omits unfit GPUs (``unfit_gpus``).

    Args:
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.

    Raises:
        MachineError: the driver exists but none of its GPUs can be read (lost, resetting).
    """
    found = read_machine(library)
    chosen = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return _devices(found.gpus)
    unfit = {name for fault in found.unfit for name in (str(fault.index), fault.uuid)}
    return _select(found.gpus, [word for word in map(str.strip, chosen.split(",")) if word not in unfit])


def unfit_gpus(library: Any = None) -> tuple[GpuFault, ...]:
    """Lists the faults of GPUs that no process can compute on. Raises ``MachineError`` as ``visible_gpus`` does."""
    return read_machine(library).unfit


def _devices(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Returns the GPUs, with each partitioned GPU replaced by its slices."""
    return tuple(device for gpu in gpus for device in gpu.slices or (gpu,))


def _select(gpus: tuple[Gpu, ...], chosen: Iterable[str]) -> tuple[Gpu, ...]:
    """Selects GPUs by CUDA's rule: index or UUID prefix; the first word that matches no GPU ends the list."""
    selected: list[Gpu] = []
    for word in chosen:
        named = _gpus_named(gpus, word)
        if not named or set(named) & set(selected):
            break
        selected.extend(named)
    return tuple(selected)


def _gpus_named(gpus: tuple[Gpu, ...], word: str) -> tuple[Gpu, ...]:
    """Returns the GPU, the slice, or all slices of the GPU that ``word`` names; empty if it names none."""
    if word.startswith("MIG-"):
        found = [part for gpu in gpus for part in gpu.slices if part.uuid.startswith(word)]
        return tuple(found) if len(found) == 1 else ()
    whole = [g for g in gpus if word == str(g.index) or (word.startswith("GPU-") and g.uuid.startswith(word))]
    return _devices(whole) if len(whole) == 1 else ()


def driver_process_ids_are_ours(files: Files = HOST) -> bool:
    """Tells whether the driver reports process ids of this system; False in a container with its own process ids."""
    try:
        return os.readlink(files.proc / "self" / "ns" / "pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def has_gpu_open(pid: int, files: Files = HOST) -> bool:
    """Tells whether ``pid`` is a process of this system with an open GPU device file, as every process that computes on
    a GPU has.

    In a virtual machine the driver may report the host's process ids, which match no process here or an unrelated one.
    True for a process whose open files cannot be read.
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
    """Explains why the locked GPU packages cannot run under this driver; ``None`` if they can."""
    branch = driver.partition(".")[0]
    if branch.isdigit() and int(branch) >= GPU_LOCK_DRIVER:
        return None
    return (
        f"The GPU packages need CUDA 13, that is NVIDIA driver {GPU_LOCK_DRIVER} or newer; this machine has "
        f"{driver or 'an unknown driver'}. Update the driver, or name your own training environment with PYTHON=."
    )


def cpu_model(files: Files = HOST) -> str:
    """Returns the CPU's name from the kernel; the architecture if it gives none."""
    for line in kernel_text(files.proc / "cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def emulates_bf16(files: Files = HOST) -> bool:
    """Tells whether the CPU has no instructions for PyTorch's bf16 matrices (``BF16_FLAGS``); False if unknown."""
    for line in kernel_text(files.proc / "cpuinfo").splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return not any(needed <= set(flags.split()) for needed in BF16_FLAGS)
    return False


def by_core(cpus: Iterable[int], root: Path = Path("/sys/devices/system/cpu")) -> tuple[int, ...]:
    """Sorts CPUs by socket and core, so that threads of a core are adjacent; by number if unknown."""

    def place(cpu: int) -> tuple[int, ...]:
        names = ("physical_package_id", "core_id")
        return (*(int((root / f"cpu{cpu}" / "topology" / name).read_text()) for name in names), cpu)

    try:
        return tuple(sorted(cpus, key=place))
    except (OSError, ValueError):
        return tuple(sorted(cpus))


def threads_of_core(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Counts the CPUs of one core; 1 if unknown."""
    text = kernel_text(root / "cpu0" / "topology" / "thread_siblings")
    return max(1, int(text.replace(",", "").strip() or "1", 16).bit_count())


def usable_cores(files: Files = HOST) -> int:
    """Counts the cores that this process may use: by affinity, and by the control group's quota, rounded up."""
    quotas = [q for group in groups(files, "cpu") if (q := _quota(group)) is not None]
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *(int(-(-q // 1)) for q in quotas)]))


def usable_memory(files: Files = HOST) -> int | None:
    """Returns the bytes of memory of the machine or the tightest control group limit; ``None`` if neither is known."""
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
    """Bytes in use that the kernel cannot reclaim, so without its cache of files."""


def contained_memory(files: Files = HOST) -> int | None:
    """Returns the bytes that a trial may take under a control group's limit (in a container), at which the kernel would
    kill the tuner too. Reserves an eighth of the limit, 512 MiB to 2 GiB, for the tuner. ``None``: no limit."""
    limit = min((group.limit for group in memory_limits(files)), default=None)
    if limit is None:
        return None
    return max(limit // 2, limit - min(2 << 30, max(512 << 20, limit // 8)))


def memory_limits(files: Files = HOST) -> Iterator[MemoryLimit]:
    """Yields the memory limits of this process's control groups, innermost first; unlimited groups are skipped."""
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
    """Reads a control group's CPU quota in cores, from ``cpu.max`` (version 2) or ``cpu.cfs_quota_us`` (version 1)."""
    words = kernel_text(group / "cpu.max").split() or [
        kernel_text(group / "cpu.cfs_quota_us").strip(),
        kernel_text(group / "cpu.cfs_period_us").strip(),
    ]
    if len(words) != 2 or not all(w.isdigit() for w in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def groups(files: Files, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's control group and of all groups above it, in both versions."""
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
    """Reads a file of the kernel; empty text if it does not exist."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def describe(files: Files = HOST, gpus: tuple[Gpu, ...] | None = None) -> dict[str, Any]:
    """Describes the hardware for the fingerprint, with only properties that stay constant."""
    gpus = visible_gpus() if gpus is None else gpus
    fixed = ("name", "memory", "compute_capability", "mig")
    return {
        "cpu": cpu_model(files),
        "cores": usable_cores(files),
        "memory": usable_memory(files),
        "machine": platform.machine(),
        "driver": gpus[0].driver if gpus else None,
        "gpus": [{k: v for k, v in asdict(gpu).items() if k in fixed} for gpu in gpus],
        "nvlink": nvlink_groups(gpus),
    }


def resources(framework: str = "trl", files: Files = HOST, gpus: tuple[Gpu, ...] | None = None) -> Resources:
    """Returns the resources of this machine; memory and compute capability are the lowest of its GPUs."""
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
