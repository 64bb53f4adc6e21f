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
    """How long a server may be away; seconds."""

    total_s: float = 300.0
    """A restart takes seconds, a failover a minute or two."""
    first_s: float = 0.1
    longest_s: float = 5.0
    """Between two tries; the pause doubles up to this."""


class Patient:
    """Runs database calls that are repeated while the server is away.

    Once it has given up, it tries everything only once until something goes through: whoever tidies up
    after the error must not wait as long again.
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
        """The action's result. It is repeated, so it must be one that can be.

        Raises:
            Exception: what the action raised, if the server is not away, or has been for too long.
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
