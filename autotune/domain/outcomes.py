"""Outcome of an attempt at a trial."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.child.contract import FailureReason, Pool

NOT_RETURNED = "the reward has not returned for"
"""Beginning of ``Outcome.message`` for a trial whose time ended during one call of the reward."""
FAILURE_WORDS = {reason.value: reason.value for reason in FailureReason} | {
    "ILLEGAL": "invalid settings",
    "QUALITY": "log-probs differ",
    "INFRA": "machine fault",
    "CANCELLED": "cancelled",
}
"""Words for a reason in texts for people; documents keep its name."""


@dataclass(frozen=True)
class Ceiling:
    """Upper bound on the speed of a trial that was stopped early because it cannot win, in tokens/hour.
    ``statistics.early_stopping`` computes it."""

    at_most: float
    """Highest tokens/hour that the stopped trial can reach."""
    best_at_least: float
    """Lowest tokens/hour that the best competing trial has."""
    rival: int
    """Number of the best competing trial."""
    cycles: int
    """Number of speed cycles of the stopped trial that the bound rests on."""
    physical: bool = False
    """True if the bound follows from phase times, because there are too few cycles to estimate their noise."""

    def sentence(self) -> str:
        """States the bound: ``stopped after 3 cycles: at most 171.2k tokens/hour, the best has at least 190.1k``."""
        cycles = f"{self.cycles} cycle{'' if self.cycles == 1 else 's'}"
        most, best = (f"{v / 1000:.1f}k" if v >= 1000 else f"{v:.3g}" for v in (self.at_most, self.best_at_least))
        return f"stopped after {cycles}: at most {most} tokens/hour, the best has at least {best}"


@dataclass(frozen=True)
class Outcome:
    """Outcome of an attempt at a trial. ``reason`` is ``None`` exactly when the attempt ended OK."""

    reason: FailureReason | None = None
    phase: str | None = None
    """Phase or part of the start-up in which the attempt failed: a value of ``Phase`` or ``StartupPart``."""
    pool: Pool | None = None
    message: str = ""
    suggestion: str = ""
    log_path: str = ""
    fresh: bool = True
    """True if the worker was new, or its memory was checked clean, when the trial began."""
    ceiling: Ceiling | None = None
    """Speed bound of a PRUNED trial, which did not fail but cannot win; ``None`` for any other."""

    @property
    def ok(self) -> bool:
        return self.reason is None

    @property
    def inconclusive(self) -> bool:
        """True if the machine or a person ended the attempt, so that it gives no verdict on the configuration."""
        return self.reason is not None and not self.reason.blames_configuration

    def sentence(self) -> str:
        """Returns the outcome in one sentence: ``OOM in update (host memory): ...``, or ``OK``."""
        if self.reason is None:
            return "OK" if self.ceiling is None else self.ceiling.sentence()
        where = f" in {self.phase}" if self.phase else ""
        pool = f" ({self.pool.value} memory)" if self.pool else ""
        text = f": {self.message}" if self.message else ""
        return f"{FAILURE_WORDS[self.reason.value]}{where}{pool}{text}"
