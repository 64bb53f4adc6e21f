"""Aggregates NVML samples of a cycle to means and sums by phase. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from autotune.domain import CycleRecord, GpuUse
from autotune.machine.nvml import GpuReading

WHOLE = "cycle"
"""Name of the whole cycle among the phases, as with memory peaks."""


HOT = 0.1
"""Share of a cycle's samples with a clock throttled by heat above which the cycle's time is not representative."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """Readings of all GPUs of a trial at one moment."""

    at: float
    """Time of the sample in UTC seconds since the epoch."""
    phase: str
    """Phase that the trial was in; empty before its first."""
    cycle: int
    """Index of the cycle; -1 outside a cycle."""
    readings: tuple[GpuReading, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """A sample and the one before it, if any. A counter's growth between them counts for the phase of the later one."""

    before: GpuSample | None
    sample: GpuSample


def use_of(samples: Sequence[GpuSample], cycle: CycleRecord) -> Mapping[str, GpuUse]:
    """Combines samples into the utilization of all GPUs by phase of ``cycle``, and of the whole as ``cycle``; empty
    without samples.

    Args:
        samples: ascending in time; samples outside the cycle are ignored.
        cycle: with its beginning and its seconds by phase.
    """
    inside = [
        _Step(samples[place - 1] if place else None, sample)
        for place, sample in enumerate(samples)
        if sample.cycle == cycle.index and cycle.started <= sample.at <= cycle.started + cycle.seconds
    ]
    if not inside:
        return {}
    phases: dict[str, list[_Step]] = {}
    for step in inside:
        phases.setdefault(step.sample.phase, []).append(step)
    found = {name: _use(phases[name], seconds) for name, seconds in cycle.phases.items() if name in phases}
    return {**found, WHOLE: _use(inside, cycle.seconds)}


def slowed(use: GpuUse, usual_mhz: float | None) -> float:
    """Returns the share, 0..1, by which the GPUs' clock was too low in a cycle; 0 if it was not, or is not reported.

    A clock that the GPU's own power limit reduces is normal for the load, and not too low.

    Args:
        use: utilization in the whole cycle.
        usual_mhz: highest clock of the trial's earlier cycles of this kind; ``None`` at the first.
    """
    if use.sm_mhz is None:
        return 0.0
    hot, capped = (use.hot or 0.0) >= HOT, (use.power_capped or 0.0) >= HOT
    highest = [mhz for mhz in (None if capped and not hot else usual_mhz, use.sm_mhz_max if hot else None) if mhz]
    return max(0.0, 1 - use.sm_mhz / max(highest)) if highest else 0.0


GAUGES = ("busy", "memory_busy", "sm_mhz", "sm_mhz_max", "power_capped", "hot")
"""Fields of ``GpuReading`` that are averaged over a phase."""
COUNTERS = ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")
"""Fields of ``GpuReading`` whose growth is summed over a phase."""


def _use(steps: Sequence[_Step], seconds: float) -> GpuUse:
    """Combines the samples of ``steps`` into the utilization over ``seconds``."""
    readings = [reading for step in steps for reading in step.sample.readings]
    watts = _per_second(steps, "joules")
    if watts is None:
        watts = mean(_sum(r.watts for r in step.sample.readings) for step in steps)
    return GpuUse(
        samples=len(steps),
        joules=_times(watts, seconds),
        celsius=max((r.celsius for r in readings if r.celsius is not None), default=None),
        **{name: mean(getattr(reading, name) for reading in readings) for name in GAUGES},
        **{name: _times(_per_second(steps, name), seconds) for name in COUNTERS},
    )


def _per_second(steps: Sequence[_Step], name: str) -> float | None:
    """Returns the growth of a counter per second, summed over all GPUs; ``None`` if no step has both readings."""
    counter, grown, elapsed = attrgetter(name), 0.0, 0.0
    for step in steps:
        now = _sum(map(counter, step.sample.readings))
        then = None if step.before is None else _sum(map(counter, step.before.readings))
        if step.before is None or now is None or then is None:
            continue
        grown += max(0.0, now - then)
        elapsed += step.sample.at - step.before.at
    return grown / elapsed if elapsed > 0 else None


def _sum(values: Iterable[float | None]) -> float | None:
    """Sums the values; ``None`` if any is unknown, since a partial sum would mislead."""
    known = list(values)
    return sum(v for v in known if v is not None) if known and None not in known else None


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the known values; ``None`` if there is none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _times(rate: float | None, seconds: float) -> float | None:
    return None if rate is None else rate * seconds
