"""Measures the share of a cycle's CPU time that other programs took (the clock guard).

CPU time was taken from a trial if other programs used it while the trial's own threads waited for a CPU, or if the
hypervisor stole it. The protocol's limit decides which share makes a cycle disturbed (``cycles``). A fixed piece of
work before and after each cycle shows whether the machine changed its speed; that is recorded only.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence

from .began import stat_fields
from .contract import SERVER_VARIABLE
from .memory import descendants

SAMPLE_SECONDS = 0.01
SAMPLES = 7
TICKS = os.sysconf("SC_CLK_TCK")


CPUS_VARIABLE = "AUTOTUNE_TRIAL_CPUS"
"""CPUs that this trial may use, as ``0,1,2``."""


class MachineCpu(NamedTuple):
    """CPU seconds since the machine started."""

    busy: float
    """CPU seconds that any program used."""
    stolen: float
    """Seconds that the hypervisor gave to other machines."""
    cpus: int


def machine_cpu(path: Path = Path("/proc/stat")) -> Optional[MachineCpu]:
    """Returns the CPU use of the CPUs that the trial may use (by default all); ``None`` if unknown."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    own = {"cpu" + number for number in os.environ.get(CPUS_VARIABLE, "").split(",") if number.isdigit()}
    every = [line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
    counted = [words for words in every if words[0] in own]
    used = [[int(value) for value in words[1:]] for words in counted or [lines[0].split()]]
    busy, cpus = sum(sum(fields[:3]) for fields in used) / TICKS, len(counted or every)
    stolen = sum(fields[7] for fields in used if len(fields) > 7) / TICKS
    return MachineCpu(busy, stolen, cpus) if cpus and busy > 0 else None


def throttled(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Counts how often a CPU quota has stopped this process's control groups, of either version."""
    count = 0
    with contextlib.suppress(OSError):
        for _, names, path in (line.split(":", 2) for line in own.read_text().splitlines()):
            place = root / names / path[1:]
            for group in (place, *place.parents) if not names or "cpu" in names.split(",") else ():
                with contextlib.suppress(OSError, ValueError):  # no such group here, or none with a quota
                    words = (group / "cpu.stat").read_text().split()
                    count += int(words[words.index("nr_throttled") + 1])
    return count


@dataclass(frozen=True)
class TreeUse:
    """CPU use of processes since they started, including their ended and reaped children."""

    cpu: float = 0.0
    """CPU seconds."""
    system: float = 0.0
    """CPU seconds in the kernel, part of ``cpu``."""
    minor_faults: int = 0
    waits: Mapping[int, float] = field(default_factory=dict)
    """Seconds that each living thread waited for a CPU; empty if the kernel does not report them."""

    def waited_since(self, before: "TreeUse") -> float:
        """Returns the seconds that threads waited for a CPU since ``before``; infinite if unknown."""
        if not self.waits:
            return math.inf
        return sum(max(0.0, seconds - before.waits.get(thread, 0.0)) for thread, seconds in self.waits.items())


def tree_use(pid: Optional[int] = None) -> TreeUse:
    """Returns the CPU use of this process, or of ``pid``, and its descendants."""
    top = os.getpid() if pid is None else pid
    return _use([top, *descendants(top)])


def server_pid() -> Optional[int]:
    """Returns the process id of the trial's rollout server; ``None`` without one."""
    pid = os.environ.get(SERVER_VARIABLE, "")
    return int(pid) if pid.isdigit() else None


def _use(pids: Sequence[int]) -> TreeUse:
    cpu, system, faults = 0, 0, 0
    waits: Dict[int, float] = {}
    for pid in pids:
        fields = stat_fields(pid)
        if not fields:
            continue
        cpu += sum(int(value) for value in fields[11:15])
        system += int(fields[12]) + int(fields[14])
        faults += int(fields[7]) + int(fields[8])
        waits.update(_waits(pid))
    return TreeUse(cpu / TICKS, system / TICKS, faults, waits)


def _waits(pid: int) -> Dict[int, float]:
    """Returns the seconds that each thread has waited for a CPU, from ``schedstat``'s second field (nanoseconds)."""
    found: Dict[int, float] = {}
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, thread), encoding="ascii") as stream:
                found[int(thread)] = int(stream.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # a thread ended meanwhile, or the kernel does not tell
        pass
    return found


def taken_share(before: MachineCpu, now: MachineCpu, own: float, waited: float, seconds: float) -> float:
    """Returns the share of the machine's CPU time that was taken from the trial between ``before`` and ``now``.

    Args:
        own: CPU seconds that the trial used.
        waited: seconds its threads waited for a CPU; without a wait, CPU time of other programs took nothing.
    """
    if seconds <= 0:
        return 0.0
    others = min(max(0.0, now.busy - before.busy - own), waited)
    return (others + max(0.0, now.stolen - before.stolen)) / (now.cpus * seconds)


class ReferenceKernel:
    """A fixed matrix product, repeated to at least 5 ms."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._device = device
        size, dtype = (2048, torch.float16) if device == "cuda" else (768, torch.float32)
        self._left = torch.full((size, size), 0.5, device=device, dtype=dtype)
        self._right = torch.full((size, size), 0.25, device=device, dtype=dtype)
        self._out = torch.empty((size, size), device=device, dtype=dtype)
        self._repeats = 1
        self._once()  # the first call sets up the library
        while self._once() < SAMPLE_SECONDS / 2 and self._repeats < 4096:
            self._repeats *= 2

    def seconds(self) -> float:
        """Returns the least seconds of a few samples after a warm-up, so that a short interruption is not drift."""
        self._once()
        return min(self._once() for _ in range(SAMPLES))

    def product(self) -> float:
        """Returns the seconds of a single product, comparable between kernels with different repeat counts."""
        return self.seconds() / self._repeats

    def _once(self) -> float:
        self._settle()
        started = time.perf_counter()
        with self._torch.no_grad():
            for _ in range(self._repeats):
                self._torch.mm(self._left, self._right, out=self._out)
        self._settle()
        return time.perf_counter() - started

    def _settle(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()


@dataclass(frozen=True)
class GuardReading:
    """Drift, share of CPU time taken, and reference kernel's seconds of one cycle."""

    cpu_seconds: float
    drift: Optional[float] = None
    outside_cpu: Optional[float] = None
    reference: Optional[float] = None
    """Seconds of one product of the reference kernel, the mean of before and after the cycle."""


def worst(own: GuardReading, readings: Sequence[GuardReading]) -> GuardReading:
    """Returns ``own`` CPU seconds with the greatest drift, greatest outside share and slowest reference of
    ``readings``; ``None`` for a figure that no reading has."""
    of_all = [(each.drift, each.outside_cpu, each.reference) for each in readings]
    most = [max((value for value in values if value is not None), default=None) for values in zip(*of_all, strict=True)]
    return GuardReading(own.cpu_seconds, *most)


class ClockGuard:
    """Measures drift and CPU time taken around a cycle; ``before`` and ``after`` are outside the cycle's clock.

    Args:
        server: process id of the rollout server, on the one rank that counts its CPU use.
    """

    def __init__(self, kernel: Any, server: Optional[int] = None) -> None:
        self._kernel = kernel
        self._server = server
        self._served = TreeUse()
        self._before: Optional[float] = None
        self._machine: Optional[MachineCpu] = None
        self._throttled = 0
        self._own = TreeUse()
        self._started = 0.0

    def before(self, timed: bool = True) -> None:
        """Starts a cycle; with ``timed`` false (warm-up), only CPU seconds are counted."""
        self._before = self._kernel.product() if timed else None
        self._machine, self._throttled = machine_cpu(), throttled()
        self._own, self._served = tree_use(), self._server_use()
        self._started = time.perf_counter()

    def _server_use(self) -> TreeUse:
        return TreeUse() if self._server is None else tree_use(self._server)

    def after(self, of_all: Callable[[float], float] = float) -> GuardReading:
        """Ends a cycle and returns its reading.

        ``of_all`` sums a figure of this rank (and its server) over all ranks of the trial; every rank calls it twice.
        """
        seconds = time.perf_counter() - self._started
        use, server, now = tree_use(), self._server_use(), machine_cpu()
        own = use.cpu - self._own.cpu
        whole = of_all(own + max(0.0, server.cpu - self._served.cpu))
        waited = of_all(use.waited_since(self._own) + (server.waited_since(self._served) if server.waits else 0.0))
        if self._before is None:
            return GuardReading(own)
        # Where a quota stopped the trial, its threads waited for that, and what others took is not known.
        known = now is not None and self._machine is not None and throttled() == self._throttled
        taken = taken_share(self._machine, now, whole, waited, seconds) if known else None  # type: ignore[arg-type]
        product = self._kernel.product()
        return GuardReading(own, abs(product / self._before - 1.0), taken, (self._before + product) / 2)
