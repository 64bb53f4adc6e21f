"""The grey-box sampler: the product's default, and for any Optuna study. See docs/sampler.md."""

from __future__ import annotations

import itertools
import math
import statistics
import warnings
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from autotune.proposals.grey.choice import LIKELY, Outlook, choice
from autotune.proposals.grey.learnt import (
    KEPT_FASTEST,
    KEPT_NEWEST,
    Lesson,
    Params,
    Predictions,
    fastest,
    learnt,
    passes,
)
from autotune.proposals.grey.surfaces import Array, Axes, columns
from autotune.proposals.openings import SPREAD, STARTUP_TRIALS
from autotune.proposals.translation import (
    BOUND,
    INCOMPARABLE,
    NUMBER,
    OOM,
    PEAK,
    PHASES,
    STARTUP,
    OptunaTrialStatus,
    selected,
)

Legal = Callable[[Params], bool]
Numbers = FloatDistribution | IntDistribution

WHOLE = 2048
"""Points of a space that are all looked at; of a larger one some are drawn."""
DRAWN = 1024
ROUNDS = 50
"""Draws of ``DRAWN`` points before a space without a legal one among them is given up."""
WAYS = 12
"""Values a single parameter is moved to, from the best points."""


BEST = 4
"""Fastest trials whose neighbours are always looked at."""


@dataclass(frozen=True)
class Pool:
    """The points one proposal is chosen from, and what is known of them beside what the study's trials teach."""

    params: Callable[[int], Params]
    """The parameters of one point."""
    places: Array
    """(m, d): where they lie by the axes."""
    restarts: NDArray[np.int64]
    """How much has to be started anew for each, ascending in cost."""
    seconds: Callable[[Predictions], Array]
    """Of a trial of each, where nothing but the study's trials tells how fast they are."""
    least: float = LIKELY
    """Probability of holding from which a point is likely enough."""
    fits: Array | None = None
    """Probability that memory suffices, so that failures for lack of it need not be learnt; ``None``: not known."""
    forecast: tuple[Outlook, float] | None = None
    """What is expected of them, and the value to improve on; ``None`` where nothing forecasts speeds."""


class Points:
    """The space of a study: parameters of more than one value, in the order of their names.

    Args:
        legal: of a combination; asked once of each point of a small space, and of whatever is drawn of a larger one.
        restart: what of the parameters a process is started for.
        cycles: whole cycles of a trial.
    """

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        legal: Legal | None = None,
        restart: Callable[[Params], Hashable] | None = None,
        cycles: int = 1,
    ) -> None:
        self.space = dict(sorted(space.items()))
        self._legal = legal
        self._restart, self._cycles = restart, cycles
        self.axes = Axes(tuple(_ordered(d) for d in self.space.values()))
        self._ranks = {name: _ranks(d) for name, d in self.space.items()}

    def place(self, params: Params) -> tuple[float, ...] | None:
        """Position of ``params`` on the axes; ``None`` if they lack one or hold a value outside the space."""
        found = [self._along(name, d, params[name]) if name in params else None for name, d in self.space.items()]
        known = tuple(place for place in found if place is not None)
        return known if len(known) == len(found) else None

    def _along(self, name: str, distribution: BaseDistribution, value: Any) -> float | None:
        if isinstance(distribution, CategoricalDistribution):
            return self._ranks[name].get(repr(value))
        numbers = _numbers(distribution)
        if not isinstance(value, int | float) or not numbers.low <= value <= numbers.high:
            return None
        scale = math.log if numbers.log else float
        low, high = scale(numbers.low), scale(numbers.high)
        return (scale(value) - low) / (high - low)

    def pool(self, history: Sequence[Lesson], before: Sequence[FrozenTrial], chance: np.random.Generator) -> Pool:
        """Points that may be proposed: nothing twice, unless everything was.

        Raises:
            ValueError: none was legal.
        """
        found, places = self.candidates([one.params for one in fastest(history)[:BEST]], chance)
        taken = {one.place for one in history}
        free = np.array([place not in taken for place in map(tuple, places.tolist())])
        if free.any():
            found, places = [p for p, one in zip(found, free, strict=True) if one], places[free]
        starts = [s for t in before if (s := number(t.user_attrs.get(STARTUP))) is not None]
        restarts = self._restarts(found, before)
        start_s = restarts * (statistics.median(starts) if starts and self._restart is not None else 0.0)

        def seconds(predicted: Predictions) -> Array:
            return np.ones(len(found)) if predicted.cycle_s is None else self._cycles * predicted.cycle_s + start_s

        return Pool(found.__getitem__, places, restarts, seconds)

    def _restarts(self, found: Sequence[Params], before: Sequence[FrozenTrial]) -> NDArray[np.int64]:
        if self._restart is None:
            return np.zeros(len(found), dtype=np.int64)
        last = next((t.params for t in reversed(before) if t.params), None)
        there = None if last is None else self._restart(last)
        return np.array([int(last is None or self._restart(p) != there) for p in found], dtype=np.int64)

    def candidates(self, best: Sequence[Params], chance: np.random.Generator) -> tuple[Sequence[Params], Array]:
        """Legal points without repeats: all of a small space, else some drawn and all one parameter from ``best``.

        Returns:
            The points, and where they lie by the axes.

        Raises:
            ValueError: none was legal.
        """
        if math.prod(_size(d) for d in self.space.values()) <= WHOLE:
            found = self._whole
        else:
            some = (self._placed(self._drawn(best, chance)) for _ in range(ROUNDS))
            found = next((one for one in some if one[0]), ((), columns([], 0)))
        if not found[0]:
            raise ValueError("`legal` allowed no point of the search space")
        return found

    @cached_property
    def _whole(self) -> tuple[Sequence[Params], Array]:
        """Every legal point of a small space."""
        values = [_values(d) for d in self.space.values()]
        return self._placed(dict(zip(self.space, point, strict=True)) for point in itertools.product(*values))

    def _placed(self, points: Iterable[Params]) -> tuple[Sequence[Params], Array]:
        found = {place: p for p in points if (place := self.place(p)) is not None}
        kept = {place: p for place, p in found.items() if self._legal is None or self._legal(p)}
        return tuple(kept.values()), columns(tuple(kept), len(self.space))

    def _drawn(self, best: Sequence[Params], chance: np.random.Generator) -> Iterator[Params]:
        for _ in range(DRAWN):
            yield {name: _draw(d, chance) for name, d in self.space.items()}
        for params in best:
            yield from self._around(params, chance)

    def _around(self, params: Params, chance: np.random.Generator) -> Iterator[Params]:
        for name, distribution in self.space.items():
            few = _size(distribution) <= WAYS
            values = _values(distribution) if few else [_draw(distribution, chance) for _ in range(WAYS)]
            for value in values:
                yield {**{n: params[n] for n in self.space}, name: value}


def _ordered(distribution: BaseDistribution) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return all(isinstance(c, int | float) for c in distribution.choices)
    return True


def _ranks(distribution: BaseDistribution) -> Mapping[str, float]:
    """Choice -> place; numbers by their rank among the choices. ``repr`` tells ``1``, ``1.0`` and ``True`` apart."""
    if not isinstance(distribution, CategoricalDistribution):
        return {}
    choices: list[Any] = list(distribution.choices)
    if not _ordered(distribution):
        return {repr(c): float(i) for i, c in enumerate(choices)}
    return {repr(c): i / max(1, len(choices) - 1) for i, c in enumerate(sorted(choices))}


def _numbers(distribution: BaseDistribution) -> Numbers:
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return distribution
    raise TypeError(f"the grey-box sampler knows no distribution like {distribution!r}")


def _nearest(numbers: Numbers, number: float) -> int | float:
    """The distribution's own value next to ``number``."""
    inside = min(numbers.high, max(numbers.low, number))
    return round(inside) if isinstance(numbers, IntDistribution) else inside


def _size(distribution: BaseDistribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    numbers = _numbers(distribution)
    return math.inf if numbers.step is None else math.floor((numbers.high - numbers.low) / numbers.step + 1e-8) + 1


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    """All values of a distribution that has a finite number of them."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    numbers = _numbers(distribution)
    return [_nearest(numbers, numbers.low + i * (numbers.step or 0.0)) for i in range(int(_size(distribution)))]


def _draw(distribution: BaseDistribution, chance: np.random.Generator) -> Any:
    """A value, evenly; by its logarithm where the distribution says so."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(chance.integers(len(distribution.choices)))]
    numbers = _numbers(distribution)
    if numbers.log:
        drawn = math.exp(chance.uniform(math.log(numbers.low), math.log(numbers.high)))
    elif numbers.step is None:
        drawn = chance.uniform(numbers.low, numbers.high)
    else:
        drawn = numbers.low + int(chance.integers(int(_size(distribution)))) * numbers.step
    return _nearest(numbers, drawn)


def number(value: Any) -> float | None:
    """``value`` as a finite number, or ``None`` if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


class Candidates(Protocol):
    """The candidates of a proposal."""

    @property
    def space(self) -> Mapping[str, BaseDistribution]: ...

    @property
    def axes(self) -> Axes: ...

    def place(self, params: Params) -> tuple[float, ...] | None:
        """Position of ``params`` on the axes; ``None`` if they lie outside the space."""
        ...

    def pool(self, history: Sequence[Lesson], before: Sequence[FrozenTrial], chance: np.random.Generator) -> Pool:
        """The points looked at; of many, ``chance`` draws some."""
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
        history = lessons(candidates, before, sign)
        chance = np.random.default_rng([self._seed, trial.number])
        pool = candidates.pool(history, before, chance)
        decided = sum(one.standing is not OptunaTrialStatus.PENDING for one in history)
        if decided < self._first:
            return dict(pool.params(_farthest(pool.places, [one.place for one in history], chance)))
        outlook, best = self._expected(candidates.axes, pool, history)
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

    def _expected(self, axes: Axes, pool: Pool, history: Sequence[Lesson]) -> tuple[Outlook, float]:
        """The expected results of ``pool``, and the value to improve on."""
        taught = selected(history, KEPT_FASTEST, KEPT_NEWEST)
        if pool.fits is not None:
            taught = [one for one in taught if not one.memory]
        if pool.forecast is not None:
            outlook, best = pool.forecast
            return replace(outlook, holds=passes(axes, taught, pool.places) * outlook.holds), best
        found = learnt(axes, taught, pool.places, self._limit)
        if self._candidates is None:
            self._say(found, taught)
        holds = found.holds if pool.fits is None else found.holds * pool.fits
        return Outlook(found.value, found.spread, holds, pool.seconds(found), pool.restarts), found.best

    def _say(self, found: Predictions, taught: Sequence[Lesson]) -> None:
        if found.by_phases or self._warned or not any(one.standing is OptunaTrialStatus.FEASIBLE for one in taught):
            return
        self._warned = True
        some = any(one.phases for one in taught)
        why = "the sums of phases do not tell the objective" if some else f"no trial has the user attribute {PHASES!r}"
        text = f"{type(self).__name__} falls back to a Gaussian process with a filter for failures: {why}"
        warnings.warn(text, stacklevel=2)


def _farthest(points: Array, places: Sequence[Sequence[float]], chance: np.random.Generator) -> int:
    """Of ``SPREAD`` drawn points the one whose nearest neighbour among ``places`` is farthest."""
    drawn = chance.choice(len(points), size=min(SPREAD, len(points)), replace=False)
    if not places:
        return int(drawn[0])
    steps = np.abs(points[drawn][:, None, :] - columns(places, points.shape[1])[None]).clip(0.0, 1.0).sum(axis=2)
    return int(drawn[int(np.argmax(steps.min(axis=1)))])


def lessons(candidates: Candidates, trials: Sequence[FrozenTrial], sign: float) -> list[Lesson]:
    """Lessons of ``trials``; trials without one, or outside the space, are left out."""
    known = [(t, stands) for t in trials if (stands := _stands(t)) is not None]
    feasible = (t.value for t, stands in known if stands is OptunaTrialStatus.FEASIBLE)
    value_of = _value_of([v for v in feasible if v is not None], sign)
    found = (_lesson(candidates, t, stands, value_of) for t, stands in known)
    return [one for one in found if one is not None]


def _value_of(measured: Sequence[float], sign: float) -> Callable[[float], float]:
    """More is better: the logarithm where every value has one, else in units of the standard deviation."""
    if all(v > 0 for v in measured):
        return lambda v: sign * math.log(v) if v > 0 else math.nan
    middle, unit = statistics.fmean(measured), statistics.pstdev(measured) or 1.0
    return lambda v: sign * (v - middle) / unit


def _stands(trial: FrozenTrial) -> OptunaTrialStatus | None:
    """State of an Optuna trial as a lesson; ``None`` if it teaches nothing, as a FAIL that is no lack of memory."""
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


def _lesson(
    candidates: Candidates, trial: FrozenTrial, standing: OptunaTrialStatus, value_of: Callable[[float], float]
) -> Lesson | None:
    place = candidates.place(trial.params)
    if place is None:
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
    timed = standing is OptunaTrialStatus.FEASIBLE or (
        standing is OptunaTrialStatus.CENSORED and trial.state is TrialState.COMPLETE
    )
    return Lesson(
        place,
        standing,
        value,
        phases=_phases(trial) if timed else {},
        peak=number(trial.user_attrs.get(PEAK)),
        memory=bool(trial.user_attrs.get(OOM)),
        comparable=not trial.user_attrs.get(INCOMPARABLE),
        number=trial.user_attrs.get(NUMBER, trial.number),
        params=trial.params,
    )


def _phases(trial: FrozenTrial) -> Mapping[str, float]:
    seconds_of = trial.user_attrs.get(PHASES)
    if not isinstance(seconds_of, Mapping):
        return {}
    found = {str(name): number(seconds) for name, seconds in seconds_of.items()}
    return {n: s for n, s in found.items() if s is not None} if None not in found.values() else {}
