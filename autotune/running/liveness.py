"""Decides whether a silent child still works, from its output and the CPU time of its process tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

WINDOW_S = 5.0
"""CPU use is judged over windows of this length."""


@dataclass(frozen=True, slots=True)
class HangLimits:
    """Seconds without progress after which a child counts as hung."""

    quiet_s: float = 180.0
    """Nothing written and (almost) no CPU time used."""
    phase_s: float = 1800.0
    """Nothing written, however busy: a spinning wait looks like work."""
    by_phase: Mapping[str, float] = field(default_factory=dict)
    """Other values of ``phase_s``, by phase or start-up part."""
    busy_cores: float = 0.05
    """Mean use below which a tree counts as idle; watching threads of frameworks never quite sleep."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Signs of progress of a child at one moment."""

    at: float
    """Monotonic seconds."""
    mark: int
    """Modification time of the phase file."""
    written: int
    """Bytes of ``metrics.jsonl``."""
    cpu_s: float
    """CPU seconds of the tree so far."""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Vigil:
    """State of the hang detection between two checks."""

    progress: Pulse
    """When it last wrote something."""
    window: Pulse
    """Start of the present CPU window."""
    busy_at: float
    """End of the last window in which it was busy."""

    @staticmethod
    def begin(pulse: Pulse) -> Vigil:
        """The state at the child's start."""
        return Vigil(pulse, pulse, pulse.at)


def advance(vigil: Vigil, pulse: Pulse, limits: HangLimits) -> Vigil:
    """The state after one more check."""
    if pulse.mark != vigil.progress.mark or pulse.written != vigil.progress.written:
        return Vigil.begin(pulse)
    span = pulse.at - vigil.window.at
    if span < min(WINDOW_S, limits.quiet_s / 2):
        return vigil
    busy = pulse.cpu_s - vigil.window.cpu_s >= limits.busy_cores * span
    return replace(vigil, window=pulse, busy_at=pulse.at if busy else vigil.busy_at)


def verdict(vigil: Vigil, pulse: Pulse, limits: HangLimits) -> str | None:
    """The sentence saying why the child counts as hung, or ``None``."""
    silent = pulse.at - vigil.progress.at
    allowed = limits.by_phase.get(pulse.phase, limits.phase_s)
    if silent >= allowed:
        return f"no sign of progress for {silent:.0f} s (limit of this phase: {allowed:.0f} s)"
    idle = pulse.at - vigil.busy_at
    if idle >= limits.quiet_s:
        return f"no sign of progress and no CPU time used for {idle:.0f} s"
    return None
