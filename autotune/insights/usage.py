"""Utilization of GPU, power, links and CPU by phase, averaged over a trial's speed cycles. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import CycleRecord, GpuUse, Trial
from autotune.machine.gpu_samples import COUNTERS, GAUGES, WHOLE, mean


@dataclass(frozen=True)
class PhaseUse:
    """Mean utilization in one phase of a speed cycle, or in the whole cycle (``cycle``)."""

    phase: str
    seconds: float
    gpu: GpuUse
    """Means over the cycles' samples; joules and bytes are per cycle."""
    main_thread: float | None
    """Share of a core that the thread driving the training used."""
    cores: float | None
    """Cores that all threads of the process used."""

    @property
    def watts(self) -> float | None:
        """Mean power of all GPUs, in watts."""
        return self.gpu.joules / self.seconds if self.gpu.joules is not None and self.seconds > 0 else None


@dataclass(frozen=True)
class TrialUse:
    """Mean utilization over the speed cycles of one or several trials."""

    cycles: int
    phases: tuple[PhaseUse, ...]
    """Use by phase, the longest first."""
    whole: PhaseUse
    joules_per_token: float | None
    """Energy of all GPUs for one completion token."""
    device_allocations: float | None
    """Driver calls that allocate device memory, per cycle."""
    alloc_retries: float | None
    """Times per cycle that the allocator freed its cache and tried again."""
    gradient_sync_exposed_s: float | None
    """Seconds per cycle in which gradients were summed over ranks and nothing was computed."""


def trial_use(trial: Trial) -> TrialUse | None:
    """Returns the mean utilization over a trial's speed cycles, as ``use_of`` does."""
    return use_of(trial.speed_cycles())


def use_of(cycles: Sequence[CycleRecord]) -> TrialUse | None:
    """Combines ``cycles`` of rank 0 into their mean utilization; ``None`` if no cycle recorded its process or GPUs."""
    cycles = [c for c in cycles if c.seconds > 0]
    if not any(c.gpu or c.process is not None for c in cycles):
        return None
    names = dict.fromkeys(name for cycle in cycles for name in cycle.phases)
    phases = [_phase(name, cycles, lambda c, n=name: c.phases.get(n, 0.0)) for name in names]  # type: ignore[misc]
    whole = _phase(WHOLE, cycles, lambda c: c.seconds)
    tokens = statistics.fmean(c.completion_tokens for c in cycles)
    allocations = [c.process.device_allocations for c in cycles if c.process is not None]
    return TrialUse(
        cycles=len(cycles),
        phases=tuple(sorted(phases, key=lambda p: (-p.seconds, p.phase))),
        whole=whole,
        joules_per_token=whole.gpu.joules / tokens if whole.gpu.joules is not None and tokens else None,
        device_allocations=mean(allocations),
        alloc_retries=mean([c.alloc_retries for c in cycles]),
        gradient_sync_exposed_s=mean([_exposed(c) for c in cycles]),
    )


def _exposed(cycle: CycleRecord) -> float | None:
    use = cycle.process
    if use is None or use.gradient_sync_seconds is None or use.gradient_sync_hidden is None:
        return None
    return cycle.updates * use.gradient_sync_seconds * (1.0 - use.gradient_sync_hidden)


def _phase(name: str, cycles: Sequence[CycleRecord], seconds_of: Callable[[CycleRecord], float]) -> PhaseUse:
    seconds = statistics.fmean(seconds_of(c) for c in cycles)
    processes = [c.process for c in cycles if c.process is not None]
    main = [_spent(use.main_thread, name) for use in processes if use.main_thread]
    every = [_spent(use.all_threads, name) for use in processes if use.all_threads]
    return PhaseUse(
        phase=name,
        seconds=seconds,
        gpu=merged([c.gpu[name] for c in cycles if name in c.gpu]),
        main_thread=per_second(mean(main), seconds),
        # The clock guard's figure is of the whole tree, and of the whole cycle only.
        cores=per_second(mean(every), seconds)
        if every or name != WHOLE
        else per_second(mean([c.cpu_seconds for c in cycles]), seconds),
    )


def _spent(seconds: Mapping[str, float], name: str) -> float:
    return sum(seconds.values()) if name == WHOLE else seconds.get(name, 0.0)


def merged(uses: Sequence[GpuUse]) -> GpuUse:
    """Combines the utilization of several cycles: gauges are averaged over samples, sums over cycles."""
    if not uses:
        return GpuUse()

    def gauge(name: str) -> float | None:
        known = [(v, u.samples) for u in uses if (v := getattr(u, name)) is not None and u.samples]
        return sum(v * n for v, n in known) / sum(n for _, n in known) if known else None

    return GpuUse(
        samples=sum(u.samples for u in uses),
        celsius=max((u.celsius for u in uses if u.celsius is not None), default=None),
        **{name: gauge(name) for name in GAUGES},
        **{name: mean(getattr(u, name) for u in uses) for name in ("joules", *COUNTERS)},
    )


def per_second(amount: float | None, seconds: float) -> float | None:
    """Returns the amount per second; ``None`` if the amount is not known."""
    return amount / seconds if amount is not None and seconds > 0 else None
