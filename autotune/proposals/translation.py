"""Trials in the sampler's words: what each teaches, and the throw-away Optuna study made of that.

A configuration that failed is not left out but told as infeasible: samplers ignore FAIL, so they
would go on proposing what ran out of memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from autotune.domain import Configuration, Trial, TrialState
from autotune.proposals.lattice import Lattice, Point

_CONSTRAINT = "feasible"

Stand = Callable[[Sequence[float]], float]
"""The feasible values -> the value an infeasible trial is told with."""


class Standing(Enum):
    """What is known of a configuration."""

    FEASIBLE = "feasible"
    CENSORED = "censored"
    """It fits, but was ended when it could not win: its value is at most what stands there."""
    INFEASIBLE = "infeasible"
    PENDING = "pending"


@dataclass(frozen=True)
class Evidence:
    """What one trial teaches the sampler."""

    number: int
    configuration: Configuration
    standing: Standing
    value: float = math.nan
    """Natural logarithm of tokens/hour where feasible: a gain of 10 % is the same step anywhere. Of a censored one
    the logarithm of its upper bound."""


def is_taken(trial: Trial) -> bool:
    """The trial's configuration has been had. Where the trial never got a verdict, it has not."""
    return not trial.inconclusive


def evidence(trials: Iterable[Trial]) -> tuple[Evidence, ...]:
    """What ``trials`` teach, by trial number."""
    found = (_evidence(trial) for trial in sorted(trials, key=lambda t: t.number))
    return tuple(e for e in found if e is not None)


def _evidence(trial: Trial) -> Evidence | None:
    if not trial.kind.is_searched or not is_taken(trial):  # others repeat what is known already
        return None
    if not trial.state.is_finished:
        return Evidence(trial.number, trial.configuration, Standing.PENDING)
    if trial.state is TrialState.PRUNED:
        if trial.at_most is None or trial.at_most <= 0:
            return None
        return Evidence(trial.number, trial.configuration, Standing.CENSORED, math.log(trial.at_most))
    if not trial.feasible:
        return Evidence(trial.number, trial.configuration, Standing.INFEASIBLE)
    speed = trial.tokens_per_hour
    if speed is None or speed <= 0:
        return None
    return Evidence(trial.number, trial.configuration, Standing.FEASIBLE, math.log(speed))


def distributions(lattice: Lattice) -> dict[str, BaseDistribution]:
    """One distribution over places for each dimension."""
    return {
        d.name: IntDistribution(0, len(d.values) - 1)
        if d.ordered
        else CategoricalDistribution(tuple(range(len(d.values))))
        for d in lattice.dimensions
    }


def frozen_trials(
    lattice: Lattice, evidence: Sequence[Evidence], *, infeasible: Stand = min, constrained: bool = True
) -> list[FrozenTrial]:
    """``evidence`` as Optuna trials; what has no point on the lattice is left out.

    No sampler here knows a censored value. A censored trial is told as feasible, with its bound or the median of what
    was measured in full, whichever is less. The bound alone is below the best, but optimistic: every censored trial
    would stand a bound's width too high beside those that were measured, and the estimator would count it among what
    is good. With the median it never is; where the bound says more, it stays the bound, so the order of slow ones is
    kept.

    Args:
        lattice: gives the points.
        evidence: by trial number.
        infeasible: the value infeasible ones carry, from the feasible values; by default the worst, so that no
            surrogate takes the failure for speed.
        constrained: say by a constraint which are feasible.
    """
    measured = [e.value for e in evidence if e.standing is Standing.FEASIBLE]
    evidence = [_told(e, measured) for e in evidence]
    worst = infeasible(measured or [0.0])
    shapes = distributions(lattice)
    located = ((e, lattice.point(e.configuration)) for e in evidence)
    found = [_frozen(e, lattice, point, shapes, worst) for e, point in located if point is not None]
    return found if constrained else [_unconstrained(t) for t in found]


def _told(evidence: Evidence, measured: Sequence[float]) -> Evidence:
    if evidence.standing is not Standing.CENSORED or not measured:
        return evidence
    return replace(evidence, value=min(evidence.value, statistics.median(measured)))


def _frozen(
    evidence: Evidence, lattice: Lattice, point: Point, shapes: dict[str, BaseDistribution], worst: float
) -> FrozenTrial:
    params = {d.name: place for d, place in zip(lattice.dimensions, point, strict=True)}
    if evidence.standing is Standing.PENDING:
        return optuna.create_trial(state=optuna.trial.TrialState.RUNNING, params=params, distributions=shapes)
    feasible = evidence.standing in (Standing.FEASIBLE, Standing.CENSORED)
    return optuna.create_trial(
        value=evidence.value if feasible else worst,
        params=params,
        distributions=shapes,
        constraints={_CONSTRAINT: 0.0 if feasible else 1.0},
    )


def _unconstrained(trial: FrozenTrial) -> FrozenTrial:
    return optuna.create_trial(
        state=trial.state, value=trial.value, params=trial.params, distributions=trial.distributions
    )


def new_study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    """An empty study in memory, thrown away after one proposal."""
    with _quiet():
        return optuna.create_study(direction="maximize", sampler=sampler)


def rebuilt_study(
    lattice: Lattice,
    evidence: Sequence[Evidence],
    sampler: optuna.samplers.BaseSampler,
    *,
    infeasible: Stand = min,
    constrained: bool = True,
) -> optuna.Study:
    """``new_study`` that knows ``evidence``, told as by ``frozen_trials``."""
    study = new_study(sampler)
    study.add_trials(frozen_trials(lattice, evidence, infeasible=infeasible, constrained=constrained))
    return study


@contextmanager
def _quiet() -> Iterator[None]:
    """No "A new study created" line for a study nobody will see."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
