"""The grey-box sampler for any Optuna study. See docs/sampler.md."""

from __future__ import annotations

import math
import statistics
import warnings
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from autotune.proposals.grey.choice import Outlook, choice
from autotune.proposals.grey.learnt import Learnt, Lesson, learnt
from autotune.proposals.grey.points import Legal, Params, Points
from autotune.proposals.grey.surfaces import Array, columns
from autotune.proposals.translation import Standing

PHASES, PEAK, OOM, BOUND, STARTUP = "phases", "peak_bytes", "oom", "bound", "startup_s"
"""User attributes of a trial that are read: docs/sampler.md says what each means."""

STARTUP_TRIALS = 6
SPREAD = 3
"""Points drawn at the start, of which the one least like what was tried is taken."""
BEST = 4
"""Fastest trials whose neighbours are always looked at."""


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
    ) -> None:
        self._seed = seed
        self._space = dict(search_space) if search_space is not None else None
        self._legal = legal
        self._limit = memory_limit
        self._restart = restart
        self._cycles = cycles
        self._first = max(1, n_startup_trials)
        self._warned = False
        self._points: Points | None = None

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        if len(study.directions) > 1:
            raise ValueError(f"{type(self).__name__} cannot be used for several objectives")
        if self._space is not None:
            found = self._space
        else:
            trials = study.get_trials(deepcopy=False)
            found = optuna.search_space.intersection_search_space(trials, include_pruned=True)
        return {name: d for name, d in found.items() if not d.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        points = self._points_of(search_space)
        before = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        sign = 1.0 if study.direction is optuna.study.StudyDirection.MAXIMIZE else -1.0
        known = [(t, lesson) for t, lesson in _lessons(points, before, sign) if lesson is not None]
        chance = np.random.default_rng([self._seed, trial.number])
        left, asked = self._left(points, known, chance)
        decided = sum(lesson.standing is not Standing.PENDING for _, lesson in known)
        if decided < self._first:
            return dict(left[_farthest(asked, [one.place for _, one in known], chance)])
        found = learnt(points.axes, [one for _, one in known], asked, self._limit)
        self._say(found, known)
        return dict(left[choice(self._outlook(found, left, before), found.best)])

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        seed = zlib.crc32(f"{self._seed}/{trial.number}/{param_name}".encode())
        return optuna.samplers.RandomSampler(seed=seed).sample_independent(study, trial, param_name, param_distribution)

    def _points_of(self, space: Mapping[str, BaseDistribution]) -> Points:
        if self._points is None or self._points.space != dict(space):
            self._points = Points(space, self._legal)
        return self._points

    def _left(
        self, points: Points, known: Sequence[tuple[FrozenTrial, Lesson]], chance: np.random.Generator
    ) -> tuple[Sequence[Params], Array]:
        """What may be proposed, and where it lies: nothing twice, unless everything was."""
        held = [(lesson.value, t) for t, lesson in known if lesson.standing is Standing.FEASIBLE]
        best = [t.params for _, t in sorted(held, key=lambda x: (-x[0], x[1].number))[:BEST]]
        found, places = points.candidates(best, chance)
        taken = {lesson.place for _, lesson in known}
        free = np.array([place not in taken for place in map(tuple, places.tolist())])
        return ([p for p, one in zip(found, free, strict=True) if one], places[free]) if free.any() else (found, places)

    def _outlook(self, found: Learnt, left: Sequence[Params], before: Sequence[FrozenTrial]) -> Outlook:
        seconds = np.ones(len(left)) if found.cycle_s is None else self._cycles * found.cycle_s
        restarts = np.zeros(len(left), dtype=np.int64)
        last = next((t.params for t in reversed(before) if t.params), None)
        if self._restart is not None:
            there = None if last is None else self._restart(last)
            restarts = np.array([int(last is None or self._restart(p) != there) for p in left], dtype=np.int64)
            starts = [s for t in before if (s := _number(t.user_attrs.get(STARTUP))) is not None]
            if starts and found.cycle_s is not None:
                seconds = seconds + restarts * statistics.median(starts)
        return Outlook(found.value, found.spread, found.holds, seconds, restarts)

    def _say(self, found: Learnt, known: Sequence[tuple[FrozenTrial, Lesson]]) -> None:
        if found.by_phases or self._warned or not any(x.standing is Standing.FEASIBLE for _, x in known):
            return
        self._warned = True
        some = any(lesson.phases for _, lesson in known)
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


def _lessons(points: Points, trials: Sequence[FrozenTrial], sign: float) -> list[tuple[FrozenTrial, Lesson | None]]:
    measured = [t.value for t in trials if _stands(t) is Standing.FEASIBLE and t.value is not None]
    values = _values(measured, sign)
    return [(t, _lesson(points, t, values)) for t in trials]


def _values(measured: Sequence[float], sign: float) -> Callable[[float], float]:
    """More is better: the logarithm where every value has one, else in units of the standard deviation."""
    if all(v > 0 for v in measured):
        return lambda v: sign * math.log(v) if v > 0 else math.nan
    middle, unit = statistics.fmean(measured), statistics.pstdev(measured) or 1.0
    return lambda v: sign * (v - middle) / unit


def _stands(trial: FrozenTrial) -> Standing | None:
    """``None``: it teaches nothing, as a FAIL that is no lack of memory."""
    if trial.state in (TrialState.RUNNING, TrialState.WAITING):
        return Standing.PENDING
    if trial.user_attrs.get(OOM) or any(c > 0 for c in trial.constraints.values()):
        return Standing.INFEASIBLE
    if trial.state is TrialState.PRUNED:
        return Standing.CENSORED
    if trial.state is TrialState.FAIL:
        return None
    return Standing.FEASIBLE if trial.value is not None and math.isfinite(trial.value) else Standing.INFEASIBLE


def _lesson(points: Points, trial: FrozenTrial, value_of: Callable[[float], float]) -> Lesson | None:
    place, standing = points.place(trial.params), _stands(trial)
    if place is None or standing is None:
        return None
    value = math.nan
    if standing is Standing.FEASIBLE and trial.value is not None:
        value = value_of(trial.value)
    elif standing is Standing.CENSORED:
        reported = list(trial.intermediate_values.values())
        bound = _number(trial.user_attrs.get(BOUND, reported[-1] if reported else None))
        value = math.nan if bound is None else value_of(bound)
        if not math.isfinite(value):
            # Nothing is known of its speed, but it held.
            value = math.inf
    memory = bool(trial.user_attrs.get(OOM))
    peak = _number(trial.user_attrs.get(PEAK))
    return Lesson(place, standing, value, _phases(trial) if standing is Standing.FEASIBLE else {}, peak, memory)


def _phases(trial: FrozenTrial) -> Mapping[str, float]:
    told = trial.user_attrs.get(PHASES)
    if not isinstance(told, Mapping):
        return {}
    found = {str(name): _number(seconds) for name, seconds in told.items()}
    return {n: s for n, s in found.items() if s is not None} if None not in found.values() else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
