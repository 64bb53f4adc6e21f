"""Measures other load on this machine by the kernel's counters: CPU use and free memory. Starts no process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autotune.machine.hardware import HOST, Files, kernel_text, memory_limits

LOOK_S = 0.5


@dataclass(frozen=True)
class CpuLoad:
    """CPU use over a short interval."""

    share: float
    """Share of all the machine's CPU time, 0..1."""
    busiest: tuple[tuple[int, str, float], ...] = ()
    """(process id, name, cores kept busy) of the three busiest processes, most first; from a tenth of a core."""


def governors(files: Files = HOST) -> tuple[str, ...]:
    """Lists the CPU frequency governors in use, each once; empty if the kernel shows none, as in virtual machines."""
    found = sorted((files.sys / "devices" / "system" / "cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    return tuple(sorted({name for path in found if (name := kernel_text(path).strip())}))


def available_memory(files: Files = HOST) -> int | None:
    """Returns the bytes free without swapping or exceeding a control group's limit; ``None`` if unknown."""
    lines = kernel_text(files.proc / "meminfo").splitlines()
    left = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min([*left, *(max(0, group.limit - group.used) for group in memory_limits(files))], default=None)


class TakenTime:
    """Time that other programs and the hypervisor took from a tree of processes: CPU time of others while threads of
    the tree waited for a CPU, and stolen time."""

    def __init__(self, files: Files = HOST) -> None:
        self._files = files
        self._last: tuple[int, int, dict[str, int]] | None = None
        self._total_s = 0.0

    def total(self, own_ticks: int, pids: Iterable[int]) -> float | None:
        """Returns the time taken since the first call, in seconds of the whole machine; ``None`` if not reported.

        Args:
            own_ticks: clock ticks that the tree has used.
            pids: ids of the processes of the tree.
        """
        counters = _counters(self._files)
        if counters is None:
            return None
        beside, waits = counters[0] - counters[2] - own_ticks, _waits(pids, self._files)
        if self._last is not None:
            used = max(0, beside - self._last[0]) / os.sysconf("SC_CLK_TCK")
            waited = sum(max(0, ns - self._last[2].get(thread, 0)) for thread, ns in waits.items()) / 1e9
            stolen = max(0, counters[2] - self._last[1]) / os.sysconf("SC_CLK_TCK")
            self._total_s += ((min(used, waited) if waits else used) + stolen) / max(1, _cpus(self._files))
        self._last = beside, counters[2], waits
        return self._total_s


def sample_load(sleep: Callable[[float], None], files: Files = HOST, seconds: float = LOOK_S) -> CpuLoad | None:
    """Measures the CPU use of other processes over ``seconds``; ``None`` if the kernel does not report it."""
    before, own = _counters(files), _processes(files)
    sleep(seconds)
    after, later = _counters(files), _processes(files)
    if before is None or after is None or after[1] <= before[1]:
        return None
    ticks = after[1] - before[1]
    mine = str(os.getpid())
    used = {pid: (name, time - own[pid][1]) for pid, (name, time) in later.items() if pid in own and pid != mine}
    cores = _cpus(files)
    busiest = sorted(used.items(), key=lambda item: (-item[1][1], item[0]))[:3]
    return CpuLoad(
        share=min(1.0, (after[0] - before[0]) / ticks),
        busiest=tuple((int(p), name, c) for p, (name, t) in busiest if (c := t * max(1, cores) / ticks) >= 0.1),
    )


def process_name(pid: int, files: Files = HOST) -> str:
    """Returns the short name of a process; empty if it does not exist."""
    return kernel_text(files.proc / str(pid) / "comm").strip()


def _cpus(files: Files) -> int:
    """Returns the number of CPUs that ``/proc/stat`` counts."""
    lines = kernel_text(files.proc / "stat").splitlines()
    return sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines)


def _waits(pids: Iterable[int], files: Files) -> dict[str, int]:
    """Returns thread -> nanoseconds for which it has waited for a CPU; empty if the kernel does not report it."""
    threads = [thread for pid in pids for thread in (files.proc / str(pid) / "task").glob("*")]
    words = {thread.name: kernel_text(thread / "schedstat").split() for thread in threads}
    return {thread: int(some[1]) for thread, some in words.items() if len(some) > 1 and some[1].isdigit()}


def _counters(files: Files) -> tuple[int, int, int] | None:
    """Returns (busy, all, stolen) clock ticks since the machine started, over all CPUs; busy includes stolen."""
    words = kernel_text(files.proc / "stat").partition("\n")[0].split()
    if len(words) < 5 or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    ticks = [int(word) for word in words[1:9]]  # guest time, after them, is in user time already
    idle = sum(ticks[3:5])
    return sum(ticks) - idle, sum(ticks), ticks[7] if len(ticks) > 7 else 0


def _processes(files: Files) -> Mapping[str, tuple[str, int]]:
    """Returns process id -> (name, clock ticks of CPU time)."""
    found = {}
    try:
        names = os.listdir(files.proc)
    except OSError:
        return {}
    for pid in names:
        if pid.isdigit():
            text = kernel_text(files.proc / pid / "stat")
            name, fields = text[text.find("(") + 1 : text.rfind(")")], text[text.rfind(")") + 1 :].split()
            if len(fields) > 12:
                found[pid] = (name, int(fields[11]) + int(fields[12]))
    return found
