"""Clock guard: detects that a cycle's time was affected by a slower machine or by other programs.

A fixed piece of work before and after each cycle shows a machine that changed its speed; the CPU time
used outside the trial shows a neighbour. Both are judged by the protocol's limits (``cycles``).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple

from .began import stat_fields
from .contract import SERVER_VARIABLE
from .memory import descendants

SAMPLE_SECONDS = 0.01
SAMPLES = 7
TICKS = os.sysconf("SC_CLK_TCK")


CPUS_VARIABLE = "AUTOTUNE_TRIAL_CPUS"
"""The CPUs of this trial, as ``0,1,2``, where others run beside it on the rest."""


def machine_cpu(path: Path = Path("/proc/stat")) -> Optional[Tuple[float, int]]:
    """(CPU seconds all programs have used, stolen time included; number of CPUs); ``None`` if not told.

    Of the trial's own CPUs, where it has been given some.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    own = {"cpu" + number for number in os.environ.get(CPUS_VARIABLE, "").split(",") if number.isdigit()}
    every = [line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
    counted = [words for words in every if words[0] in own]
    busy = sum(map(_busy, counted)) if counted else _busy(lines[0].split())
    cpus = len(counted or every)
    return (busy, cpus) if cpus and busy > 0 else None


def _busy(words: Sequence[str]) -> float:
    """CPU seconds of a line of ``/proc/stat``."""
    fields = [int(value) for value in words[1:]]
    user, nice, system, steal = fields[0], fields[1], fields[2], fields[7] if len(fields) > 7 else 0
    return (user + nice + system + steal) / TICKS


@dataclass(frozen=True)
class TreeUse:
    """CPU use of processes since they started, including their ended and reaped children."""

    cpu: float = 0.0
    """CPU seconds."""
    system: float = 0.0
    """Of them, those in the kernel."""
    minor_faults: int = 0


def tree_use() -> TreeUse:
    """CPU use of this process and its descendants."""
    return _use([os.getpid(), *descendants(os.getpid())])


def tree_cpu() -> float:
    """CPU seconds of this process and all below it, the ended and reaped ones included."""
    return tree_use().cpu


def server_pid() -> Optional[int]:
    """The rollout server beside this trial, ``None`` without one."""
    pid = os.environ.get(SERVER_VARIABLE, "")
    return int(pid) if pid.isdigit() else None


def other_tree_cpu(pid: Optional[int]) -> float:
    """CPU seconds of another process and all below it; 0 if there is none."""
    return 0.0 if pid is None else _use([pid, *descendants(pid)]).cpu


def _use(pids: Sequence[int]) -> TreeUse:
    cpu, system, faults = 0, 0, 0
    for pid in pids:
        fields = stat_fields(pid)
        if not fields:
            continue
        cpu += sum(int(value) for value in fields[11:15])
        system += int(fields[12]) + int(fields[14])
        faults += int(fields[7]) + int(fields[8])
    return TreeUse(cpu / TICKS, system / TICKS, faults)


def outside_share(busy: float, own: float, cpus: int, seconds: float) -> float:
    """Share of the machine's CPU time that was used outside the trial."""
    return max(0.0, busy - own) / (cpus * seconds) if seconds > 0 else 0.0


class ReferenceKernel:
    """A fixed matrix product of about 10 ms."""

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
        """Least of a few, after one that does not count: an interruption shorter than a sample is no drift."""
        self._once()
        return min(self._once() for _ in range(SAMPLES))

    def product(self) -> float:
        """Seconds of a single product: comparable between kernels with different repeat counts."""
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
    """Drift, outside share and reference time of one cycle."""

    cpu_seconds: float
    drift: Optional[float] = None
    outside_cpu: Optional[float] = None
    reference: Optional[float] = None
    """Seconds of one product of the reference kernel, the mean of before and after."""


def worst(own: GuardReading, seen: Sequence[GuardReading]) -> GuardReading:
    """``own`` CPU seconds with the greatest drift and outside share and the slowest reference among ``seen``; ``None``
    where none has one."""

    def most(values: Sequence[Optional[float]]) -> Optional[float]:
        return max((value for value in values if value is not None), default=None)

    return replace(
        own,
        drift=most([verdict.drift for verdict in seen]),
        outside_cpu=most([verdict.outside_cpu for verdict in seen]),
        reference=most([verdict.reference for verdict in seen]),
    )


class ClockGuard:
    """Measures drift and outside CPU use around a cycle; ``before`` and ``after`` are outside the cycle's clock.

    Args:
        server: process of the rollout server, on the rank that answers for it.
    """

    def __init__(self, kernel: Any, server: Optional[int] = None) -> None:
        self._kernel = kernel
        self._server = server
        self._served = 0.0
        self._before: Optional[float] = None
        self._machine: Optional[Tuple[float, int]] = None
        self._own = 0.0
        self._started = 0.0

    def before(self, timed: bool = True) -> None:
        """Starts a cycle; where it is not ``timed`` (warm-up), only CPU seconds are counted."""
        self._before = self._kernel.product() if timed else None
        self._machine = machine_cpu()
        self._own = tree_cpu()
        self._served = other_tree_cpu(self._server)
        self._started = time.perf_counter()

    def after(self, of_all: Callable[[float], float] = float) -> GuardReading:
        """Arguments:

        of_all: CPU seconds of all ranks of the trial, from this rank's (and its server's); called once.
        """
        seconds = time.perf_counter() - self._started
        own = tree_cpu() - self._own
        served = max(0.0, other_tree_cpu(self._server) - self._served)
        now = machine_cpu()
        whole = of_all(own + served)
        outside = None
        if self._before is not None and now is not None and self._machine is not None:
            outside = outside_share(now[0] - self._machine[0], whole, now[1], seconds)
        if self._before is None:
            return GuardReading(own, None, outside)
        product = self._kernel.product()
        return GuardReading(own, abs(product / self._before - 1.0), outside, (self._before + product) / 2)
