"""What a few rows of a table say of all of it, before hours are spent on recording the rest. Pure.

The rows were recorded without a memory limit, so that every peak was measured. The project's own models of memory and
time are fitted to them and foretell the other rows. So the limit is found that a quarter of all rows exceeds, and the
criteria of docs/decisions/0032-tables-that-count.md are judged on a table made of forecasts. Such a table is smoother
than what will be measured, and it is our own model's: it can show that recording is in vain, not that it is not.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    FailureReason,
    Outcome,
    Phase,
    Pool,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.errors import UsageError
from autotune.tables.table import Header, RecordedTable, TableRow
from benchmarks.search import discrimination
from benchmarks.search.discrimination import NEAR, TIMES, Criterion
from benchmarks.search.models import models_of
from benchmarks.search.world import World
from benchmarks.sweeps.cases import AGAIN
from search_spaces.space import SearchSpace

MIB = 1 << 20
FULL = 0.25
"""Share of the rows that are meant not to fit: a fifth is asked for, and forecasts of peaks err by some per cent."""
LEAST_FULL, MOST_FULL = 0.22, 0.30
"""Between them the limit is put where peaks are farthest apart, so that few rows are a matter of chance."""
LEAST_ROWS = 5
"""Measured ones, before anything is said."""
ROW_SECONDS = 20.0


@dataclass(frozen=True)
class Judgement:
    """What was measured, and what is expected of the whole table."""

    planned: int
    """Rows of the whole table, the baseline among them."""
    measured: int
    failed: Mapping[str, int]
    peaks: tuple[float, ...]
    """Bytes, of the measured rows."""
    baseline_peak: float
    limit: int
    """Bytes, whole MiB."""
    beyond: float
    """Share of all rows that are expected to need more."""
    beyond_measured: float
    """The same of the measured ones."""
    seconds: tuple[float, ...]
    """Of each trial, start-up included."""
    scatter: float
    """Standard deviation of log seconds between cycles of a trial; NaN where no trial has two."""
    disturbed: float
    """Share of the timed cycles the clock guard objected to."""
    baseline_phases: Mapping[str, float]
    """Share of the baseline's time."""
    typical_phases: Mapping[str, float]
    """Median share of the rows' time."""
    workload: tuple[Criterion, ...]
    """Measured."""
    rows: tuple[Criterion, ...]
    """Expected."""
    without: Mapping[str, float]
    """Knob -> what the fastest expected row with another value of it lacks of the fastest."""
    baseline_lacks: float
    """Of the fastest expected row's tokens/hour; a baseline near the best leaves nothing to search for."""
    trusted: bool
    """The model of times stands by its prior."""

    @property
    def fits(self) -> bool:
        """Of the baseline, with 5 % of room: it is the start of every search."""
        return 1.05 * self.baseline_peak <= self.limit

    @property
    def promises(self) -> bool:
        """Nothing speaks against recording the table."""
        return self.fits and discrimination.counts([*self.workload, *self.rows, self.row])

    @property
    def row(self) -> Criterion:
        """What a row costs."""
        middle = statistics.median(self.seconds)
        return Criterion("seconds of a row", f"{middle:.1f} (median)", f"<= {ROW_SECONDS:g}", middle <= ROW_SECONDS)

    @property
    def hours(self) -> tuple[float, float]:
        """Of all rows, and of the repeats of the fastest, at the mean of what was measured."""
        mean = statistics.fmean(self.seconds) / 3600.0
        return mean * self.planned, mean * min(AGAIN, self.planned * (1.0 - self.beyond)) * TIMES


def judged(table: RecordedTable) -> Judgement:
    """The judgement of a pilot's table.

    Raises:
        UsageError: too few of its rows were measured, the baseline's not, or it had a memory limit.
    """
    trials = [row.trial for row in table.rows]
    peaks = {t.configuration: float(p) for t in trials if t.feasible and (p := t.host_peak)}
    baseline = table.header.baseline
    if table.header.memory_limit is not None:
        raise UsageError("a pilot is recorded without a memory limit: what does not fit has no peak to judge by")
    if len(peaks) < LEAST_ROWS or baseline not in peaks:
        failed = ", ".join(f"{reason} {count}" for reason, count in failures(trials).items()) or "none failed"
        need = f"at least {LEAST_ROWS} are needed, the baseline among them"
        raise UsageError(f"{len(peaks)} of the pilot's {len(trials)} rows have a peak ({failed}); {need}")
    world, every = World(table), all_rows(table.header)
    known = models_of(world.task, table.header.probe)
    if known.times is None or known.peaks is None:
        raise UsageError("this installation has no models to judge a pilot by")
    predicted = known.peaks.fitted(world.task, trials).forecast(every).peak.tolist()
    whole = [peaks.get(c, peak) for c, peak in zip(every, predicted, strict=True)]
    limit = limit_of(whole)
    times = known.times.fitted(world.task, trials)
    seconds = {name: column.tolist() for name, column in times.forecast(every).phases.items()}
    expected = World(expected_table(table.header, every, whole, limit, seconds))
    good = [t for t in trials if t.feasible and t.speed_cycles()]
    return Judgement(
        planned=len(every),
        measured=len(peaks),
        failed=failures(trials),
        peaks=tuple(sorted(peaks.values())),
        baseline_peak=peaks[baseline],
        limit=limit,
        beyond=statistics.fmean(peak > limit for peak in whole),
        beyond_measured=statistics.fmean(peak > limit for peak in peaks.values()),
        seconds=tuple(t.seconds for t in good if t.seconds is not None),
        scatter=scatter(good),
        disturbed=statistics.fmean(c.noisy for t in good for c in t.speed_cycles()),
        baseline_phases=next(t for t in good if t.configuration == baseline).phase_shares,
        typical_phases=typical(good),
        workload=discrimination.of_workload(world),
        rows=discrimination.of_rows(expected, models_of(expected.task, table.header.probe)),
        without=without(expected),
        baseline_lacks=expected.missing(expected.baseline),
        trusted=times.trusted,
    )


def all_rows(header: Header) -> tuple[Configuration, ...]:
    """What the whole table would have."""
    space = SearchSpace.from_json(header.space)
    found = space.candidates(header.baseline, header.resources, same_learning=False, seed=header.seed)
    return tuple(dict.fromkeys((header.baseline, *found)))


def limit_of(peaks: Sequence[float]) -> int:
    """Bytes, whole MiB, that about ``FULL`` of ``peaks`` exceed: in the widest gap between ``LEAST_FULL`` and
    ``MOST_FULL`` of them."""
    ordered, count = sorted(peaks, reverse=True), len(peaks)
    cuts = range(max(1, math.ceil(LEAST_FULL * count)), min(count - 1, math.floor(MOST_FULL * count)) + 1)
    cut = max(
        cuts or [max(1, round(FULL * count))], key=lambda k: (ordered[k - 1] / ordered[k], -abs(k / count - FULL))
    )
    return max(1, int(math.sqrt(ordered[cut - 1] * ordered[cut])) // MIB) * MIB


def expected_table(
    header: Header,
    every: Sequence[Configuration],
    peaks: Sequence[float],
    limit: int,
    seconds: Mapping[str, Sequence[float]],
) -> RecordedTable:
    """A table as it would be if everything came as foretold.

    Args:
        header: of the pilot.
        every: the rows.
        peaks: bytes of each.
        limit: bytes there would be.
        seconds: of a cycle by phase, of each row.
    """
    rows = []
    for place, configuration in enumerate(every):
        plain = Trial(
            study_id=0,
            number=place,
            kind=TrialKind.BASELINE if configuration == header.baseline else TrialKind.SEARCH,
            configuration=configuration,
            protocol=header.protocol,
            rows_per_update=header.rows_per_update,
        )
        if peaks[place] > limit:
            outcome = Outcome(FailureReason.OOM, Phase.UPDATE.value, Pool.HOST)
            trial = plain.with_(state=TrialState.FAIL, outcome=outcome)
        else:
            cycle = _cycle(header, {name: column[place] for name, column in seconds.items()})
            trial = plain.with_(state=TrialState.COMPLETE, outcome=Outcome(), cycles=(cycle,), worst_case_passed=True)
        rows.append(TableRow(trial, same_learning=True))
    return RecordedTable(replace(header, synthetic=True, memory_limit=limit), tuple(rows))


def _cycle(header: Header, seconds: Mapping[str, float]) -> CycleRecord:
    tokens = max(1, sum(header.lengths))
    return CycleRecord(
        index=0,
        cycle_kind=CycleKind.RECORDED,
        seconds=sum(seconds.values()),
        phases=dict(seconds),
        completion_tokens=tokens,
        prompt_tokens=0,
        rows=header.rows_per_update,
        updates=1,
        computed_tokens=tokens,
    )


def without(world: World) -> dict[str, float]:
    """Searched knob -> share of the fastest row's tokens/hour that the fastest with another value of it lacks."""
    searched = SearchSpace.from_json(world.table.header.space).values
    best = world.configurations[world.best]
    found = {}
    for name in (n for n in discrimination.knob_names(world) if n in searched):
        others = [i for i, c in enumerate(world.configurations) if c.get(name) != best.get(name)]
        if others:
            found[name] = min(world.missing(i) for i in others)
    return found


def failures(trials: Sequence[Trial]) -> dict[str, int]:
    """Reason -> how many, most first."""
    reasons = (t.outcome.reason for t in trials if t.outcome is not None)
    return dict(Counter(reason.value for reason in reasons if reason is not None).most_common())


def scatter(trials: Sequence[Trial]) -> float:
    """Of cycles within trials, standard deviation of log seconds."""
    logs = [[math.log(c.seconds) for c in t.speed_cycles()] for t in trials]
    squares = sum((x - statistics.fmean(own)) ** 2 for own in logs for x in own)
    freedom = sum(len(own) - 1 for own in logs)
    return math.sqrt(squares / freedom) if freedom else math.nan


def typical(trials: Sequence[Trial]) -> dict[str, float]:
    """Median share of each phase, largest first."""
    each = [t.phase_shares for t in trials]
    names = {name for one in each for name in one}
    middle = {name: statistics.median(one.get(name, 0.0) for one in each) for name in names}
    return dict(sorted(middle.items(), key=lambda item: (-item[1], item[0])))


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Least, quarters, 90 % and most."""
    levels = {"least": 0.0, "25 %": 0.25, "half": 0.5, "75 %": 0.75, "90 %": 0.9, "most": 1.0}
    return {name: float(np.quantile(values, level)) for name, level in levels.items()}


def weak(without: Mapping[str, float]) -> list[str]:
    """Knobs with another value that is nearly as fast: each may double the rows within ``NEAR`` of the best."""
    return [name for name, lack in without.items() if lack <= NEAR]
