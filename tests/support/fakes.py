"""Stand-ins under the ports' contracts: a clock that only moves when told, a stop token, an observer."""

from __future__ import annotations

from autotune.domain import Event, Trial
from trainer.child.contract import CurrentPhase


class FakeClock:
    """Moves only by ``advance`` and ``sleep``."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._elapsed = 0.0
        self._epoch = now

    def monotonic(self) -> float:
        return self._elapsed

    def now(self) -> float:
        return self._epoch + self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds


class FakeStop:
    """Set ``level`` to ask for a stop."""

    def __init__(self, level: int = 0) -> None:
        self.level = level


class SeenObserver:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.trials: list[Trial] = []
        self.phases: list[CurrentPhase] = []
        self.ticks = 0

    def event(self, event: Event) -> None:
        self.events.append(event)

    def trial(self, trial: Trial) -> None:
        self.trials.append(trial)

    def phase(self, trial: Trial, phase: CurrentPhase) -> None:
        self.phases.append(phase)

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None:
        self.ticks += 1
