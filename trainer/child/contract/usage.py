"""Resource use of a cycle besides time and memory: of the process by the child, of the GPUs by the parent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional


@dataclass(frozen=True)
class ProcessUse:
    """Resource use of one rank's process in one cycle, by its own counters; ``None`` or empty without a counter. With
    verl of all processes, from the second step on.
    """

    main_thread: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the thread that drives the training, by ``Phase`` value. A backward pass on a GPU is driven by a
    thread of autograd's."""
    all_threads: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of every thread of the process, by ``Phase`` value."""
    system_seconds: Optional[float] = None
    """CPU seconds of all threads in the kernel: page faults and calls of the driver."""
    minor_faults: Optional[int] = None
    """Page faults without a disk: fresh memory, and pages a forked process copies."""
    preempted: Optional[int] = None
    """Times the kernel took a CPU from a thread that still had work."""
    gc_seconds: Optional[float] = None
    """Seconds of Python's garbage collector."""
    new_shapes: Optional[int] = None
    """New (rows, tokens) shapes of forward passes in this cycle; for a decode step, tokens in the cache."""
    device_allocations: Optional[int] = None
    """Times CUDA's caching allocator requested memory from the driver."""
    device_frees: Optional[int] = None
    """Times the allocator returned memory to the driver."""
    device_ooms: Optional[int] = None
    """Times neither the allocator's cache nor the driver had memory."""
    new_segments: Optional[int] = None
    """Segments of the allocator at the cycle's end, minus those at its start."""
    reserved_growth: Optional[int] = None
    """Reserved bytes at the cycle's end, minus those at its start."""
    split_bytes: Optional[int] = None
    """Free bytes at the cycle's end in segments that are partly in use, so that they cannot be returned."""
    gradient_sync_seconds: Optional[float] = None
    """Seconds from the first gradient bucket to be summed over ranks to the last one summed, in the cycle's last
    update, waiting for slower ranks included. DistributedDataParallel only."""
    gradient_sync_hidden: Optional[float] = None
    """Share of these seconds, 0 to 1, during which the backward pass still computed."""


@dataclass(frozen=True)
class GpuUse:
    """NVML's readings of the trial's GPUs in a phase or cycle, read from outside several times a second.

    Shares, clocks and temperatures are means over samples and GPUs; joules and bytes are sums over GPUs. ``None``
    for a figure that NVML does not have for the GPU.
    """

    samples: int = 0
    """Number of readings; NVML's figures are means of up to a second, so few readings describe a short phase badly."""
    busy: Optional[float] = None
    """Share of the time in which a kernel ran, 0 to 1."""
    memory_busy: Optional[float] = None
    """Share of the time in which device memory was read or written, 0 to 1."""
    sm_mhz: Optional[float] = None
    sm_mhz_max: Optional[float] = None
    """Highest possible clock of the multiprocessors, in MHz."""
    joules: Optional[float] = None
    pcie_sent: Optional[float] = None
    """Bytes from the GPUs to the host."""
    pcie_received: Optional[float] = None
    """Bytes from the host to the GPUs."""
    nvlink_sent: Optional[float] = None
    nvlink_received: Optional[float] = None
    power_capped: Optional[float] = None
    """Share of the samples in which the driver lowered the clock for power, 0 to 1."""
    hot: Optional[float] = None
    """Share of the samples in which the driver lowered the clock for heat, 0 to 1."""
    celsius: Optional[float] = None
    """Highest temperature of a GPU, in degrees Celsius."""
