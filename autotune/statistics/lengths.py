"""How fast a configuration is where completions are longer than the recorded ones; pure.

Completions grow (or shrink) while a policy learns, so that a figure at the lengths of its first steps is not that of
the whole run. A confirmation therefore also runs a cycle at twice the recorded lengths and one at the maximum.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.domain import CycleKind, CycleRecord, LengthFigure, RecommendationRow, Trial

ONCE, TWICE, MAXIMUM = "1x", "2x", "maximum"
KINDS = {ONCE: CycleKind.RECORDED, TWICE: CycleKind.DOUBLE, MAXIMUM: CycleKind.MAXIMUM}
"""Cycles each figure is taken from."""

NATURAL_CYCLES = 2
"""Natural-length cycles of the trial the recorded lengths are drawn from, where one has few rows ..."""
MANY_ROWS = 64
"""... and one is enough from so many on."""


def cycles_at(trial: Trial, kind: CycleKind) -> list[CycleRecord]:
    """The accepted cycles of one kind, as rank 0 recorded them."""
    return [c for c in trial.cycles if c.cycle_kind is kind and c.accepted and c.rank == 0]


def figures(runs: Sequence[Trial], tokens_per_hour: float) -> tuple[LengthFigure, ...]:
    """Tokens/hour at 1x, 2x and the maximum, in this order.

    Args:
        tokens_per_hour: the stated figure, which is that at 1x.
    """
    found = [_figure(at, [c for t in runs for c in cycles_at(t, kind)]) for at, kind in KINDS.items()]
    stated = LengthFigure(ONCE, tokens_per_hour, found[0].mean_length, found[0].cycles)
    return (stated, *found[1:])


def figures_of(row: RecommendationRow) -> tuple[LengthFigure, ...]:
    """Of a row, also of one an earlier version stored without: 2x is then not measured."""
    if row.lengths:
        return row.lengths
    once, longest = LengthFigure(ONCE, row.tokens_per_hour), LengthFigure(MAXIMUM, row.maximum_tokens_per_hour)
    return (once, LengthFigure(TWICE), longest)


def _figure(at: str, cycles: Sequence[CycleRecord]) -> LengthFigure:
    seconds = sum(c.seconds for c in cycles)
    if not cycles or seconds <= 0:
        return LengthFigure(at)
    rows = [n for c in cycles for n in c.lengths]
    speed = 3600.0 * sum(c.completion_tokens for c in cycles) / seconds
    return LengthFigure(at, speed, statistics.fmean(rows) if rows else None, len(cycles))
