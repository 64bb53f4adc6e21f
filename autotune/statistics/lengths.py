"""Chooses the completion lengths that a trial replays, and measures speeds at longer ones. Pure.

Completions grow or shrink while a policy learns, so a figure at the lengths of its first steps does not hold for the
whole run. A confirmation's first round also runs a cycle at twice the recorded lengths and one at the maximum. Each
value of a knob that moves lengths (``Knob.moves_lengths``) has its own lengths: the first trial at a value draws them
from its natural cycles, as the baseline does, and later trials at that value replay them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from autotune.domain import CycleKind, CycleRecord, LengthFigure, RecommendationRow, Study, Trial
from search_spaces.configuration import KnobValue
from search_spaces.knobs import moving_lengths

ONCE, TWICE, MAXIMUM = "1x", "2x", "maximum"
KINDS = {ONCE: CycleKind.RECORDED, TWICE: CycleKind.DOUBLE, MAXIMUM: CycleKind.MAXIMUM}
"""Name of a figure -> kind of the cycles it is computed from."""

NATURAL_CYCLES = 2
"""Natural-length cycles that recorded lengths are drawn from, if a cycle has fewer than ``MANY_ROWS`` completions."""
MANY_ROWS = 64
"""Completions per cycle from which one natural-length cycle is enough."""


def replayed(
    study: Study, trials: Sequence[Trial], configuration: Mapping[str, KnobValue] | None = None
) -> tuple[int, ...]:
    """Returns the completion lengths that the next trial replays, in tokens; empty if it draws its own.

    Args:
        configuration: configuration of the next trial; by default the baseline.
        trials: trials of the study, ordered by number.
    """
    baseline = moving_lengths(study.spec.baseline)
    wanted = baseline if configuration is None else moving_lengths(configuration)
    if wanted == baseline:
        return study.lengths
    alike = (t for t in trials if t.fits and moving_lengths(t.configuration) == wanted)
    return next((tuple(cycles[0].lengths) for t in alike if (cycles := t.speed_cycles())), ())


def completions(runs: Sequence[Trial]) -> tuple[int, ...]:
    """Returns the lengths that a configuration was measured at: natural ones (of the run with most), else replayed."""
    natural = [[n for c in cycles_at(t, CycleKind.NATURAL) for n in c.lengths] for t in runs]
    most: Sequence[int] = max(natural, key=len, default=[])
    return tuple(most or next((c.lengths for t in runs for c in t.speed_cycles()), ()))


def spread_words(rows: Sequence[int]) -> str:
    """Describes completion lengths, at least one, in tokens: ``mean 41, p95 64``."""
    return f"mean {statistics.fmean(rows):.0f}, p95 {sorted(rows)[math.ceil(0.95 * len(rows)) - 1]}"


def left_open(here: Sequence[Trial], there: Sequence[Trial]) -> float:
    """Returns the variance that few completions add to a log ratio if each side has its own lengths; else 0.

    The variance is that of the logarithms of the mean lengths: tokens/hour grow at most in proportion to the mean, as
    they do if a cycle takes the same time at all lengths.
    """
    if moving_lengths(here[0].configuration) == moving_lengths(there[0].configuration):
        return 0.0
    return sum(_of_the_mean(completions(side)) for side in (here, there))


def _of_the_mean(rows: Sequence[int]) -> float:
    return statistics.variance(rows) / statistics.fmean(rows) ** 2 / len(rows) if len(rows) > 1 else 1.0


def cycles_at(trial: Trial, kind: CycleKind) -> list[CycleRecord]:
    """Returns rank 0's accepted cycles of one kind."""
    return [c for c in trial.cycles if c.cycle_kind is kind and c.accepted and c.rank == 0]


def figures(runs: Sequence[Trial], tokens_per_hour: float) -> tuple[LengthFigure, ...]:
    """Returns the tokens/hour at 1x (``tokens_per_hour``, the stated figure), 2x and the maximum, in this order."""
    cycles = {at: [c for t in runs for c in cycles_at(t, kind) if not c.noisy] for at, kind in KINDS.items()}
    found = [_figure(at, undisturbed) for at, undisturbed in cycles.items()]
    stated = LengthFigure(ONCE, tokens_per_hour, found[0].mean_length, found[0].cycles)
    return (stated, *found[1:])


def figures_of(row: RecommendationRow) -> tuple[LengthFigure, ...]:
    """Returns a row's speeds by length, except lengths that the limit made almost equal; a row stored without them has
    no figure at 2x."""
    if row.lengths:
        once, *longer = row.lengths
        return (once, *(f for i, f in enumerate(longer) if not _cut(f, (once, *longer[:i]))))
    once, longest = LengthFigure(ONCE, row.tokens_per_hour), LengthFigure(MAXIMUM, row.maximum_tokens_per_hour)
    return (once, LengthFigure(TWICE), longest)


def _cut(figure: LengthFigure, shorter: Sequence[LengthFigure]) -> bool:
    """Tells whether ``figure`` has completions less than 1.2 times as long as an entry of ``shorter``."""
    known = [one.mean_length for one in shorter if one.mean_length and one.tokens_per_hour is not None]
    return bool(known) and figure.mean_length is not None and figure.mean_length < 1.2 * max(known)


def _figure(at: str, cycles: Sequence[CycleRecord]) -> LengthFigure:
    seconds = sum(c.seconds for c in cycles)
    if not cycles or seconds <= 0:
        return LengthFigure(at)
    rows = [n for c in cycles for n in c.lengths]
    speed = 3600.0 * sum(c.completion_tokens for c in cycles) / seconds
    return LengthFigure(at, speed, statistics.fmean(rows) if rows else None, len(cycles))
