"""Protocols of the clock, of requests to a running tuner, and of observers that display progress."""

from __future__ import annotations

from typing import Protocol as Port

from autotune.domain import Event, Trial
from trainer.child.contract import CurrentPhase


class Clock(Port):
    """A clock. ``monotonic`` gives seconds that never jump; ``now`` gives UTC seconds since the epoch."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class StopToken(Port):
    """Stop request of the user. ``level``: 0 continue, 1 finish the running trial, 2 stop at once."""

    @property
    def level(self) -> int: ...


class Requests(Port):
    """Requests to a running tuner, except stop requests."""

    @property
    def paused(self) -> bool:
        """True if no further trial may start."""

    def hold(self) -> float:
        """Waits while the study is paused. Returns the seconds waited."""

    def todo(self) -> tuple[Event, ...]:
        """Returns the requests to run a trial again and to extend the budget, each once."""


class Observer(Port):
    """Receives the progress of a study for display. Its methods must not raise."""

    def event(self, event: Event) -> None: ...

    def trial(self, trial: Trial) -> None:
        """Receives a trial that was added, started, gained a cycle, or ended."""

    def phase(self, trial: Trial, phase: CurrentPhase) -> None: ...

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None: ...
