"""Repeats database calls while the server is away, for a bounded time, and reports the outage once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from autotune.ports import Clock, StopToken
from autotune.store.backend import Backend, TryAgainError

T = TypeVar("T")
Talk = Callable[[str], None]


@dataclass(frozen=True)
class OutageLimits:
    """Limits on waiting for a server that is away, in seconds."""

    total_s: float = 300.0
    """Longest outage: a restart takes seconds, a failover a minute or two."""
    first_s: float = 0.1
    longest_s: float = 5.0
    """Longest pause between two tries; pauses double up to this."""


class Patient:
    """Runs database calls and repeats them while the server is away.

    After it has given up, it tries each call only once until one succeeds, so that cleaning up after the error does not
    wait as long again.
    """

    def __init__(
        self, backend: Backend, patience: OutageLimits, clock: Clock, talk: Talk, stop: StopToken | None
    ) -> None:
        self._backend = backend
        self._patience = patience
        self._clock = clock
        self._talk = talk
        self._stop = stop
        self._gave_up = False
        self._announced = False

    def do(self, action: Callable[[], T]) -> T:
        """Runs ``action``, which must be repeatable, until it succeeds, and returns its result.

        Raises:
            Exception: the action's own, if the server is not away, or has been away for too long.
        """
        began, pause, tried = self._clock.monotonic(), self._patience.first_s, 0
        while True:
            try:
                result = action()
            except Exception as error:
                away = self._clock.monotonic() - began
                if not (isinstance(error, TryAgainError) or self._backend.lost(error)):
                    raise
                if self._gave_up or away >= self._patience.total_s or self._stopped():
                    self._gave_up = True
                    raise
                tried += 1
                if tried > 1 or not self._backend.remote:  # A server's first time may be one connection that broke.
                    self._say_away(error)
                    self._clock.sleep(min(pause, self._patience.total_s))
                    pause = min(2 * pause, self._patience.longest_s)
            else:
                self._say_back(self._clock.monotonic() - began)
                return result

    def _stopped(self) -> bool:
        return self._stop is not None and self._stop.level >= 2

    def _say_away(self, error: Exception) -> None:
        if not self._announced:
            self._announced = True
            minutes = self._patience.total_s / 60
            how = "away" if self._backend.remote else "in use"
            self._talk(
                f"{self._backend.place} is {how} ({self._backend.explain(error)}); "
                f"trying again for up to {minutes:.0f} min, and nothing measured meanwhile is lost"
            )

    def _say_back(self, away: float) -> None:
        self._gave_up = False
        if self._announced:
            self._announced = False
            self._talk(f"{self._backend.place} is {'back' if self._backend.remote else 'free'} after {away:.0f} s")
