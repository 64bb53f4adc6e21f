"""Checks the machine: cores, memory, clock, load, GPUs, and the limits of a container or batch system."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from autotune.cli.doctor.findings import Finding, Verdict, ok, problem, warning
from autotune.errors import MachineError
from autotune.machine import gpu_choice, hardware
from autotune.machine.gpu_faults import GpuFault
from autotune.machine.hardware import slow_paths
from autotune.machine.nvml import Gpu
from autotune.machine.other_load import CpuLoad
from autotune.machine.surroundings import SHARED_MEMORY, Surroundings
from autotune.settings import HOME_VARIABLE
from autotune.wording.numbers import format_size, percent

GPU_IDLE = 1 << 30
"""Bytes in use above which a GPU counts as used by another program."""

BUSY = 0.05
"""Share of the CPU used by other programs at which a cycle is disturbed (``Protocol.outside_cpu_limit``)."""

LITTLE_MEMORY = 0.25
"""Share of the memory; less available memory causes a warning."""

ALL_GPUS = "unset CUDA_VISIBLE_DEVICES"


def check_machine(cores: int, memory: int | None, available: int | None = None) -> Finding:
    """Checks cores, memory and GPUs that this process may use."""
    if memory is None:
        return ok("machine", f"{cores} CPU cores, memory not known")
    text = f"{cores} CPU cores, {format_size(memory)} memory"
    if available is None:
        return ok("machine", text)
    text += f", {format_size(available)} of it available"
    if available < LITTLE_MEMORY * memory:
        return warning("machine", f"{text}; trials may run out of it", "ps aux --sort=-rss | head")
    return ok("machine", text)


def check_compiler(find: Callable[[str], str | None] = shutil.which, compiler: str | None = None) -> list[Finding]:
    """Warns if there is no C++ compiler, which compiled models need on a CPU. ``compiler`` is the value of ``CXX``."""
    program = compiler or "g++"
    if find(program) is not None:
        return []
    text = f"no C++ compiler ({program}): torch_compile true and enforce_eager false are not tried"
    return [warning("compiler", text, "sudo apt-get install g++")]


def check_governor(governors: Sequence[str]) -> list[Finding]:
    """Warns about a CPU governor other than ``performance``: clock and figures then depend on the previous load."""
    if not governors:
        return []
    text = f"governor {', '.join(governors)}"
    if set(governors) == {"performance"}:
        return [ok("CPU clock", text)]
    command = "sudo cpupower frequency-set -g performance"
    return [warning("CPU clock", f"{text}: cycles may drift and be repeated", command)]


def check_load(load: CpuLoad | None) -> Finding:
    """Checks the load of other programs, which disturb cycles that are then discarded and repeated."""
    if load is None:
        return ok("load", "the kernel does not tell what else runs")
    text = f"{percent(load.share)} of the CPU is in use"
    who = ", ".join(f"{name} (process {pid}, {cores:.1f} cores)" for pid, name, cores in load.busiest)
    if load.share <= BUSY:
        return ok("load", text)
    by = f" by {who}" if who else ""
    return warning("load", f"{text}{by}; above {percent(BUSY)} cycles are repeated", "top -o %CPU")


def busy_note(load: CpuLoad | None) -> str | None:
    """Returns a warning before a study on a busy machine; ``None`` on a quiet one."""
    found = check_load(load)
    return None if found.verdict is Verdict.OK else f"note: {found.detail}; figures will be less certain"


def look_at_gpus(
    every: Callable[[], Sequence[Gpu]],
    visible: Callable[[], Sequence[Gpu]],
    chosen: str | None,
    name_of: Callable[[int], str],
    unfit: Callable[[], Sequence[GpuFault]] = tuple,
) -> list[Finding]:
    """Returns findings on the GPUs. ``visible`` are those in ``CUDA_VISIBLE_DEVICES`` (``chosen``; ``None`` if not
    set), ``unfit`` the faults of unusable ones. ``name_of`` returns a process's name by its id; empty in another
    process namespace."""
    try:
        left, there, faulty = tuple(visible()), tuple(every()), tuple(unfit())
    except MachineError as error:
        return [problem("GPU", str(error), "nvidia-smi")]
    return [*check_visible(there, left, chosen), *check_gpus(left, name_of), *map(_unfit, faulty)]


def _unfit(fault: GpuFault) -> Finding:
    reset = f"sudo nvidia-smi --gpu-reset -i {fault.index}, or restart the machine"
    return warning(f"GPU {fault.index}", f"{fault.what}; trials do without it", reset)


def check_visible(every: Sequence[Gpu], visible: Sequence[Gpu], chosen: str | None) -> list[Finding]:
    """Checks ``CUDA_VISIBLE_DEVICES``; no finding if it is unset or there is no GPU."""
    if chosen is None or not every:
        return []
    text = f"CUDA_VISIBLE_DEVICES={chosen!r} leaves {len(visible)} of {len(every)} GPUs"
    if visible:
        return [ok("visible", text)]
    return [warning("visible", f"{text}: trials would run on the CPU", ALL_GPUS)]


def check_gpus(gpus: Sequence[Gpu], name_of: Callable[[int], str] = lambda _: "") -> list[Finding]:
    """Checks each GPU: its driver, whether a study would use it, and whether another program does."""
    if not gpus:
        return [ok("GPU", "none visible; trials run on the CPU")]
    try:
        chosen = gpu_choice.choose(gpus)
    except MachineError as error:
        return [problem("GPU", str(error), f"sudo nvidia-smi -i {gpus[0].index} -mig 0")]
    found = [_gpu(gpu, name_of, used=any(gpu is held for held in chosen.gpus)) for gpu in gpus]
    if slow := slow_paths(chosen.gpus):
        found.append(warning("GPU links", slow, "nvidia-smi topo -m"))
    return [*found, *([warning("GPUs", chosen.said, ALL_GPUS)] if chosen.said else [])]


def _gpu(gpu: Gpu, name_of: Callable[[int], str], *, used: bool) -> Finding:
    label = f"GPU {gpu.index}"
    text = f"{gpu.name}, {format_size(gpu.memory)}, driver {gpu.driver}" + ("" if used else "; not used")
    if (old := hardware.driver_problem(gpu.driver)) is not None:
        return warning(label, f"{text}. {old}", "nvidia-smi")
    if gpu.memory_used <= GPU_IDLE and not gpu.processes:
        if used and gpu.persistent is False:
            text += "; without persistence mode each trial waits for the driver to initialise it"
            return warning(label, text, f"sudo nvidia-smi -pm 1 -i {gpu.index}")
        return ok(label, text)
    busy = f"{text}; {format_size(gpu.memory_used)} in use{_by(gpu, name_of)}"
    if not used:
        return ok(label, busy)
    return problem(label, f"{busy}, so trials on it are refused", _free(gpu, name_of))


def _by(gpu: Gpu, name_of: Callable[[int], str]) -> str:
    who = [f"process {p.pid}" + (f" ({name})" if (name := name_of(p.pid)) else "") for p in gpu.processes]
    return f" by {', '.join(who)}" if who else ""


def _free(gpu: Gpu, name_of: Callable[[int], str]) -> str:
    ours = [str(p.pid) for p in gpu.processes if name_of(p.pid)]
    return f"kill {' '.join(ours)}" if ours and len(ours) == len(gpu.processes) else "nvidia-smi"


SHARED_WANTED = 1 << 30
"""Bytes of shared memory: NCCL takes tens of MiB for each connection, an engine's processes pass tensors through it."""
FILES_WANTED = 4096
LOCKED_WANTED = 64 << 20


def check_surroundings(here: Surroundings, gpus: int) -> list[Finding]:
    """Returns a finding for each resource that a container or batch system withholds, with the option that grants it.
    Some matter only to several processes on several visible GPUs."""
    found: list[Finding] = []
    if here.shared_memory is None or here.shared_memory < SHARED_WANTED:
        size = "none" if here.shared_memory is None else format_size(here.shared_memory)
        text = f"{SHARED_MEMORY} has {size}: processes of one trial pass tensors through it"
        larger = "docker run --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir in Memory"
        found.append((problem if gpus > 1 else warning)("shared memory", text, larger))
    if here.open_files < FILES_WANTED:
        text = f"a process may open {here.open_files} files; an engine's and Ray's processes open more"
        found.append(warning("open files", text, "docker run --ulimit nofile=65536, or ulimit -n 65536"))
    if gpus > 1 and here.locked_memory is not None and here.locked_memory < LOCKED_WANTED:
        text = f"a process may lock {format_size(here.locked_memory)} of memory; NCCL over InfiniBand locks more"
        found.append(warning("locked memory", text, "docker run --ulimit memlock=-1, or ulimit -l unlimited"))
    if not here.home_usable:
        text = f"the home folder {here.home} cannot be written" if here.home else "no home folder is known"
        command = f"export HOME=/a/folder/you/can/write (and {HOME_VARIABLE} for the studies)"
        found.append(warning("user", f"{text}: models and compiled kernels are kept there", command))
    if not here.temporary:
        found.append(problem("temporary files", "no folder for them can be written", "docker run --tmpfs /tmp"))
    if here.zombies:
        dead = f"process 1 has not waited for {here.zombies} dead processes"
        text = f"{dead}: where the tuner is killed its trials stay so too"
        found.append(warning("process 1", text, "docker run --init; Kubernetes: shareProcessNamespace: true"))
    return found
