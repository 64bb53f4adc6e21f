"""What a long run shows while it runs: a line now and then, against the prediction."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.wording.text import clean
from autotune.domain import Event, Trial
from autotune.verify import long_run
from autotune.verify.length_model import LengthPrediction
from autotune.wording.numbers import format_duration, signed_percent
from trainer.child.contract import CurrentPhase

EVERY_S = 10.0


class LongProgress:
    """An ``Observer`` that talks of cycles."""

    def __init__(
        self,
        prediction: LengthPrediction,
        cycles: int,
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prediction = prediction
        self._cycles = cycles
        self._say = say
        self._now = now
        self._told = -EVERY_S
        self._count = 0

    def event(self, event: Event) -> None:
        """Only what keeps the run from being a plain one."""
        if event.kind in ("trial_repeated", "quarantined", "gpu_quarantined", "bad_lines"):
            self._say(clean(event.message))

    def trial(self, trial: Trial) -> None:
        """A line each ``EVERY_S``, and one at the last cycle."""
        cycles = long_run.natural(trial)
        if not cycles or len(cycles) == self._count:
            return
        self._count = len(cycles)
        if self._now() - self._told < EVERY_S and self._count < self._cycles:
            return
        self._told = self._now()
        last, spent = cycles[-1], sum(c.seconds for c in cycles)
        expected = sum(sum(self._prediction.seconds(c).values()) for c in cycles)
        left = (self._cycles - self._count) * spent / self._count
        mean = last.completion_tokens / max(1, last.rows)
        self._say(
            f"cycle {self._count} of {self._cycles}: {last.seconds:.1f} s, completions of {mean:.1f} tokens; so far "
            f"{signed_percent(expected / spent - 1.0)} against the prediction; {format_duration(left)} left"
        )

    def phase(self, trial: Trial, phase: CurrentPhase) -> None:
        """Not shown."""

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None:
        """Not shown."""
