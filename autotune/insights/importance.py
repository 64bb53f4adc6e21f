"""Share of the difference in speed that each knob explains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.domain import Configuration, Trial
from autotune.insights.ranking import ranked, speed
from search_spaces.configuration import KnobValue

ENOUGH_TRIALS = 20
"""Below this many configurations a knob's share is mostly luck."""


@dataclass(frozen=True)
class Influence:
    """One knob's share of the explained variance."""

    knob: str
    share: float
    """Of the variance of log tokens/hour, 0 to 1; chance is subtracted, so a knob without effect has 0."""
    means: Mapping[KnobValue, float]
    """Geometric mean of tokens/hour by value, fastest first."""


@dataclass(frozen=True)
class Importance:
    """All knobs that differ between trials, largest share first."""

    influences: tuple[Influence, ...]
    trials: int
    note: str = ""
    """Why not to rely on it; empty if there are enough trials."""


def importance(trials: Iterable[Trial], *, enough: int = ENOUGH_TRIALS) -> Importance:
    """One-way effect of each knob over the feasible configurations (omega squared on log tokens/hour).

    Knobs are taken one at a time: what two knobs do only together is in neither share, and what they
    do alike because they were tried together is in both.
    """
    chosen = ranked(trials)
    values = [math.log(speed(t)) for t in chosen]
    settings = [t.configuration for t in chosen]
    names = sorted({name for c in settings for name in c})
    found = [i for n in names if (i := _influence(n, settings, values)) is not None]
    note = "" if len(chosen) >= enough else f"too few trials: {len(chosen)} feasible of {enough} needed"
    return Importance(tuple(sorted(found, key=lambda i: (-i.share, i.knob))), len(chosen), note)


def _influence(name: str, settings: Sequence[Configuration], values: Sequence[float]) -> Influence | None:
    groups: dict[KnobValue, list[float]] = {}
    for configuration, value in zip(settings, values, strict=True):
        if name in configuration:
            groups.setdefault(configuration[name], []).append(value)
    if len(groups) < 2:
        return None
    means = sorted(((fmean(v), k) for k, v in groups.items()), key=lambda item: (-item[0], repr(item[1])))
    return Influence(name, _omega_squared(list(groups.values())), {k: math.exp(m) for m, k in means})


def _omega_squared(groups: Sequence[Sequence[float]]) -> float:
    """Explained share of variance without what as many random groups would explain."""
    everything = [v for group in groups for v in group]
    freedom = len(everything) - len(groups)
    if freedom <= 0:
        return 0.0
    centre = fmean(everything)
    total = sum((v - centre) ** 2 for v in everything)
    between = sum(len(g) * (fmean(g) - centre) ** 2 for g in groups)
    error = max(0.0, total - between) / freedom
    if total + error <= 0:
        return 0.0
    return min(1.0, max(0.0, (between - (len(groups) - 1) * error) / (total + error)))
