"""Converts trials to an Optuna study that proposes the next one.

A failure becomes an infeasible COMPLETE trial, because Optuna's samplers ignore FAIL. Parameters are indices into the
values of a knob; the study's user attribute ``values`` lists the values.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from autotune.domain import Configuration, FailureReason, Trial, TrialState
from autotune.domain.measures import phase_seconds
from autotune.proposals.candidate_grid import CandidateGrid, Mask, Point
from autotune.statistics import early_stopping

_CONSTRAINT = "feasible"

NUMBER, PHASES, OOM, BOUND = "number", "phases", "oom", "bound"
"""User attributes of a trial, for samplers to read (docs/sampler.md)."""

KEPT_FASTEST, KEPT_NEWEST = 128, 128
"""Fastest and newest trials that the study keeps of a longer history, to limit the cost of a rebuild."""


class OptunaTrialStatus(Enum):
    """State of a trial in the Optuna study."""

    FEASIBLE = "feasible"
    CENSORED = "censored"
    """The trial fits, but was stopped because it could not win: its value is an upper bound."""
    INFEASIBLE = "infeasible"
    PENDING = "pending"


@dataclass(frozen=True)
class Observation:
    """One trial as the sampler sees it."""

    number: int
    configuration: Configuration
    standing: OptunaTrialStatus
    value: float
    """Natural logarithm of ``Trial.merit`` where feasible; of a censored one the logarithm of its upper bound."""
    trial: Trial = field(compare=False, repr=False)
    """The trial that the user attributes are read from."""


def evidence(trials: Iterable[Trial]) -> tuple[Observation, ...]:
    """Returns observations of conclusive baseline and search trials, ordered by trial number."""
    found = (_evidence(trial) for trial in sorted(trials, key=lambda t: t.number))
    return tuple(one for one in found if one is not None)


def _evidence(trial: Trial) -> Observation | None:
    if not trial.kind.is_searched or trial.inconclusive:  # others repeat what is known already
        return None
    standing, value = OptunaTrialStatus.FEASIBLE, trial.merit
    if not trial.state.is_finished:
        standing, value = OptunaTrialStatus.PENDING, None
    elif trial.state is TrialState.PRUNED:
        standing = OptunaTrialStatus.CENSORED
        value = None if trial.at_most is None else trial.at_most / trial.divisor
    elif not trial.feasible:
        standing, value = OptunaTrialStatus.INFEASIBLE, None
    if standing in (OptunaTrialStatus.FEASIBLE, OptunaTrialStatus.CENSORED) and (value is None or value <= 0):
        return None
    return Observation(trial.number, trial.configuration, standing, math.log(value) if value else math.nan, trial)


def distributions(grid: CandidateGrid) -> dict[str, BaseDistribution]:
    """Returns a distribution over indices for each dimension."""
    return {
        d.name: IntDistribution(0, len(d.values) - 1)
        if d.ordered
        else CategoricalDistribution(tuple(range(len(d.values))))
        for d in grid.dimensions
    }


class _Shared(FrozenTrial):
    """An immutable trial whose copies share its content: Optuna copies each trial that it receives."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return copy.copy(self)


def selected(
    history: Sequence[Observation], fastest: int = KEPT_FASTEST, newest: int = KEPT_NEWEST
) -> Sequence[Observation]:
    """Returns the fastest, the newest and the pending trials of a long history, ordered by trial number."""
    decided = [n for n, one in enumerate(history) if one.standing is not OptunaTrialStatus.PENDING]
    if len(decided) <= fastest + newest:
        return history
    held = [n for n in decided if history[n].standing is OptunaTrialStatus.FEASIBLE]
    kept = {*sorted(held, key=lambda n: -history[n].value)[:fastest], *decided[-newest:]}
    return [one for n, one in enumerate(history) if n in kept or one.standing is OptunaTrialStatus.PENDING]


Frozen = dict[Hashable, FrozenTrial]
"""Cache of a grid's Optuna trials by observation, because a study is rebuilt repeatedly."""


def frozen_trials(
    grid: CandidateGrid, evidence: Sequence[Observation], kept: Frozen | None = None
) -> list[FrozenTrial]:
    """Converts ``evidence`` to Optuna trials with tokens/hour as value; omits trials without a point on the grid.

    An infeasible trial gets the worst feasible value. Optuna's samplers cannot handle a censored one, so it becomes
    feasible, with the smaller of its bound and the median measured in full: the bound alone is optimistic, and the
    estimator would rank it among the good.
    """
    measured = [e.value for e in evidence if e.standing is OptunaTrialStatus.FEASIBLE]
    worst, middle = min(measured, default=0.0), statistics.median(measured) if measured else math.inf
    shapes = distributions(grid)
    kept = {} if kept is None else kept
    found = []
    for one in evidence:
        value = _value(one, worst, middle)
        key = (one, value, one.trial.outcome)
        if key not in kept:
            (point,) = grid.points([one.configuration])
            if point is None:
                continue
            kept[key] = _frozen(one, grid.params(point), shapes, value)
        found.append(kept[key])
    return found


def _value(evidence: Observation, worst: float, middle: float) -> float:
    """Returns tokens/hour; ``worst`` and ``middle`` are the logarithms of the worst and of the median measured."""
    if evidence.standing is OptunaTrialStatus.FEASIBLE:
        return math.exp(evidence.value)
    return math.exp(min(evidence.value, middle) if evidence.standing is OptunaTrialStatus.CENSORED else worst)


def _frozen(
    evidence: Observation, params: dict[str, int], shapes: dict[str, BaseDistribution], value: float
) -> FrozenTrial:
    attributes = user_attributes(evidence)
    if evidence.standing is OptunaTrialStatus.PENDING:
        running = optuna.trial.TrialState.RUNNING
        return optuna.create_trial(state=running, params=params, distributions=shapes, user_attrs=attributes)
    found = optuna.create_trial(
        value=value,
        params=params,
        distributions=shapes,
        user_attrs=attributes,
        constraints={_CONSTRAINT: 1.0 if evidence.standing is OptunaTrialStatus.INFEASIBLE else 0.0},
    )
    found.__class__ = _Shared
    return found


def user_attributes(evidence: Observation) -> dict[str, Any]:
    """Returns the user attributes of a trial: seconds by phase, whether memory ran out, its bound."""
    found: dict[str, Any] = {NUMBER: evidence.number}
    trial = evidence.trial
    if evidence.standing is OptunaTrialStatus.PENDING:
        return found
    if evidence.standing is OptunaTrialStatus.CENSORED:
        found[BOUND] = None if trial.at_most is None else trial.at_most / trial.divisor
    if phases := _phases(trial):
        found[PHASES] = phases
    if trial.outcome is not None and trial.outcome.reason is FailureReason.OOM:
        found[OOM] = True
    return found


def _phases(trial: Trial) -> Mapping[str, float]:
    """Returns mean seconds by phase; empty for a trial stopped before its first look, whose first cycles may be slow by
    chance."""
    cycles = trial.speed_cycles()
    if not cycles or (trial.state is TrialState.PRUNED and len(cycles) < early_stopping.LOOKS[0]):
        return {}
    return {name: seconds / len(cycles) for name, seconds in phase_seconds(cycles).items()}


def rebuilt_study(
    grid: CandidateGrid,
    evidence: Sequence[Observation],
    sampler: optuna.samplers.BaseSampler,
    kept: Frozen | None = None,
) -> optuna.Study:
    """Returns a study in memory with ``evidence``, for a single proposal."""
    with quiet():
        study = optuna.create_study(direction="maximize", sampler=sampler)
    study.set_user_attr("values", {d.name: d.values for d in grid.dimensions})
    study.add_trials(frozen_trials(grid, selected(evidence), kept))
    return study


def asked(study: optuna.Study, grid: CandidateGrid, left: Mask, times: int) -> int:
    """Asks the study up to ``times`` times for a candidate in ``left``; returns its index, else that of the candidate
    nearest to the first draw. Reports other draws as FAIL, which Optuna's samplers ignore."""
    shapes = distributions(grid)
    draws: list[Point] = []
    for _ in range(times):
        trial = study.ask(shapes)
        draws.append(tuple(int(trial.params[d.name]) for d in grid.dimensions))
        index = grid.at(draws[-1])
        if index is not None and left[index]:
            return index
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    nearest = grid.nearest(draws[0], left)
    study.enqueue_trial(grid.params(grid.place(nearest)))
    study.ask(shapes)
    return nearest


@contextmanager
def quiet() -> Iterator[None]:
    """Silences Optuna's "A new study created" line for the studies of proposals."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
