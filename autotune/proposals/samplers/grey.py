"""The sampler of the product: models of times and memory, and the choice by them (``choice``)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.domain import Configuration, FailureReason, Trial, TrialState
from autotune.proposals import times
from autotune.proposals.candidate_grid import CandidateGrid, Point
from autotune.proposals.choice import (
    ALIKE,
    ANY,
    LEFT,
    WORTH,
    Array,
    Choice,
    Outlook,
    Worth,
    best_forecast,
    best_step,
    is_dear,
    likely_from,
    steps_owed,
    was_misled,
)
from autotune.proposals.forecasts import PeakModel, PriorData, Task, TimeForecast, TimeModel
from autotune.proposals.memory import MemoryModel
from autotune.proposals.samplers.base import Asking, CandidateSampler, Field, StudySampler, Turn
from autotune.proposals.samplers.plain import TpeSampler
from autotune.proposals.steps import ENGINE, Progress, progress, steps
from autotune.proposals.times import PhaseTimes, probed
from autotune.proposals.translation import Observation, OptunaTrialStatus, selected
from autotune.statistics import early_stopping
from autotune.statistics.noise import CYCLE_SPREAD, PROCESS_SPREAD
from search_spaces.knobs.model import Restart

GREY, STEP = "grey", "step"
"""Sources: the best forecast, a one-knob step."""
KEPT_FASTEST, KEPT_NEWEST = 40, 60
"""A longer history is cut to its fastest and its newest trials, which bounds the cost of a fit."""
NOTHING = -12.0
"""Log tokens/hour before anything held: whatever fits is an improvement."""
REFINED = 8
"""Single changes of a drawn candidate, at most."""
UNLIKELY = 0.6
"""What is less likely to fit is not tried, once anything held."""
COMPARED = 16
"""Fastest trials whose measured and expected values are weighed against each other."""
MEASURED = PROCESS_SPREAD**2 + CYCLE_SPREAD**2 / early_stopping.LOOKS[0]
"""Variance of a trial's log tokens/hour."""


@dataclass(frozen=True)
class Models:
    """The models of a study; a model that is ``None`` is not used."""

    task: Task
    times: TimeModel | None = None
    peaks: PeakModel | None = None


def models_for(task: Task, prior_data: PriorData | None = None) -> Models:
    """Builds the phase-time model and the memory model of a study from what earlier studies measured, without its own
    trials. The hardware is presumed where no probe of the study's kind of device is known."""
    known = prior_data or PriorData()
    device = probed(known.probe)
    if device is not None and device.shared != (task.resources.device == "cpu"):
        device = None
    carried = times.carried_over(task, device, known.earlier)
    before = PhaseTimes(device, carried=carried)
    peaks = MemoryModel.before(task, known.earlier)
    return Models(task, before.fitted(task, ()), peaks)


class GreyBoxSampler(CandidateSampler):
    """The Optuna sampler that proposes the candidate of ``choice``."""


class GreySampler(StudySampler):
    """The default sampler; without the ``models`` of a study it goes by steps alone."""

    name = GREY
    forecasts = True

    def __init__(self, models: Models | None = None) -> None:
        self._models = models

    def bind(self, task: Task | None, prior_data: PriorData | None = None) -> GreySampler:
        return self if task is None else GreySampler(models_for(task, prior_data))

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> FittedGrey:
        return FittedGrey(self._models, trials, known)


class FittedGrey(StudySampler):
    """``GreySampler`` with its models fitted to the trials of a study."""

    name = GREY
    forecasts = True

    def __init__(self, models: Models | None, trials: Sequence[Trial], known: Sequence[Observation]) -> None:
        numbers = {e.number for e in known}
        self._models, self._known = models, known
        self._trials = sorted((t for t in trials if t.number in numbers), key=lambda t: t.number)
        kept = {e.number for e in selected(known, KEPT_FASTEST, KEPT_NEWEST)}
        self._read = tuple(t for t in self._trials if t.number in kept)
        place = None if models is None else models.task.resources
        self._framework = "trl" if place is None else place.framework

    def asking(self, turn: Turn) -> Asking | None:
        chosen = self._chosen(turn)
        if chosen is None:
            return None
        if isinstance(chosen, Asking):
            return chosen
        (grid, index), source = chosen
        everything = np.ones(len(grid), dtype=np.bool_)
        return Asking(GreyBoxSampler(grid, index), source, Field(grid, everything))

    def _chosen(self, turn: Turn) -> tuple[Choice, str] | Asking | None:
        located = self._located(turn)
        seen = [(p, e.value if e.standing is OptunaTrialStatus.FEASIBLE else None) for p, e in located]
        here = progress(turn.field.grid.dimensions, seen)
        base = None if here is None else here.base
        fields = (turn.field, *turn.nearby)
        least = self._least(fields, held=here is not None)
        outlooks = [self._outlook(field, turn, least, suspects=0) for field in fields]
        trusted = self.times is not None and self.times.trusted
        forecast = best_forecast(outlooks, base, WORTH) if trusted else None
        step_of = self._steps(turn, here, least, located)
        step = step_of(WORTH if trusted else None)
        owed = steps_owed(turn.track, GREY) > 0
        if forecast is not None and step is not None and not owed:
            owed = is_dear(forecast, step, outlooks, self._outlook(fields[-1], turn, least, suspects=1))
        if forecast is not None:
            forecast = self._refined(forecast, turn, base, least)
        first = (step, STEP), (forecast, GREY)
        for choice, source in first if owed else first[::-1]:
            if choice is not None:
                return choice, source
        if turn.waits():
            return None
        step = step_of(LEFT)
        forecast = None if step is not None else best_forecast(outlooks, base, LEFT, uncertain=True)
        if forecast is not None and self.times is not None:
            return forecast, GREY
        step = step or step_of(ANY)
        if step is not None or trusted:
            return None if step is None else (step, STEP)
        likely = Field(turn.field.grid, outlooks[0].open_)
        field = likely if likely.left.any() else turn.field
        return Asking(TpeSampler().sampler(turn), TpeSampler.name, field, TpeSampler.asks)

    def _refined(self, choice: Choice, turn: Turn, base: Point | None, least: float) -> Choice:
        """Returns the best forecast by single changes from a drawn candidate; of equals the nearest to the base."""
        around = turn.around
        if around is None:
            return choice
        own = Field(CandidateGrid.beside(choice[0], [choice[0].candidates[choice[1]]]), np.ones(1, dtype=np.bool_))
        outlook = self._outlook(own, turn, 0.0, suspects=0)
        gain, stays = float(outlook.expected[0]), int(outlook.restarts[0]) == int(Restart.NONE)
        for _ in range(REFINED):
            here = choice[0].candidates[choice[1]]
            outlook = self._outlook(around(here), turn, least, suspects=0)
            able = outlook.open_ & (outlook.restarts == int(Restart.NONE)) if stays else outlook.open_
            if not able.any():
                break
            gain = max(gain, float(outlook.expected[able].max()))
            equal = able & (outlook.expected >= gain - ALIKE)
            if not equal.any():
                break
            place = (
                outlook.grid.nearest(base, equal)
                if base
                else int(np.argmax(np.where(equal, outlook.expected, -np.inf)))
            )
            if outlook.grid.candidates[place] == here:
                break
            choice = outlook.grid, place
        return choice

    def _located(self, turn: Turn) -> list[tuple[Point, Observation]]:
        """Returns the decided observations on the track's grid, with their points."""
        decided = [e for e in turn.track if e.standing is not OptunaTrialStatus.PENDING]
        points = turn.field.grid.points([e.configuration for e in decided])
        return [(point, e) for point, e in zip(points, decided, strict=True) if point is not None]

    def _steps(
        self, turn: Turn, here: Progress | None, least: float, located: Sequence[tuple[Point, Observation]]
    ) -> Callable[[Worth | None], Choice | None]:
        """Returns the function that chooses a step by what it has to promise."""
        if here is None:
            return lambda _: None
        field = (turn.field, *turn.nearby)[-1]
        outlook, base = self._outlook(field, turn, least, suspects=1), located[here.place][1]
        phases = {} if base.trial is None else base.trial.phase_shares
        found, misled = steps(field.grid, outlook.open_, here), was_misled(turn.track, GREY)
        return lambda worth: best_step(found, outlook, phases, base.configuration.get(ENGINE), worth, misled=misled)

    @cached_property
    def times(self) -> TimeModel | None:
        """The model of times."""
        if self._models is None or self._models.times is None:
            return None
        return self._models.times.fitted(self._models.task, self._read)

    @cached_property
    def peaks(self) -> PeakModel | None:
        """The model of memory."""
        if self._models is None or self._models.peaks is None:
            return None
        return self._models.peaks.fitted(self._models.task, self._read)

    def _least(self, fields: Sequence[Field], *, held: bool) -> float:
        """Returns the least probability of fitting; lower where nothing has it, any while nothing has ``held``."""
        if self.peaks is None:
            return 0.0
        measured = sum(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in self._trials)
        enough = likely_from(measured, sum(_ran_out(t) for t in self._trials))
        most = max((float(self._peaks_of(f)[f.left].max()) for f in fields if f.left.any()), default=1.0)
        return min(enough, max(most, UNLIKELY if held else 0.0))

    def _outlook(self, field: Field, turn: Turn, least: float, *, suspects: int) -> Outlook:
        """Returns the forecasts of the candidates of ``field``; those are open that fit with a probability of
        ``least`` and have at most ``suspects`` failures that their values may have caused."""
        grid, size = field.grid, len(field.grid)
        open_ = field.left & (grid.suspicion(self._failed, self._held) <= suspects)
        fits = np.ones(size) if self.peaks is None else self._peaks_of(field)
        open_ = open_ & (fits >= least)
        if self.times is None:
            value, spread = np.zeros(size), np.ones(size)
        else:
            forecast = self._times_of(field)
            if turn not in self._levels:
                self._levels[turn] = self._level(turn.track)
            level, best, sure = self._levels[turn]
            value = level - best - forecast.log_seconds - self._divisors(grid.candidates)
            spread = np.sqrt(np.maximum(forecast.spread**2 - sure**2, 0.0))
        return Outlook(grid, open_, value, spread, fits, grid.restarts(turn.process, self._framework))

    def _level(self, track: Sequence[Observation]) -> tuple[float, float, float]:
        """Returns the constant that converts log seconds to log tokens/hour, the value to improve on, and its spread.
        Each measured value is weighed with its forecast by their variances; a running trial counts by its forecast."""
        feasible = (e for e in track if e.standing is OptunaTrialStatus.FEASIBLE)
        held = heapq.nlargest(COMPARED, feasible, key=lambda e: (e.value, -e.number))
        pending = [e.configuration for e in self._known if e.standing is OptunaTrialStatus.PENDING]
        if not held or self.times is None:
            return 0.0, NOTHING, 0.0
        own = [e.configuration for e in held]
        values = np.array([e.value for e in held], dtype=np.float64)
        found = self.times.forecast([*own, *pending])
        logs = found.log_seconds + self._divisors([*own, *pending])
        level = float(np.median(values + logs[: len(own)]))
        trust = MEASURED / (MEASURED + np.maximum(found.spread[: len(own)], 1e-6) ** 2)
        shrunk = (1.0 - trust) * values + trust * (level - logs[: len(own)])
        best = int(np.argmax(shrunk))
        return level, float(max([shrunk[best], *(level - logs[len(own) :])])), float(found.spread[best])

    def _divisors(self, configurations: Sequence[Configuration]) -> Array:
        return np.zeros(len(configurations)) if self._models is None else self._models.task.log_divisors(configurations)

    def _times_of(self, field: Field) -> TimeForecast:
        if id(field.grid) not in self._forecasts:
            assert self.times is not None  # noqa: S101
            self._forecasts[id(field.grid)] = self.times.forecast(field.grid.candidates)
        return self._forecasts[id(field.grid)]

    def _peaks_of(self, field: Field) -> Array:
        if id(field.grid) not in self._fits:
            assert self.peaks is not None  # noqa: S101
            self._fits[id(field.grid)] = self.peaks.forecast(field.grid.candidates).fits
        return self._fits[id(field.grid)]

    @cached_property
    def _levels(self) -> dict[Turn, tuple[float, float, float]]:
        return {}

    @cached_property
    def _forecasts(self) -> dict[int, TimeForecast]:
        return {}

    @cached_property
    def _fits(self) -> dict[int, Array]:
        return {}

    @cached_property
    def _failed(self) -> list[Configuration]:
        """Configurations that failed for another reason than memory."""
        failed = (e for e in self._known if e.standing is OptunaTrialStatus.INFEASIBLE)
        return [e.configuration for e in failed if e.trial is None or not _ran_out(e.trial)]

    @cached_property
    def _held(self) -> list[Configuration]:
        return [t.configuration for t in self._trials if t.fits]


def _ran_out(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.reason is FailureReason.OOM
