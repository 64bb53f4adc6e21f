"""Outcome of an attempt at a trial."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.child.contract import FailureReason, Pool


@dataclass(frozen=True)
class Ceiling:
    """Upper bound on the speed of a trial that was stopped early because it cannot win. Tokens/hour; see
    ``statistics.early_stopping``."""

    at_most: float
    """What the trial can reach at most."""
    best_at_least: float
    """What the best it competes with has at least."""
    rival: int
    """Number of that trial."""
    cycles: int
    """Speed cycles of the trial this rests on."""
    physical: bool = False
    """By the phases of so few cycles that their noise is not known, not by the noise."""

    def sentence(self) -> str:
        """``stopped after 3 cycles: at most 171.2k tokens/hour, the best has at least 190.1k``."""
        cycles = f"{self.cycles} cycle{'' if self.cycles == 1 else 's'}"
        most, best = (f"{v / 1000:.1f}k" if v >= 1000 else f"{v:.3g}" for v in (self.at_most, self.best_at_least))
        return f"stopped after {cycles}: at most {most} tokens/hour, the best has at least {best}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of an attempt. ``reason`` is ``None`` exactly when it ended OK."""

    reason: FailureReason | None = None
    phase: str | None = None
    """``Phase`` or ``StartupPart`` value."""
    pool: Pool | None = None
    message: str = ""
    suggestion: str = ""
    log_path: str = ""
    fresh: bool = True
    """The worker was fresh, or its memory was checked clean, when the trial began."""
    ceiling: Ceiling | None = None
    """Of a PRUNED trial: nothing went wrong, but it cannot win."""

    @property
    def ok(self) -> bool:
        return self.reason is None

    @property
    def inconclusive(self) -> bool:
        """Whether the machine or a person ended the attempt, so that the configuration may hold or not."""
        return self.reason is not None and not self.reason.blames_configuration

    def sentence(self) -> str:
        """The outcome in a sentence: ``OOM in update (host memory): ...``, or ``OK``."""
        if self.reason is None:
            return "OK" if self.ceiling is None else self.ceiling.sentence()
        where = f" in {self.phase}" if self.phase else ""
        pool = f" ({self.pool.value} memory)" if self.pool else ""
        text = f": {self.message}" if self.message else ""
        return f"{self.reason.value}{where}{pool}{text}"
