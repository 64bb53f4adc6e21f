"""Peaks of host and device memory by phase, a data-size limit for each process, and the allocator's retries."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .contract import CycleKind, Peaks, Phase
from .failures import OverLimitError, ThrashError

DATA_MARGIN = 256 << 20
"""Bytes of private mappings that may yet be reserved without being used."""
STACK = 8 << 20
"""Bytes of address space glibc reserves for a thread's stack, by default."""


def status_bytes(name: str) -> int:
    """Reads a size field of ``/proc/self/status`` (``VmRSS``, ``VmHWM``, ``VmData``), in bytes; 0 if absent."""
    text = Path("/proc/self/status").read_text()
    found = re.search(r"^%s:\s+(\d+) kB" % name, text, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def pss(pid: int) -> int:
    """Returns the proportional set size of a process, in bytes; 0 if it is gone or cannot be read."""
    return rollup(pid).get("Pss", 0)


def rollup(pid: int) -> Dict[str, int]:
    """Returns the sizes of ``/proc/PID/smaps_rollup`` by name, in bytes; empty if it is gone or cannot be read."""
    try:
        text = Path("/proc/%d/smaps_rollup" % pid).read_text()
    except OSError:
        return {}
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


class OutsideSharers:
    """Finds processes outside the tree that share pages with it, such as the one that this process was forked from.

    Counting their share gives a forked process as much memory as a started process with its own imports.
    """

    origin: Tuple[int, ...] = ()
    """Process that this one was forked from, if any; its private pages are those that the fork replaced or freed."""
    others: Tuple[int, ...] = ()
    """Processes that map the same files."""

    @classmethod
    def share(cls) -> int:
        """Returns the bytes of the tree's pages that the kernel charges to ``origin`` and ``others``."""
        total = sum(max(0, s.get("Pss", 0) - s.get("Private_Dirty", 0)) for s in map(rollup, cls.origin))
        return total + sum(max(0, s.get("Pss_File", 0) - s.get("Private_Clean", 0)) for s in map(rollup, cls.others))


def descendants(pid: int) -> List[int]:
    """Returns every living process below ``pid``, without ``pid``."""
    found: List[int] = []
    try:
        for task in list(Path("/proc/%d/task" % pid).iterdir()):
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        return found
    return found


def tree_pss() -> int:
    """Returns the PSS of this process tree in bytes, with its pages that the kernel charges to processes outside it."""
    own = os.getpid()
    return sum(pss(pid) for pid in [own, *descendants(own)]) + OutsideSharers.share()


def limit_data(memory_limit: int) -> int:
    """Sets ``RLIMIT_DATA`` so that one very large allocation fails in the allocator, with the framework's own message.
    Returns the limit in bytes.

    ``RLIMIT_DATA`` limits private writable mappings, reserved or used; ``memory_limit`` limits the PSS. So the present
    difference is added, with a margin for two thread pools' stacks. Call it after the imports, which reserve most. The
    parent's watchdog enforces the memory limit itself.
    """
    reserved = max(0, status_bytes("VmData") - pss(os.getpid()) - OutsideSharers.share())
    wanted = memory_limit + reserved + DATA_MARGIN + 2 * (os.cpu_count() or 1) * STACK
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return wanted


class HostPeak:
    """The kernel's own high-water mark of this process, read and reset in about 50 microseconds.

    Resident pages count fully; shared ones are corrected once per cycle (``correction``). Without ``clear_refs`` to
    reset the mark, the resident size at the end of a phase is used.
    """

    def __init__(self) -> None:
        self._can_reset = self._reset()

    @staticmethod
    def _reset() -> bool:
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return False
        return True

    def take(self) -> int:
        """Returns the highest resident size since the last call, in bytes."""
        peak = status_bytes("VmHWM" if self._can_reset else "VmRSS")
        if self._can_reset:
            self._reset()
        return peak

    @staticmethod
    def correction() -> int:
        """Returns the bytes to add to resident peaks: PSS of the whole tree minus this process's resident size."""
        return tree_pss() - status_bytes("VmRSS")


class MemoryWatch:
    """Memory peaks of one cycle by phase."""

    def __init__(self, device: str = "cpu") -> None:
        self._host = HostPeak()
        self._cuda: Any = None
        if device == "cuda":
            import torch

            self._cuda = torch.cuda
        self._peaks: Dict[str, Peaks] = {}
        self._retries: Dict[str, int] = {}
        self._retried = 0
        self.stats: Optional[Mapping[str, Any]] = None
        """``torch.cuda.memory_stats`` as last read; ``None`` on a CPU."""

    def begin(self) -> None:
        """Resets the peaks for the next cycle."""
        self._peaks = {}
        self._read()
        self._retries = {}

    def close(self, phase: Phase) -> None:
        """Attributes the memory used since the last call to ``phase``."""
        retried = self._retried
        self._peaks[phase.value] = highest(self._peaks.get(phase.value), self._read())
        self._retries[phase.value] = self._retries.get(phase.value, 0) + self._retried - retried

    def peaks(self) -> Mapping[str, Peaks]:
        """Returns peaks by phase, and the whole ``cycle``; reads the tree's PSS, so call it outside the clock."""
        correction = self._host.correction()
        whole = Peaks()
        peaks: Dict[str, Peaks] = {}
        for phase, peak in self._peaks.items():
            peaks[phase] = replace(peak, host=None if peak.host is None else max(0, peak.host + correction))
            whole = highest(whole, peaks[phase])
        peaks["cycle"] = whole
        return peaks

    def retries(self) -> Optional[Mapping[str, int]]:
        """Returns retries of CUDA's allocator by phase; ``None`` without CUDA."""
        return None if self._cuda is None else dict(self._retries)

    def _read(self) -> Peaks:
        host = self._host.take()
        if self._cuda is None:
            return Peaks(host=host)
        free, total = self._cuda.mem_get_info()
        stats = self.stats = self._cuda.memory_stats()
        self._retried = int(stats.get("num_alloc_retries", 0))
        reserved = int(stats.get("reserved_bytes.all.peak", 0))
        # Whatever the allocator has given back meanwhile, as generation does when it ends, was in use as well.
        back = reserved - int(stats.get("reserved_bytes.all.current", reserved))
        peaks = Peaks(
            device_allocated=int(stats.get("allocated_bytes.all.peak", 0)),
            device_reserved=reserved,
            device_used=int(total - free) + back,
            host=host,
        )
        self._cuda.reset_peak_memory_stats()
        return peaks


def check_limit(peaks: Mapping[str, Peaks], limit: Optional[int]) -> None:
    """Checks a cycle's peaks against the memory limit: the watchdog samples ten times a second, but the kernel's
    high-water mark misses nothing.

    Without this check a configuration with short-lived tensors would pass or fail by chance.

    Args:
        limit: bytes of the trial's process tree; ``None``: no limit.

    Raises:
        OverLimitError: a phase exceeded it.
    """
    held = [(peak.host or 0, phase) for phase, peak in peaks.items() if phase != "cycle"]
    most, phase = max(held, default=(0, ""))
    if limit is not None and most > limit:
        said = "a process alone reached %.2f GiB of the tree's %.2f GiB for a moment" % (most / 2**30, limit / 2**30)
        raise OverLimitError(said, Phase(phase))


def highest(one: Optional[Peaks], other: Peaks) -> Peaks:
    """Returns the larger value of each field; ``None`` only if both are."""
    pairs = [(getattr(one, each.name, None), getattr(other, each.name)) for each in fields(Peaks)]
    return Peaks(*(max((size for size in pair if size is not None), default=None) for pair in pairs))


def thrashing(retries: Sequence[Optional[int]]) -> Optional[str]:
    """Returns a sentence if the allocator thrashes; ``None`` if it does not, or if unknown.

    ``retries`` are those of each timed cycle so far, in order; ``None`` if they cannot be counted (on a CPU).
    """
    before, last = [None, None, *retries][-2:]
    if not before or not last:
        return None
    return "allocator retried %d and %d times in two consecutive cycles" % (before, last)


def worst_phase(retries: Mapping[str, int]) -> Optional[Phase]:
    """Returns the phase with the most retries, the first of equals; ``None`` without retries."""
    most = max(retries.values(), default=0)
    return next((Phase(name) for name, count in retries.items() if count == most and most > 0), None)


class ThrashWatch:
    """Detects device memory so full that cycle times measure the allocator, not the configuration.

    If the driver refuses memory, CUDA's caching allocator frees its cache and retries (``num_alloc_retries`` of
    ``torch.cuda.memory_stats``). One retry may be an accident of the order of allocations; retries in two consecutive
    cycles belong to the configuration, which is close to running out of memory.
    """

    def __init__(self) -> None:
        self._seen: List[Optional[int]] = []

    def cycle(self, kind: CycleKind, retries: Optional[Mapping[str, int]]) -> None:
        """Adds a finished cycle.

        Args:
            kind: a warm-up is ignored, because it is not timed and fills the cache for the first time.
            retries: by ``Phase`` value; ``None`` if they cannot be counted.

        Raises:
            ThrashError: this cycle and the one before thrashed, in the phase that did so most.
        """
        if kind is CycleKind.WARMUP:
            return
        self._seen.append(None if retries is None else sum(retries.values()))
        sentence = thrashing(self._seen)
        if sentence is not None:
            raise ThrashError(sentence, worst_phase(retries or {}))
