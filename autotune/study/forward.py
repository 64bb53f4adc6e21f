"""A clock whose time of day never goes back: the times stored of a study are compared with each other."""

from __future__ import annotations

from autotune.ports import Clock

STEP_S = 1e-3
"""Between two times, while the machine's clock is behind the last of them."""


class ForwardClock:
    """``ports.Clock`` on another one that may be set back, by a person or a time server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0.0

    def not_before(self, moment: float) -> None:
        """Every further time is later."""
        self._last = max(self._last, moment)

    def now(self) -> float:
        now = self._clock.now()
        self._last = now if now >= self._last else self._last + STEP_S
        return self._last

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
