"""Clocks of the machine."""

from __future__ import annotations

import time

from autotune.ports import Clock


class SystemClock:
    """``ports.Clock`` on the clocks of the machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


STEP_S = 1e-3
"""Seconds between two returned times while the machine's clock is behind the last one."""


class ForwardClock:
    """``ports.Clock`` whose times only increase, even if a person or a time server sets the wrapped clock back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0.0

    def not_before(self, moment: float) -> None:
        """Makes every later time greater than ``moment``, in UTC seconds since the epoch."""
        self._last = max(self._last, moment)

    def now(self) -> float:
        now = self._clock.now()
        self._last = now if now >= self._last else self._last + STEP_S
        return self._last

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
