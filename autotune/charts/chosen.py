"""The few trials of a study that charts of several trials show beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Configuration, Trial
from autotune.insights.ranking import ranked
from autotune.statistics import evidence

SHOWN = 10


def chosen(trials: Sequence[Trial], baseline: Configuration, most: int = SHOWN) -> tuple[Trial, ...]:
    """Returns the reference, then the fastest configurations, one trial each; at most ``most`` in all."""
    anchor = evidence.reference(trials, baseline)
    first = () if anchor is None else (anchor,)
    rest = [t for t in ranked(trials) if anchor is None or t.configuration != anchor.configuration]
    return (*first, *rest[: most - len(first)])


def name_of(trial: Trial, baseline: Configuration) -> str:
    """Returns ``#12``, or ``#0 baseline``."""
    return f"#{trial.number} baseline" if trial.configuration == baseline else f"#{trial.number}"
