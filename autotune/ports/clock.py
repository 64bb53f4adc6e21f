"""Protocol of the clock that the tuner reads."""

from __future__ import annotations

from typing import Protocol as Port


class Clock(Port):
    """A clock. ``monotonic`` never jumps; ``now`` is UTC seconds since the epoch, for people."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...
