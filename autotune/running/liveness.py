"""Decides whether a silent child still works, by its output and the CPU time of its process tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

WINDOW_S = 5.0
"""Seconds of a window over which CPU use is judged."""


@dataclass(frozen=True, slots=True)
class HangLimits:
    """Seconds without progress after which a child counts as hung."""

    quiet_s: float = 180.0
    """Limit without output and with (almost) no CPU time used."""
    phase_s: float = 1800.0
    """Limit without output, however busy the child is: a spinning wait looks like work."""
    by_phase: Mapping[str, float] = field(default_factory=dict)
    """Overrides of ``phase_s``, by phase or start-up part."""
    busy_cores: float = 0.05
    """Mean number of cores below which a tree counts as idle; frameworks' monitoring threads never sleep entirely."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Signs of progress of a child at one moment."""

    at: float
    """Time in monotonic seconds."""
    mark: int
    """Modification time of the phase file, in nanoseconds."""
    written: int
    """Bytes read of ``metrics.jsonl``."""
    cpu_s: float
    """CPU seconds of the tree so far."""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Vigil:
    """State of the hang detection between two checks."""

    progress: Pulse
    """Signs at the last output."""
    window: Pulse
    """Start of the current CPU window."""
    busy_at: float
    """End of the last window with CPU use, in monotonic seconds."""

    @staticmethod
    def begin(pulse: Pulse) -> Vigil:
        """Returns the state at the child's start."""
        return Vigil(pulse, pulse, pulse.at)


def advance(vigil: Vigil, pulse: Pulse, limits: HangLimits) -> Vigil:
    """Returns the state after one more check."""
    if pulse.mark != vigil.progress.mark or pulse.written != vigil.progress.written:
        return Vigil.begin(pulse)
    span = pulse.at - vigil.window.at
    if span < min(WINDOW_S, limits.quiet_s / 2):
        return vigil
    busy = pulse.cpu_s - vigil.window.cpu_s >= limits.busy_cores * span
    return replace(vigil, window=pulse, busy_at=pulse.at if busy else vigil.busy_at)


def verdict(vigil: Vigil, pulse: Pulse, limits: HangLimits) -> str | None:
    """Returns a sentence on why the child counts as hung; ``None`` if it does not."""
    silent = pulse.at - vigil.progress.at
    allowed = limits.by_phase.get(pulse.phase, limits.phase_s)
    if silent >= allowed:
        return f"no sign of progress for {silent:.0f} s (limit of this phase: {allowed:.0f} s)"
    idle = pulse.at - vigil.busy_at
    if idle >= limits.quiet_s:
        return f"no sign of progress and no CPU time used for {idle:.0f} s"
    return None
