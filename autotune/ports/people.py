"""Protocols of the clock, of requests to a running tuner, and of observers that display its progress."""

from __future__ import annotations

from typing import Protocol as Port

from autotune.domain import Event, Trial
from trainer.child.contract import CurrentPhase


class Clock(Port):
    """A clock. ``monotonic`` never jumps; ``now`` is UTC seconds since the epoch, for people."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class StopToken(Port):
    """The user's stop request: 0 go on, 1 finish the running trial, 2 stop now."""

    @property
    def level(self) -> int: ...


class Requests(Port):
    """Requests to a running tuner other than a stop."""

    @property
    def paused(self) -> bool:
        """Whether no further trial shall start."""

    def hold(self) -> float:
        """Waits while the study is paused; returns the seconds waited."""

    def retries(self) -> tuple[int, ...]:
        """Numbers of trials whose configurations are to be run again, each request once."""


class Observer(Port):
    """Receives the progress of a study for display; must not fail."""

    def event(self, event: Event) -> None: ...

    def trial(self, trial: Trial) -> None:
        """A trial was added, started, gained a cycle, or ended."""

    def phase(self, trial: Trial, phase: CurrentPhase) -> None: ...

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None: ...
