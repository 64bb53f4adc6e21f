"""Start-up time of trials before their first cycle, by part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import Trial
from autotune.wording.numbers import format_duration
from trainer.child.contract import StartupPart


@dataclass(frozen=True)
class Startups:
    """Start-up seconds summed over the last attempts of some trials."""

    trials: int
    wall: float
    """What these trials took as a whole."""
    parts: Mapping[str, float]
    """By ``StartupPart`` value, over all of them; in the order they come in."""

    @property
    def share(self) -> float:
        """Start-up time as a share of ``wall``."""
        return sum(self.parts.values()) / self.wall if self.wall > 0 else 0.0


def startups(trials: Sequence[Trial]) -> Startups | None:
    """Start-up times of ``trials``; ``None`` if no trial recorded one."""
    started = [trial for trial in trials if trial.startup and trial.seconds]
    if not started:
        return None
    names = dict.fromkeys([p.value for p in StartupPart] + sorted({n for t in started for n in t.startup}))
    sums = {name: sum(t.startup.get(name, 0.0) for t in started) for name in names}
    whole = sum(t.seconds or 0.0 for t in started)
    return Startups(len(started), whole, {n: s for n, s in sums.items() if any(n in t.startup for t in started)})


def startup_sentence(trials: Sequence[Trial]) -> str:
    """``Starting up took 31 % of 12 trials' time: a trial spawn 0.1 s, import 2.0 s, ...``; empty if not known."""
    found = startups(trials)
    if found is None:
        return ""
    each = (f"{n.replace('_', ' ')} {format_duration(s / found.trials)}" for n, s in found.parts.items())
    who = "one trial's" if found.trials == 1 else f"{found.trials} trials'"
    return f"Starting up took {found.share:.0%} of {who} time; in the mean of a trial: {', '.join(each)}."
