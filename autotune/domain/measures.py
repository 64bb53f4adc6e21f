"""Sums seconds and finds memory peaks over cycles, by phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainer.child.contract import CycleRecord, Peaks, Pool

PeakOf = Callable[[Peaks], int | None]
"""Function that reads one memory figure of a phase's ``Peaks``, in bytes; ``None`` if it was not measured."""

DEVICE_FIGURES: tuple[PeakOf, ...] = (
    lambda p: p.device_used,
    lambda p: p.device_reserved,
    lambda p: p.device_allocated,
)
"""Readers of device memory, best first: in use by the driver, reserved by the allocator, allocated to tensors."""


def peak_reader(cycles: Sequence[CycleRecord], pool: Pool) -> PeakOf:
    """Returns the function that reads the memory figure of ``pool`` from a phase's peaks.

    All cycles share one device figure, the best that any of them has, as figures of different kinds do not compare. The
    rollout cache is reserved as a whole and has no figure.
    """
    if pool is Pool.HOST:
        return lambda p: p.host
    figures = DEVICE_FIGURES if pool is Pool.DEVICE else ()
    found = (of for of in figures if any(of(p) is not None for c in cycles for p in c.peaks.values()))
    return next(found, lambda _: None)


def peaks_by_phase(cycles: Iterable[CycleRecord], read: PeakOf) -> dict[str, int]:
    """Returns the highest bytes by phase; phases without the figure are absent."""
    found: dict[str, int] = {}
    for cycle in cycles:
        for phase, peaks in cycle.peaks.items():
            if (used := read(peaks)) is not None:
                found[phase] = max(used, found.get(phase, 0))
    return found


def phase_seconds(cycles: Iterable[CycleRecord]) -> dict[str, float]:
    """Returns the seconds spent in each phase, summed over ``cycles``."""
    found: dict[str, float] = {}
    for cycle in cycles:
        for phase, spent in cycle.phases.items():
            found[phase] = found.get(phase, 0.0) + max(0.0, spent)
    return found
