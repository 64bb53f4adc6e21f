"""Ranks comparable configurations by speed, and finds their Pareto front of tokens/hour against peak memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.domain import Configuration, Pool, Trial
from autotune.statistics import evidence
from autotune.statistics.retries import corrected

SHOWN = 10
"""Most trials of a chart of several trials."""


def measured(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Returns the feasible baseline and search trials that have a speed, ordered by number; emulated FP8 is omitted."""
    own = (t for t in corrected(trials) if t.kind.is_searched and not t.emulated)
    found = (t for t in own if t.feasible and t.tokens_per_hour)
    return tuple(sorted(found, key=lambda t: t.number))


def ranked(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Returns the trials of ``measured``, fastest first, one for each configuration.

    Of several trials of one configuration, the one with the most speed cycles represents it, then the earliest. Taking
    the fastest would favour luck.
    """
    chosen: dict[str, Trial] = {}
    for trial in measured(trials):
        other = chosen.get(trial.configuration.key)
        if other is None or len(trial.speed_cycles()) > len(other.speed_cycles()):
            chosen[trial.configuration.key] = trial
    return tuple(sorted(chosen.values(), key=lambda t: (-speed(t), t.number)))


def speed(trial: Trial) -> float:
    """Returns the tokens/hour of a trial; 0.0 if it has none."""
    return trial.tokens_per_hour or 0.0


@dataclass(frozen=True)
class ParetoPoint:
    """One configuration on the Pareto front."""

    trial: int
    tokens_per_hour: float
    peak: int
    """Peak of the compared pool, in bytes."""


def pareto(trials: Iterable[Trial], pool: Pool) -> tuple[ParetoPoint, ...]:
    """Returns the Pareto front of tokens/hour against the peak of ``pool``, fastest first.

    Feasible trials whose peak of that pool is not known are omitted.
    """
    points = [ParetoPoint(t.number, speed(t), used) for t in ranked(trials) if (used := t.peak(pool)) is not None]
    front: list[ParetoPoint] = []
    for point in sorted(points, key=lambda p: (-p.tokens_per_hour, p.peak, p.trial)):
        if not front or point.peak < front[-1].peak:
            front.append(point)
    return tuple(front)


def chosen(trials: Sequence[Trial], baseline: Configuration, most: int = SHOWN) -> tuple[Trial, ...]:
    """Returns the reference, then the fastest configurations, one trial each; at most ``most`` in all."""
    anchor = evidence.reference(trials, baseline)
    first = () if anchor is None else (anchor,)
    rest = [t for t in ranked(trials) if anchor is None or t.configuration != anchor.configuration]
    return (*first, *rest[: most - len(first)])


def name_of(trial: Trial, baseline: Configuration) -> str:
    """Returns ``#12``, or ``#0 baseline``."""
    return f"#{trial.number} baseline" if trial.configuration == baseline else f"#{trial.number}"
