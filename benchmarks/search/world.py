"""A recorded table as a world to search in: what a row is worth, what a trial of it shows, and what it costs.

Every arm sees the same: a trial of a row is drawn from that row's own recorded runs by seed and row alone, so whoever
tries the row gets the same figures, with the noise the machine had.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, FailureReason, Trial, TrialKind, TrialState
from autotune.errors import UsageError
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.forecasts import Task
from autotune.tables.files import lines
from autotune.tables.table import RecordedTable, TableRow
from search_spaces.configuration import KnobValue
from search_spaces.knobs.restart import RestartKey
from search_spaces.space import SearchSpace

NEVER = -math.inf
"""Logarithm of what a row is worth that does not hold."""


@dataclass(frozen=True)
class Cost:
    """Wall seconds of a trial of one row."""

    work: float
    """Without the start-up."""
    cold: float
    """Start-up in a process of its own."""
    warm: float
    """In a process that ran a row of the same restart key before."""


@dataclass(frozen=True)
class World:
    """One table. Rows go by their place in it."""

    table: RecordedTable

    @property
    def name(self) -> str:
        return self.table.name or self.table.header.study

    @cached_property
    def digest(self) -> str:
        """Of all that its file says."""
        return hashlib.sha256("\n".join(lines(self.table)).encode()).hexdigest()

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        return tuple(row.configuration for row in self.table.rows)

    @cached_property
    def baseline(self) -> int:
        return self.configurations.index(self.table.header.baseline)

    @cached_property
    def grid(self) -> CandidateGrid:
        """The rows as the candidates of one track: the fastest of all is looked for, whatever it changes."""
        names = SearchSpace.from_json(self.table.header.space).values
        return CandidateGrid(self.configurations, names, ())

    @cached_property
    def places(self) -> CandidateGrid:
        """The rows for searches that want a value of every knob in every row.

        A knob that does not act in a row, because another rules it out, has the first of its values there; by that
        other knob the row is told apart all the same.
        """
        names = SearchSpace.from_json(self.table.header.space).values
        return CandidateGrid([self.spelt(c) for c in self.configurations], names, ())

    def spelt(self, configuration: Configuration) -> Configuration:
        """``configuration`` as ``places`` has it."""
        return Configuration({**self._firsts, **configuration})

    @cached_property
    def _firsts(self) -> Mapping[str, KnobValue]:
        """The first value of each knob, by size where it is a number."""
        found: dict[str, set[KnobValue]] = {}
        for configuration in self.configurations:
            for name, value in configuration.items():
                found.setdefault(name, set()).add(value)
        return {name: min(values, key=_first) for name, values in found.items()}

    @cached_property
    def task(self) -> Task:
        header = self.table.header
        return Task(
            resources=header.resources,
            rows_per_update=header.rows_per_update,
            max_prompt_length=header.max_prompt_length,
            max_completion_length=header.max_completion_length,
            passthrough=header.passthrough,
            memory_limit=header.memory_limit,
        )

    @cached_property
    def truth(self) -> NDArray[np.float64]:
        """Logarithm of tokens/hour of each row, ``NEVER`` where it does not hold.

        Of a row that was repeated by the later half of its repeats: the others have a part in picking the best.
        """
        return np.array([_mean(judging(row)) if holds(row) else NEVER for row in self.table.rows])

    @cached_property
    def best(self) -> int:
        """The fastest row, picked by the runs that do not judge it; of repeated rows, where there are any."""
        rows = self.table.rows
        held = [i for i, row in enumerate(rows) if holds(row)]
        if not held:
            raise UsageError(f"{self.name}: no row of the table holds")
        repeated = [i for i in held if rows[i].repeats] or held
        return max(repeated, key=lambda i: (_mean(picking(rows[i])), -i))

    @property
    def ceiling(self) -> float:
        """Logarithm of the best row's tokens/hour, by runs that had no part in picking it where it was repeated."""
        return float(self.truth[self.best])

    def missing(self, row: int | None) -> float:
        """Share of the best row's tokens/hour that ``row`` lacks: 0 is the best or better, 1 nothing that holds."""
        if row is None or self.truth[row] == NEVER:
            return 1.0
        return max(0.0, 1.0 - math.exp(float(self.truth[row]) - self.ceiling))

    @cached_property
    def keys(self) -> tuple[RestartKey, ...]:
        return tuple(row.key(self.table.header.framework) for row in self.table.rows)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """Of each row, from its own recorded seconds and start-up.

        The start-up it was not recorded with (cold or warm) is the median of those rows that were, of its own restart
        key where there are any. A table without warm rows has warm starts as dear as cold ones. On a CPU every trial
        has a process of its own (decision 23), so every start is the row's own.
        """
        cold = was_cold(self.table.rows, self.keys)
        starts = [sum(row.trial.startup.values()) for row in self.table.rows]
        return tuple(self._cost(i, cold, starts) for i in range(len(self.table.rows)))

    def _cost(self, place: int, cold: Sequence[bool], starts: Sequence[float]) -> Cost:
        own = starts[place]

        def otherwise(wanted: bool) -> float:
            if cold[place] == wanted or self.task.resources.device != "cuda":
                return own
            others = [i for i in range(len(starts)) if cold[i] == wanted and holds(self.table.rows[i])]
            alike = [starts[i] for i in others if self.keys[i] == self.keys[place]]
            return statistics.median(alike or [starts[i] for i in others] or [own])

        work = max(0.0, (self.table.rows[place].trial.seconds or 0.0) - own)
        return Cost(work, otherwise(True), otherwise(False))

    def draw(self, place: int, number: int, seed: int) -> Trial:
        """A trial of a row, as trial ``number`` of a study; the same for the same row and seed."""
        row = self.table.rows[place]
        kind = TrialKind.BASELINE if number == 0 else TrialKind.SEARCH
        if not holds(row):
            failed = next((t for t in (row.trial, *row.repeats) if t.state is TrialState.FAIL), row.trial)
            return failed.with_(number=number, kind=kind, attempt=1)
        chance = np.random.default_rng([seed, place])
        runs = _measured(row)
        run = runs[int(chance.integers(len(runs)))]
        speed = run.speed_cycles()
        kept = [c for c in run.cycles if c not in speed]
        drawn = [speed[int(i)] for i in chance.integers(len(speed), size=len(speed))]
        cycles = [replace(c, index=i) for i, c in enumerate([*kept, *drawn])]
        return run.with_(number=number, kind=kind, attempt=1, cycles=tuple(cycles))


def holds(row: TableRow) -> bool:
    """It was feasible in every run it had."""
    return all(run.feasible for run in (row.trial, *row.repeats))


def is_oom(trial: Trial) -> bool:
    """It ran out of memory."""
    return trial.outcome is not None and trial.outcome.reason is FailureReason.OOM


def picking(row: TableRow) -> list[Trial]:
    """The runs a row may be picked as the best by: the first, and the first half of its repeats."""
    return [row.trial, *row.repeats[: len(row.repeats) // 2]]


def judging(row: TableRow) -> list[Trial]:
    """The runs that say what it is worth: none of ``picking`` where there are others."""
    return list(row.repeats[len(row.repeats) // 2 :]) or [row.trial]


def was_cold(rows: Sequence[TableRow], keys: Sequence[RestartKey]) -> tuple[bool, ...]:
    """Which rows were recorded in a process of their own: what ran right before them left no worker they could use."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].trial.number)
    warm = {
        i
        for before, i in pairwise(order)
        if keys[i] == keys[before] and rows[before].trial.state is TrialState.COMPLETE and rows[i].trial.attempt <= 1
    }
    return tuple(i not in warm for i in range(len(rows)))


def _first(value: KnobValue) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, repr(value)


def _measured(row: TableRow) -> list[Trial]:
    return [run for run in (row.trial, *row.repeats) if run.speed_cycles()]


def _mean(runs: Sequence[Trial]) -> float:
    return statistics.fmean(math.log(run.tokens_per_hour or 1.0) for run in runs)
