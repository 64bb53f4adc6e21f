"""Memory peaks and seconds summed up over cycles, by phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainer.child.contract import CycleRecord, Peaks, Pool

PeakOf = Callable[[Peaks], int | None]
"""Reads one figure of a phase's peaks, in bytes; ``None`` if that figure was not measured."""

DEVICE_FIGURES: tuple[PeakOf, ...] = (
    lambda p: p.device_used,
    lambda p: p.device_reserved,
    lambda p: p.device_allocated,
)
"""Of a device, best first: what the driver saw in use, what the allocator reserved, what it gave out."""


def peak_reader(cycles: Sequence[CycleRecord], pool: Pool) -> PeakOf:
    """Function that reads one memory figure from the peaks of ``cycles``; of a device, the best figure that any cycle
    has.

    One figure for all of them, because figures of different kinds do not compare. The rollout cache is reserved as a
    whole, so it has no peak.
    """
    if pool is Pool.HOST:
        return lambda p: p.host
    found = (of for of in DEVICE_FIGURES if any(of(p) is not None for c in cycles for p in c.peaks.values()))
    return next(found, _no_figure) if pool is Pool.DEVICE else _no_figure


def _no_figure(_: Peaks) -> None:
    return None


def peaks_by_phase(cycles: Iterable[CycleRecord], read: PeakOf) -> dict[str, int]:
    """Highest bytes by phase; phases without the figure are left out."""
    found: dict[str, int] = {}
    for cycle in cycles:
        for phase, peaks in cycle.peaks.items():
            if (used := read(peaks)) is not None:
                found[phase] = max(used, found.get(phase, 0))
    return found


def phase_seconds(cycles: Iterable[CycleRecord]) -> dict[str, float]:
    """Seconds by phase, summed over ``cycles``."""
    found: dict[str, float] = {}
    for cycle in cycles:
        for phase, spent in cycle.phases.items():
            found[phase] = found.get(phase, 0.0) + max(0.0, spent)
    return found
