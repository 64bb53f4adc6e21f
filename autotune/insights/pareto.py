"""Pareto front of tokens/hour against peak memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain import Pool, Trial
from autotune.insights.ranking import ranked, speed


@dataclass(frozen=True)
class ParetoPoint:
    """One configuration on the front."""

    trial: int
    tokens_per_hour: float
    peak: int
    """Bytes of the pool asked for."""


def pareto(trials: Iterable[Trial], pool: Pool) -> tuple[ParetoPoint, ...]:
    """The front of tokens/hour against the peak of ``pool``, fastest first.

    Feasible trials whose peak of that pool is not known are left out.
    """
    points = [ParetoPoint(t.number, speed(t), used) for t in ranked(trials) if (used := t.peak(pool)) is not None]
    front: list[ParetoPoint] = []
    for point in sorted(points, key=lambda p: (-p.tokens_per_hour, p.peak, p.trial)):
        if not front or point.peak < front[-1].peak:
            front.append(point)
    return tuple(front)
