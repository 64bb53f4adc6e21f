"""The configurations that can be compared, fastest first."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.domain import Trial
from autotune.statistics.retries import corrected


def measured(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Feasible baseline and search trials with a speed that is not an emulation's, by number."""
    own = (t for t in corrected(trials) if t.kind.is_searched and not t.emulated)
    found = (t for t in own if t.feasible and t.tokens_per_hour)
    return tuple(sorted(found, key=lambda t: t.number))


def ranked(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """``measured`` by tokens/hour, fastest first, one trial for each configuration.

    Of several trials of one configuration the one with the most speed cycles stands for it, then the
    earliest: taking the fastest would rank luck.
    """
    chosen: dict[str, Trial] = {}
    for trial in measured(trials):
        other = chosen.get(trial.configuration.key)
        if other is None or len(trial.speed_cycles()) > len(other.speed_cycles()):
            chosen[trial.configuration.key] = trial
    return tuple(sorted(chosen.values(), key=lambda t: (-speed(t), t.number)))


def speed(trial: Trial) -> float:
    """Tokens/hour of a trial; 0.0 if it has none."""
    return trial.tokens_per_hour or 0.0
