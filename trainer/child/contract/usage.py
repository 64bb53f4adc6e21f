"""Resource use of a cycle besides time and memory: of the process by the child, of the GPUs by the parent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional


@dataclass(frozen=True)
class ProcessUse:
    """Resource use of one rank's process in one cycle, from its own counters; ``None`` and an empty mapping: no such
    counter here. With verl it is of all its processes, from the second step on."""

    main_thread: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the thread that drives the training, by ``Phase`` value. A backward pass on a GPU is driven by a
    thread of autograd's."""
    all_threads: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of every thread of the process, by ``Phase`` value."""
    system_seconds: Optional[float] = None
    """Of all threads' CPU seconds, those in the kernel: page faults and calls of the driver."""
    minor_faults: Optional[int] = None
    """Page faults without a disk: fresh memory, and pages a forked process copies."""
    preempted: Optional[int] = None
    """Times the kernel took a CPU from a thread that still had work."""
    gc_seconds: Optional[float] = None
    """Seconds of Python's garbage collector."""
    new_shapes: Optional[int] = None
    """(rows, tokens) shapes of forward passes that no cycle before had; of a decode step the tokens in its cache."""
    device_allocations: Optional[int] = None
    """Times CUDA's caching allocator asked the driver for memory."""
    device_frees: Optional[int] = None
    """Times it gave memory back to the driver."""
    device_ooms: Optional[int] = None
    """Times neither its cache nor the driver had memory."""
    new_segments: Optional[int] = None
    """Segments it holds at the cycle's end, less those at its start."""
    reserved_growth: Optional[int] = None
    """Bytes it has reserved at the cycle's end, less those at its start."""
    split_bytes: Optional[int] = None
    """Bytes at the cycle's end that are free but of segments partly in use, so that they cannot be given back."""
    gradient_sync_seconds: Optional[float] = None
    """From the first bucket of gradients to be summed over ranks to the last one summed, in the cycle's last update;
    waiting for a slower rank included. Only DistributedDataParallel tells it."""
    gradient_sync_hidden: Optional[float] = None
    """Share of these seconds, 0 to 1, in which the backward pass still computed."""


@dataclass(frozen=True)
class GpuUse:
    """NVML's readings of the trial's GPUs in a phase or cycle, read from outside several times a second.

    Shares, clocks and temperatures are means over samples and GPUs; joules and bytes are sums over GPUs. ``None``:
    NVML does not say it of such a GPU.
    """

    samples: int = 0
    """Readings this rests on; NVML's own figures are means of up to a second, so few say little of a short phase."""
    busy: Optional[float] = None
    """Share of the time in which a kernel ran, 0 to 1."""
    memory_busy: Optional[float] = None
    """Share of the time in which device memory was read or written, 0 to 1."""
    sm_mhz: Optional[float] = None
    sm_mhz_max: Optional[float] = None
    """What the clock of the multiprocessors can be at most."""
    joules: Optional[float] = None
    pcie_sent: Optional[float] = None
    """Bytes from the GPUs to the host."""
    pcie_received: Optional[float] = None
    """Bytes from the host to the GPUs."""
    nvlink_sent: Optional[float] = None
    nvlink_received: Optional[float] = None
    power_capped: Optional[float] = None
    """Share of the samples in which the driver held the clock down for power."""
    hot: Optional[float] = None
    """Share of the samples in which the driver held the clock down for heat."""
    celsius: Optional[float] = None
    """Highest temperature."""
