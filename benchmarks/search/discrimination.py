"""Whether a table can tell good searches from lucky ones. Each criterion with its figure; all have to hold.

On a table where one row in ten is nearly the best, or where the knobs act one by one, every search looks good. The
limits are the project's own, set before any table was recorded; docs/decisions/0032-tables-that-count.md says why.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain import Trial
from autotune.tables.table import TableRow
from benchmarks.search.models import Known, passing, prior_order
from benchmarks.search.world import World, holds, is_oom

NEAR = 0.05
"""A row is near the best from this share of its tokens/hour missing."""
NEAR_SHARE = 0.01
RANDOM_TRIALS = 40
PRIOR_TRIALS = 5
ADDITIVE_R2 = 0.95
PHASE_SHARE = 0.70
OOM_SHARE = 0.20
PARAMETERS, VOCABULARY = 10_000_000, 32_000
TAIL = 2.0
"""Longest of the recorded lengths, times their mean."""
TOP, TIMES = 20, 3


@dataclass(frozen=True)
class Criterion:
    """One thing a table has to have."""

    name: str
    figure: str
    limit: str
    passed: bool


def criteria(world: World, known: Known) -> tuple[Criterion, ...]:
    """All of them, in a fixed order."""
    *speeds, memory = of_rows(world, known)
    phase, *workload = of_workload(world)
    return (_measured(world), *speeds, phase, memory, *workload, _repeats(world))


def of_rows(world: World, known: Known) -> tuple[Criterion, ...]:
    """Those that take every row of the table to judge; the one of memory is the last."""
    return (_near(world), _random(world), _prior(world, known), _additive(world), _oom(world))


def of_workload(world: World) -> tuple[Criterion, ...]:
    """Those the baseline alone tells, or the header."""
    return (_phase(world), _model(world), _tail(world))


def counts(found: Sequence[Criterion]) -> bool:
    """Whether figures on the table mean anything."""
    return all(c.passed for c in found)


def near(world: World) -> list[int]:
    """The rows within ``NEAR`` of the best."""
    return [i for i in range(len(world.table.rows)) if world.missing(i) <= NEAR]


def random_median(rows: int, good: int) -> int | None:
    """Trials without repetition until the first of ``good`` rows out of ``rows``: the median; ``None`` without any.

    Exact: after t trials none was met with probability C(rows - good, t) / C(rows, t).
    """
    none_met, trials = 1.0, 0
    if good < 1:
        return None
    while none_met > 0.5:
        none_met *= (rows - good - trials) / (rows - trials)
        trials += 1
    return trials


def knob_names(world: World) -> list[str]:
    """Knobs in which rows differ, those that do not act in every row too; accumulation follows from others."""
    names = [d.name for d in world.grid.dimensions]
    return [
        *names,
        *sorted({n for c in world.configurations for n in c} - set(names) - {"gradient_accumulation_steps"}),
    ]


def additive_r2(rows: Sequence[TableRow], names: Sequence[str]) -> float:
    """Share of the variance of log cycle time that knobs one by one explain: least squares on indicators of each value.

    On the rows that hold. Not corrected for the number of parameters, so a small table is judged more severely.
    """
    held = [row for row in rows if holds(row)]
    if len(held) < 2:
        return 1.0
    logs = np.log([_cycle_seconds(row.trial) for row in held])
    columns = [np.ones(len(held))]
    for name in names:
        values = [row.configuration.get(name) for row in held]
        columns += [np.array([v == value for v in values], dtype=float) for value in sorted(set(values), key=repr)[1:]]
    matrix = np.stack(columns, axis=1)
    fitted = matrix @ np.linalg.lstsq(matrix, logs, rcond=None)[0]
    total = float(((logs - logs.mean()) ** 2).sum())
    return 1.0 if total == 0 else 1.0 - float(((logs - fitted) ** 2).sum()) / total


def _cycle_seconds(trial: Trial) -> float:
    return statistics.fmean(c.seconds for c in trial.speed_cycles())


def _measured(world: World) -> Criterion:
    synthetic = world.table.header.synthetic
    return Criterion("real trials", "computed by a function" if synthetic else "measured", "measured", not synthetic)


def _near(world: World) -> Criterion:
    found, rows = len(near(world)), len(world.table.rows)
    share = found / rows
    figure = f"{found} of {rows} rows ({share:.1%})"
    return Criterion("rows within 5 % of the best", figure, f"<= {NEAR_SHARE:.0%}", share <= NEAR_SHARE)


def _random(world: World) -> Criterion:
    """The baseline is the start of every arm, so it is not drawn."""
    rows = set(range(len(world.table.rows))) - {world.baseline}
    trials = random_median(len(rows), len(rows & set(near(world))))
    passed = trials is None or trials >= RANDOM_TRIALS
    if world.missing(world.baseline) <= NEAR:
        trials, passed = 0, False
    return Criterion("random's median to 5 %", f"{trials} trials", f">= {RANDOM_TRIALS}", passed)


def _prior(world: World, known: Known) -> Criterion:
    name, limit = "prior order alone to 5 %", f"> {PRIOR_TRIALS}"
    order = prior_order(world, known)
    if order is None:
        return Criterion(name, "not judged: no time model here", limit, False)
    fits = passing(world, known, ())
    tried = [i for i in order if fits[i] and i != world.baseline]
    good = set(near(world))
    at = next((place for place, row in enumerate(tried, start=1) if row in good), None)
    if at is None:
        return Criterion(name, f"not in {len(tried)} trials", limit, True)
    return Criterion(name, f"{at} trials", limit, at > PRIOR_TRIALS)


def _additive(world: World) -> Criterion:
    r2 = additive_r2(world.table.rows, knob_names(world))
    return Criterion("additive model in log cycle time", f"R2 {r2:.3f}", f"< {ADDITIVE_R2}", r2 < ADDITIVE_R2)


def _phase(world: World) -> Criterion:
    """Of the baseline, or where that fails of the first row that holds."""
    rows = [world.table.rows[world.baseline], *sorted(world.table.rows, key=lambda r: r.trial.number)]
    trial = next(row.trial for row in rows if holds(row))
    cycles = trial.speed_cycles()
    whole = sum(c.seconds for c in cycles)
    phases = {name: sum(c.phases.get(name, 0.0) for c in cycles) / whole for c in cycles for name in c.phases}
    name, share = max(phases.items(), key=lambda item: item[1], default=("none", 1.0))
    figure = f"{name} {share:.0%} of the {'baseline' if trial is rows[0].trial else 'reference'}"
    return Criterion("largest phase", figure, f"<= {PHASE_SHARE:.0%}", share <= PHASE_SHARE)


def _oom(world: World) -> Criterion:
    rows = world.table.rows
    found = sum(any(is_oom(run) for run in (row.trial, *row.repeats)) for row in rows)
    share = found / len(rows)
    return Criterion("rows that do not fit", f"{found} ({share:.0%})", f">= {OOM_SHARE:.0%}", share >= OOM_SHARE)


def _model(world: World) -> Criterion:
    facts = world.table.header.resources.model
    parameters, vocabulary = facts.parameters or 0, facts.vocabulary or 0
    figure = f"{parameters / 1e6:.0f} M parameters, vocabulary {vocabulary}"
    passed = parameters >= PARAMETERS and vocabulary >= VOCABULARY
    return Criterion("model", figure, ">= 10 M, >= 32000", passed)


def _tail(world: World) -> Criterion:
    lengths = world.table.header.lengths
    ratio = max(lengths) / statistics.fmean(lengths) if lengths and any(lengths) else math.nan
    figure = f"longest {ratio:.1f} x the mean"
    return Criterion("tail of the recorded lengths", figure, f">= {TAIL:g} x", ratio >= TAIL)


def _repeats(world: World) -> Criterion:
    """Of the rows that hold, the fastest by the run they were first recorded with."""
    held = sorted((r for r in world.table.rows if r.trial.feasible), key=lambda r: -(r.trial.tokens_per_hour or 0.0))
    often = min((len(row.repeats) for row in held[:TOP]), default=0)
    figure = f"{often} or more repeats of the {min(TOP, len(held))} fastest"
    return Criterion("the best measured again", figure, f">= {TIMES} of {TOP}", often >= TIMES and len(held) >= TOP)
