"""Measures the summed PSS (proportional set size) of a process tree at a bounded CPU cost.

An exact PSS costs 9 ms of CPU per resident GiB and would disturb the measurement. It is therefore read at a bounded
duty; between two readings, changes of the cheap counters of anonymous memory are added. If the limit may be exceeded,
an exact reading follows at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.running import proc
from autotune.running.proc import Stat


@dataclass(frozen=True, slots=True)
class PssReading:
    """One process's PSS at its last exact reading, in bytes."""

    started: int
    proportional: int
    resident: int
    shared: int


@dataclass(frozen=True, slots=True)
class Probes:
    """Functions that read memory figures from ``/proc``; replaced in tests."""

    resident: Callable[[int], tuple[int, int]] = proc.read_resident
    proportional: Callable[[int], int | None] = proc.read_proportional
    monotonic: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.thread_time


class TreeMemory:
    """Current and highest summed PSS of a process tree, in bytes."""

    def __init__(
        self,
        duty: float = 0.01,
        burst_s: float = 0.2,
        max_age_s: float = 2.0,
        probes: Probes | None = None,
        shared_bytes: Callable[[], int] = lambda: 0,
    ):
        """Makes a measure.

        Args:
            duty: share of one core that exact readings may cost.
            burst_s: CPU seconds that may be saved up for exact readings at a peak.
            max_age_s: seconds after which an exact reading is renewed, if the duty allows.
            shared_bytes: returns the bytes of the tree's pages that count as others' (``Preloads.shared_bytes``).
        """
        self._duty, self._burst, self._max_age = duty, burst_s, max_age_s
        self._probes = probes or Probes()
        self._credit = burst_s
        self._cost = 0.0
        self._at = self._exact_at = self._probes.monotonic()
        self._readings: dict[int, PssReading] = {}
        self._shared_bytes = shared_bytes
        self._share = 0
        self.current = 0
        self.peak = 0

    def measure(self, members: Sequence[Stat], limit: int | None = None) -> int:
        """Returns the summed PSS in bytes; reads it exactly if the sum may be above ``limit``."""
        now = self._probes.monotonic()
        self._credit = min(self._burst, self._credit + self._duty * (now - self._at))
        self._at = now
        resident = {m.pid: self._probes.resident(m.pid) for m in members}
        low, high = self._estimate(members, resident)
        must = limit is not None and high > limit
        wanted = high > 1.01 * self.peak or now - self._exact_at >= self._max_age
        if must or (wanted and self._credit >= self._cost):
            low = self._read(members, resident)
            self._exact_at = now
        self.current = low
        self.peak = max(self.peak, low)
        return low

    def _estimate(self, members: Sequence[Stat], resident: dict[int, tuple[int, int]]) -> tuple[int, int]:
        """Returns a lower and an upper estimate of the summed PSS; new anonymous memory counts in both."""
        low = high = self._share
        for member in members:
            total, shared = resident[member.pid]
            known = self._readings.get(member.pid)
            if known is None or known.started != member.started:
                high += total  # a fresh fork shares its parent's pages: nothing is sure yet
                continue
            low += max(0, known.proportional + (total - shared) - (known.resident - known.shared))
            high += max(0, known.proportional + total - known.resident)
        return low, high

    def _read(self, members: Sequence[Stat], resident: dict[int, tuple[int, int]]) -> int:
        before = self._probes.cpu()
        readings = {}
        for member in members:
            total, shared = resident[member.pid]
            exact = self._probes.proportional(member.pid)
            if exact is None:  # it has ended meanwhile and holds nothing, or may not be read and counts whole
                exact = self._probes.resident(member.pid)[0]
            readings[member.pid] = PssReading(member.started, exact, total, shared)
        self._readings = readings
        self._share = self._shared_bytes()
        self._cost = self._probes.cpu() - before
        self._credit -= self._cost
        return self._share + sum(r.proportional for r in readings.values())
