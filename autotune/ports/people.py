"""What people and other processes ask of a running tuner, and what they are shown of it."""

from __future__ import annotations

from typing import Protocol as Port

from autotune.domain import Event, Trial
from trainer.child.contract import CurrentPhase


class StopToken(Port):
    """What the user asked for: 0 go on, 1 finish the running trial, 2 stop now."""

    @property
    def level(self) -> int: ...


class Requests(Port):
    """What others ask of a running tuner, beside a stop."""

    def hold(self) -> float:
        """Waits while the study is paused; the seconds it waited."""
        ...

    def retries(self) -> tuple[int, ...]:
        """Numbers of trials whose configurations shall be run again, each request once."""
        ...


class Observer(Port):
    """Shown what a study does; must not fail."""

    def event(self, event: Event) -> None: ...

    def trial(self, trial: Trial) -> None:
        """A trial was added, started, gained a cycle, or ended."""
        ...

    def phase(self, trial: Trial, phase: CurrentPhase) -> None: ...

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None: ...
