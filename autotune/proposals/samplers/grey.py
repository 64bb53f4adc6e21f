"""The grey-box sampler of a study: what physics and memory say of every candidate, corrected by what was measured.

See docs/decisions/0031-grey-box-sampler.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from autotune.domain import Configuration, Trial
from autotune.proposals.candidate_grid import CandidateGrid, Mask, highest
from autotune.proposals.forecasts import PeakModel, PriorData, Task, TimeForecast, TimeModel
from autotune.proposals.grey.choice import Outlook, TrialCosts, likely, trial_costs
from autotune.proposals.grey.learnt import KEPT_FASTEST, KEPT_NEWEST, Lesson, Params, Predictions, fastest
from autotune.proposals.grey.models import Models, compared, cycle_seconds, likely_enough, models_for, selected_trials
from autotune.proposals.grey.surfaces import Array, Axes
from autotune.proposals.samplers.base import StudySampler, Turn
from autotune.proposals.samplers.grey_box import GreyBoxSampler, Pool
from autotune.proposals.translation import Observation, OptunaTrialStatus, distributions, selected

WEIGHED = 768
"""Candidates looked at where more are left: the most promising, or drawn evenly where nothing is forecast ..."""
NEIGHBOURS = 128
"""... and those nearest to the fastest trial."""
COMPARED = 16
"""Fastest trials whose measured and expected values are weighed against each other."""

Indices = NDArray[np.int64]


class GreySampler(StudySampler):
    """``GreyBoxSampler`` with the models of times and memory.

    Args:
        models: of a study; without them it has nothing but its own surfaces.
    """

    name = "grey"
    forecasts = True

    def __init__(self, models: Models | None = None) -> None:
        self._models = models

    def bind(self, task: Task | None, prior_data: PriorData | None = None) -> GreySampler:
        return self if task is None else GreySampler(models_for(task, prior_data))

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> FittedGrey:
        return FittedGrey(self._models, trials, known)


class FittedGrey(StudySampler):
    """``GreySampler`` with its models fitted to the trials of a study.

    Where there is a model of times and it is trusted, it is ``grey``; else it is ``grey-fallback``: local search, then
    surfaces through what was measured, and the memory model as a filter.
    """

    forecasts = True

    def __init__(self, models: Models | None, trials: Sequence[Trial], known: Sequence[Observation]) -> None:
        self.known = {e.number: e for e in known}
        self.trials = sorted((t for t in trials if t.number in self.known), key=lambda t: t.number)
        self.read = selected_trials(self.trials, known)
        self._models = models
        resources = models.task.resources if models is not None else None
        self._place = (resources.framework, resources.device) if resources is not None else ("trl", "")
        self.costs: TrialCosts = trial_costs(self.trials, *self._place)
        self._times_of: dict[int, TimeForecast] = {}
        self._fits_of: dict[int, Array] = {}
        """By the id of the grid: all candidates are asked about at once."""

    def at(self, here: Sequence[Trial]) -> FittedGrey:
        self.costs = trial_costs(self.trials, *self._place, here=here)
        return self

    @cached_property
    def pending(self) -> list[Configuration]:
        """Configurations of trials that run or wait; their forecasts stand in for measurements."""
        return [e.configuration for e in self.known.values() if e.standing is OptunaTrialStatus.PENDING]

    def divisors(self, configurations: Sequence[Configuration]) -> Array:
        """``Task.log_divisors``."""
        models = self._models
        return np.zeros(len(configurations)) if models is None else models.task.log_divisors(configurations)

    @property
    def needs_local_search(self) -> bool:  # type: ignore[override]
        """While nothing forecasts what comes next; the forecasts need no moves."""
        return self.times is None

    @property
    def name(self) -> str:  # type: ignore[override]
        return "grey" if self.times is not None else "grey-fallback"

    @cached_property
    def least(self) -> float:
        """Probability of fitting that is likely enough."""
        return likely_enough(self.trials)

    @cached_property
    def times(self) -> TimeModel | None:
        """The model of times, if it is trusted."""
        if self._models is None or self._models.times is None:
            return None
        fitted = self._models.times.fitted(self._models.task, self.read)
        return fitted if fitted.trusted else None

    @cached_property
    def peaks(self) -> PeakModel | None:
        """The model of memory."""
        if self._models is None or self._models.peaks is None:
            return None
        return self._models.peaks.fitted(self._models.task, self.read)

    def may_fit(self, configuration: Configuration) -> bool:
        return self.peaks is None or bool(self.peaks.forecast([configuration]).fits[0] >= self.least)

    def forecast(self, grid: CandidateGrid, times: TimeModel) -> TimeForecast:
        """Forecast of all candidates by the model ``times``."""
        if id(grid) not in self._times_of:
            self._times_of[id(grid)] = times.forecast(grid.candidates)
        return self._times_of[id(grid)]

    def fits(self, grid: CandidateGrid, pool: Indices) -> Array:
        """Probability that memory suffices; 1 where no model says."""
        if self.peaks is None:
            return np.ones(len(pool))
        if id(grid) not in self._fits_of:
            self._fits_of[id(grid)] = self.peaks.forecast(grid.candidates).fits
        return self._fits_of[id(grid)][pool]

    def observations(
        self, own: Sequence[Observation], known: Sequence[Observation], *, elsewhere: bool
    ) -> Sequence[Observation]:
        """Forecasts learn from every failure, and on the permitted track rank among all configurations."""
        if self.times is None:
            return selected(own, KEPT_FASTEST, KEPT_NEWEST)
        numbers = {e.number for e in own}
        found = [e if elsewhere or e.number in numbers else replace(e, comparable=False) for e in known]
        return selected(found, KEPT_FASTEST, KEPT_NEWEST)

    def promising(self, grid: CandidateGrid, indices: Indices, times: TimeModel) -> Indices:
        """The candidates of ``indices`` that may be fastest; those unlikely to fit come last."""
        forecast, fits = self.forecast(grid, times), self.fits(grid, indices)
        hope = (forecast.spread - forecast.log_seconds - self.divisors(grid.candidates))[indices]
        hope = np.where(fits >= self.least, hope, hope - 100.0 + np.log(np.maximum(fits, 1e-12)))
        return indices[highest(hope, WEIGHED)]

    def likely(self, turn: Turn, own: Sequence[Observation]) -> Mask:
        held = [e for e in own if e.standing is OptunaTrialStatus.FEASIBLE]
        best = max(held, key=lambda e: (e.value, -e.number), default=None)
        pool = _looked_at(self, turn, None if best is None else turn.grid.params(best.configuration))
        mask = np.zeros_like(turn.left)
        mask[pool] = True
        return mask

    def sampler(self, turn: Turn) -> GreyBoxSampler:
        return GreyBoxSampler(seed=turn.seed, candidates=_Candidates(self, turn), n_startup_trials=0)


@dataclass(frozen=True)
class _Candidates:
    """The candidates of a turn, as ``grey_box.Candidates``."""

    fitted: FittedGrey
    turn: Turn

    @property
    def space(self) -> Mapping[str, BaseDistribution]:
        return distributions(self.turn.grid)

    @property
    def axes(self) -> Axes:
        return Axes(tuple(d.ordered for d in self.turn.grid.dimensions))

    def place(self, params: Params) -> tuple[float, ...] | None:
        return tuple(params[d.name] / d.span for d in self.turn.grid.dimensions)

    def pool(
        self,
        lessons: Sequence[Lesson],
        before: Sequence[FrozenTrial],  # noqa: ARG002
        chance: np.random.Generator,  # noqa: ARG002
    ) -> Pool:
        fitted, grid, held = self.fitted, self.turn.grid, fastest(lessons)
        indices = _looked_at(fitted, self.turn, held[0].params if held else None)
        configurations = [grid.candidates[i] for i in indices]
        restarts, fits = fitted.costs.restarts(configurations), fitted.fits(grid, indices)

        def seconds(found: Predictions) -> Array:
            cycle_s = found.cycle_s
            if cycle_s is None:
                measured = [s for t in fitted.read if t.feasible and (s := cycle_seconds(t)) is not None]
                cycle_s = min(measured, default=1.0) * np.exp(np.clip(found.best - found.value, -3.0, 3.0))
            return fitted.costs.seconds(cycle_s, restarts)

        return Pool(
            params=lambda index: grid.params(configurations[index]),
            places=grid.places(indices) / np.array([d.span for d in grid.dimensions], dtype=np.float64),
            restarts=restarts,
            seconds=seconds,
            least=fitted.least,
            fits=None if fitted.peaks is None else fits,
            forecast=None if fitted.times is None else self._forecast(fitted.times, indices, restarts, fits, held),
        )

    def _forecast(
        self, times: TimeModel, indices: Indices, restarts: Indices, fits: Array, held: Sequence[Lesson]
    ) -> tuple[Outlook, float]:
        """``Pool.forecast``; ``held``: measured trials, fastest first."""
        fitted, grid = self.fitted, self.turn.grid
        measured = [fitted.known[one.number] for one in held[:COMPARED]]
        own, every = [e.configuration for e in measured], fitted.forecast(grid, times)
        among = [i for c in own if (i := grid.index(c)) is not None]
        of_own = times.forecast(own) if len(among) < len(own) else every.part(np.array(among, dtype=np.int64))
        level, best = compared(measured, of_own.log_seconds + fitted.divisors(own), of_own.spread)
        forecast = every.part(indices)
        value = level - forecast.log_seconds - fitted.divisors([grid.candidates[i] for i in indices])
        seconds = fitted.costs.seconds(np.exp(forecast.log_seconds), restarts, forecast.restart_s)
        outlook = Outlook(value, forecast.spread, fits, seconds, restarts)
        pending = fitted.pending
        stand_ins = level - times.forecast(pending).log_seconds - fitted.divisors(pending) if pending else ()
        return outlook, max([best if held else float(value.min()), *stand_ins])


def _looked_at(fitted: FittedGrey, turn: Turn, best: Params | None) -> Indices:
    """The candidates looked at, in their order: of many the most promising, and those around the best."""
    grid, left = turn.grid, turn.left
    indices = np.flatnonzero(left)
    if fitted.times is None:
        if len(indices) > WEIGHED:
            drawn = np.random.default_rng(turn.seed).choice(indices, size=WEIGHED, replace=False)
            indices = np.unique(np.concatenate([drawn, _around(grid, left, best)]))
        return indices[likely(fitted.fits(grid, indices), fitted.least)]
    if len(indices) <= WEIGHED:
        return indices
    first = fitted.promising(grid, indices, fitted.times)
    return np.unique(np.concatenate([first, _around(grid, left, best)]))


def _around(grid: CandidateGrid, left: Mask, best: Params | None) -> Indices:
    if best is None or len(best) < len(grid.dimensions):
        return np.zeros(0, dtype=np.int64)
    return grid.around(tuple(best[d.name] for d in grid.dimensions), left, NEIGHBOURS)
