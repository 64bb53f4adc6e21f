"""What a long run shows while it runs: a line now and then, against the prediction."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune.cli.screens.observer import QuietObserver
from autotune.domain import Event, Trial
from autotune.verify import long_run
from autotune.verify.length_model import LengthPrediction
from autotune.wording.numbers import format_duration, signed_percent
from autotune.wording.text import clean

EVERY_S = 10.0


@dataclass(eq=False)
class LongProgress(QuietObserver):
    """An ``Observer`` that talks of cycles."""

    prediction: LengthPrediction
    cycles: int
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    _told: float = -EVERY_S
    _count: int = 0

    def event(self, event: Event) -> None:
        """Only what keeps the run from being a plain one."""
        if event.kind in ("trial_repeated", "quarantined", "gpu_quarantined", "bad_lines"):
            self.say(clean(event.message))

    def trial(self, trial: Trial) -> None:
        """A line each ``EVERY_S``, and one at the last cycle."""
        cycles = long_run.natural(trial)
        if not cycles or len(cycles) == self._count:
            return
        self._count = len(cycles)
        if self.now() - self._told < EVERY_S and self._count < self.cycles:
            return
        self._told = self.now()
        last, spent = cycles[-1], sum(c.seconds for c in cycles)
        expected = sum(sum(self.prediction.seconds(c).values()) for c in cycles)
        left = (self.cycles - self._count) * spent / self._count
        mean = last.completion_tokens / max(1, last.rows)
        self.say(
            f"cycle {self._count} of {self.cycles}: {last.seconds:.1f} s, completions of {mean:.1f} tokens; so far "
            f"{signed_percent(expected / spent - 1.0)} against the prediction; {format_duration(left)} left"
        )
