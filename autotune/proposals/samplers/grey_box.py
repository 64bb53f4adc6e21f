"""The grey-box sampler: the product's default, and for any Optuna study. See docs/sampler.md."""

from __future__ import annotations

import math
import statistics
import warnings
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from autotune.proposals.grey.choice import Outlook, choice
from autotune.proposals.grey.learnt import Lesson, Predictions, Tried, fastest, learnt, passes
from autotune.proposals.grey.points import Legal, Params, Points, number
from autotune.proposals.grey.surfaces import Array, Axes, columns
from autotune.proposals.translation import BOUND, INCOMPARABLE, OOM, PEAK, PHASES, OptunaTrialStatus

STARTUP_TRIALS = 6
SPREAD = 3
"""Points drawn at the start, of which the one least like what was tried is taken."""


class PointPool(Protocol):
    """The points one proposal is chosen from, and what is known of them beside what the study's trials teach."""

    @property
    def places(self) -> Array:
        """(m, d): where they lie by the axes."""
        ...

    @property
    def least(self) -> float:
        """Probability of holding from which a point is likely enough."""
        ...

    @property
    def forecasts_memory(self) -> bool:
        """It is known what fits, so failures for lack of memory need not be learnt."""
        ...

    def params(self, index: int) -> Params:
        """The parameters of one point."""
        ...

    def forecast(self, held: Sequence[FrozenTrial]) -> tuple[Outlook, float] | None:
        """What is expected of the points, and the value to improve on; ``None`` where nothing forecasts speeds.

        ``held``: measured trials, fastest first.
        """
        ...

    def outlook(self, found: Predictions) -> Outlook:
        """What the trials taught, with what the points cost."""
        ...


class Candidates(Protocol):
    """What may be proposed."""

    @property
    def space(self) -> Mapping[str, BaseDistribution]: ...

    @property
    def axes(self) -> Axes: ...

    def place(self, params: Params) -> tuple[float, ...] | None:
        """Where ``params`` lie by the axes; ``None`` if they lie outside the space."""
        ...

    def pool(self, tried: Sequence[Tried], before: Sequence[FrozenTrial], chance: np.random.Generator) -> PointPool:
        """The points looked at.

        Args:
            tried: what the study's trials teach, by number.
            chance: draws points where there are many.
        """
        ...


class GreyBoxSampler(optuna.samplers.BaseSampler):
    """Expected improvement times the probability of holding, for each second a trial is expected to cost.

    What a trial said of itself by user attributes makes it grey: seconds by phase, peak memory, that memory ran out.
    Without phases it is a Gaussian process with a filter for failures, and warns of that once. One objective; its
    logarithm is learnt where all values are positive.

    Args:
        seed: with a trial's number it decides what is drawn, so a resumed study goes on as an uninterrupted one.
        search_space: what ``suggest_*`` will be called with, so that already the first trial is legal; by default what
            finished trials have in common.
        legal: whether a combination of those parameters may be proposed. Cheap and pure: it is asked of thousands.
        memory_limit: in the unit of ``peak_bytes``.
        restart: what of the parameters a process is started for; where it differs from the trial before, the median
            ``startup_s`` is counted as a cost.
        cycles: whole cycles of a trial, which a start-up is weighed against.
        n_startup_trials: decided trials before anything is modelled.
        candidates: what may be proposed, in place of ``search_space``, ``legal``, ``restart`` and ``cycles``.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        search_space: Mapping[str, BaseDistribution] | None = None,
        legal: Legal | None = None,
        memory_limit: float | None = None,
        restart: Callable[[Params], Hashable] | None = None,
        cycles: int = 4,
        n_startup_trials: int = STARTUP_TRIALS,
        candidates: Candidates | None = None,
    ) -> None:
        self._seed = seed
        self._space = candidates.space if candidates is not None else search_space
        self._limit = memory_limit
        self._first = n_startup_trials if candidates is not None else max(1, n_startup_trials)
        self._candidates = candidates
        self._points_of: Callable[[Mapping[str, BaseDistribution]], Points] = partial(
            Points, legal=legal, restart=restart, cycles=cycles
        )
        self._points: Points | None = None
        self._warned = False

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        if len(study.directions) > 1:
            raise ValueError(f"{type(self).__name__} cannot be used for several objectives")
        found = self._space
        if found is None:
            trials = study.get_trials(deepcopy=False)
            found = optuna.search_space.intersection_search_space(trials, include_pruned=True)
        return {name: d for name, d in found.items() if not d.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        candidates = self._candidates or self._within(search_space)
        before = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        sign = 1.0 if study.direction is optuna.study.StudyDirection.MAXIMIZE else -1.0
        tried = lessons(candidates, before, sign)
        chance = np.random.default_rng([self._seed, trial.number])
        pool = candidates.pool(tried, before, chance)
        decided = sum(one.lesson.standing is not OptunaTrialStatus.PENDING for one in tried)
        if decided < self._first:
            return dict(pool.params(_farthest(pool.places, [one.lesson.place for one in tried], chance)))
        outlook, best = self._expected(candidates.axes, pool, tried)
        return dict(pool.params(choice(outlook, best, pool.least)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        seed = zlib.crc32(f"{self._seed}/{trial.number}/{param_name}".encode())
        return optuna.samplers.RandomSampler(seed=seed).sample_independent(study, trial, param_name, param_distribution)

    def _within(self, space: Mapping[str, BaseDistribution]) -> Points:
        if self._points is None or self._points.space != dict(space):
            self._points = self._points_of(space)
        return self._points

    def _expected(self, axes: Axes, pool: PointPool, tried: Sequence[Tried]) -> tuple[Outlook, float]:
        """What is expected of ``pool``, and the value to improve on."""
        taught = [one.lesson for one in tried]
        forecast = pool.forecast([one.trial for one in fastest(tried)])
        if forecast is not None:
            outlook, best = forecast
            passing = passes(axes, taught, pool.places, by_peaks=pool.forecasts_memory)
            return replace(outlook, holds=passing * outlook.holds), best
        found = learnt(
            axes, [one for one in taught if not (pool.forecasts_memory and one.memory)], pool.places, self._limit
        )
        if self._candidates is None:
            self._say(found, taught)
        return pool.outlook(found), found.best

    def _say(self, found: Predictions, taught: Sequence[Lesson]) -> None:
        if found.by_phases or self._warned or not any(one.standing is OptunaTrialStatus.FEASIBLE for one in taught):
            return
        self._warned = True
        some = any(one.phases for one in taught)
        why = "the sums of phases do not tell the objective" if some else f"no trial has the user attribute {PHASES!r}"
        text = f"{type(self).__name__} falls back to a Gaussian process with a filter for failures: {why}"
        warnings.warn(text, stacklevel=2)


def _farthest(asked: Array, places: Sequence[Sequence[float]], chance: np.random.Generator) -> int:
    """Of ``SPREAD`` drawn points the one whose nearest neighbour among ``places`` is farthest."""
    drawn = chance.choice(len(asked), size=min(SPREAD, len(asked)), replace=False)
    if not places:
        return int(drawn[0])
    steps = np.abs(asked[drawn][:, None, :] - columns(places, asked.shape[1])[None]).clip(0.0, 1.0).sum(axis=2)
    return int(drawn[int(np.argmax(steps.min(axis=1)))])


def lessons(candidates: Candidates, trials: Sequence[FrozenTrial], sign: float) -> list[Tried]:
    """What ``trials`` teach; those that teach nothing, or lie outside the space, are left out."""
    measured = [t.value for t in trials if _stands(t) is OptunaTrialStatus.FEASIBLE and t.value is not None]
    value_of = _values(measured, sign)
    found = ((t, _lesson(candidates, t, value_of)) for t in trials)
    return [Tried(t, one, not t.user_attrs.get(INCOMPARABLE)) for t, one in found if one is not None]


def _values(measured: Sequence[float], sign: float) -> Callable[[float], float]:
    """More is better: the logarithm where every value has one, else in units of the standard deviation."""
    if all(v > 0 for v in measured):
        return lambda v: sign * math.log(v) if v > 0 else math.nan
    middle, unit = statistics.fmean(measured), statistics.pstdev(measured) or 1.0
    return lambda v: sign * (v - middle) / unit


def _stands(trial: FrozenTrial) -> OptunaTrialStatus | None:
    """``None``: it teaches nothing, as a FAIL that is no lack of memory."""
    if trial.state in (TrialState.RUNNING, TrialState.WAITING):
        return OptunaTrialStatus.PENDING
    if trial.user_attrs.get(OOM) or any(c > 0 for c in trial.constraints.values()):
        return OptunaTrialStatus.INFEASIBLE
    if trial.state is TrialState.PRUNED or (trial.state is TrialState.COMPLETE and BOUND in trial.user_attrs):
        return OptunaTrialStatus.CENSORED
    if trial.state is TrialState.FAIL:
        return None
    return (
        OptunaTrialStatus.FEASIBLE
        if trial.value is not None and math.isfinite(trial.value)
        else OptunaTrialStatus.INFEASIBLE
    )


def _lesson(candidates: Candidates, trial: FrozenTrial, value_of: Callable[[float], float]) -> Lesson | None:
    place, standing = candidates.place(trial.params), _stands(trial)
    if place is None or standing is None:
        return None
    value = math.nan
    if standing is OptunaTrialStatus.FEASIBLE and trial.value is not None:
        value = value_of(trial.value)
    elif standing is OptunaTrialStatus.CENSORED:
        reported = list(trial.intermediate_values.values())
        bound = number(trial.user_attrs.get(BOUND, reported[-1] if reported else None))
        value = math.nan if bound is None else value_of(bound)
        if not math.isfinite(value):
            # Nothing is known of its speed, but it held.
            value = math.inf
    memory = bool(trial.user_attrs.get(OOM))
    peak = number(trial.user_attrs.get(PEAK))
    timed = standing is OptunaTrialStatus.FEASIBLE or (
        standing is OptunaTrialStatus.CENSORED and trial.state is TrialState.COMPLETE
    )
    return Lesson(place, standing, value, _phases(trial) if timed else {}, peak, memory)


def _phases(trial: FrozenTrial) -> Mapping[str, float]:
    told = trial.user_attrs.get(PHASES)
    if not isinstance(told, Mapping):
        return {}
    found = {str(name): number(seconds) for name, seconds in told.items()}
    return {n: s for n, s in found.items() if s is not None} if None not in found.values() else {}
