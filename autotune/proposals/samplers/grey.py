"""The default sampler: chooses trials by models of times and memory (``choice``)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.domain import Configuration, FailureReason, Trial, TrialState
from autotune.proposals import times
from autotune.proposals.candidate_grid import Point
from autotune.proposals.choice import (
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
    refined,
    steps_owed,
    was_misled,
)
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.memory import MemoryModel
from autotune.proposals.samplers.base import CandidateSampler, Field, Proposal, StudySampler, Turn
from autotune.proposals.samplers.plain import RANDOM
from autotune.proposals.steps import ENGINE, Progress, progress, steps
from autotune.proposals.times import PhaseTimes, probed
from autotune.proposals.translation import Observation, OptunaTrialStatus, selected
from autotune.statistics import early_stopping
from autotune.statistics.noise import CYCLE_SPREAD, PROCESS_SPREAD

GREY, STEP = "grey", "step"
"""Prefixes of ``Trial.source``: the best forecast, a one-knob step."""
KEPT_FASTEST, KEPT_NEWEST = 40, 60
"""Fastest and newest trials that a longer history is cut to, which bounds the cost of a fit."""
NOTHING = -12.0
"""Best log tokens/hour while no trial was feasible: whatever fits is an improvement."""
UNLIKELY = 0.6
"""Least probability of fitting at which a candidate is tried, once a trial was feasible."""
COMPARED = 16
"""Number of fastest trials whose measured values are weighed against their forecasts."""
MEASURED = PROCESS_SPREAD**2 + CYCLE_SPREAD**2 / early_stopping.LOOKS[0]
"""Variance of a trial's log tokens/hour."""


@dataclass(frozen=True)
class Models:
    """The models of a study; a model that is ``None`` is not used."""

    task: Task
    times: PhaseTimes | None = None
    peaks: MemoryModel | None = None


def models_for(task: Task, prior_data: PriorData | None = None) -> Models:
    """Builds the phase-time model and the memory model of a study from earlier studies, without its own trials. Assumes
    typical hardware if no probe of the study's kind of device is known."""
    known = prior_data or PriorData()
    device = probed(known.probe)
    if device is not None and device.shared != (task.resources.device == "cpu"):
        device = None
    before = PhaseTimes(device, carried=times.carried_over(task, device, known.earlier))
    peaks = MemoryModel.before(task, known.earlier)
    return Models(task, before.fitted(task, ()), peaks)


@dataclass(frozen=True)
class Level:
    """The best value of a track, and the constant between log seconds and values."""

    log_tokens: float = 0.0
    """Constant that converts log seconds to log tokens/hour."""
    best: float = NOTHING
    """Log tokens/hour to improve on."""
    spread: float = 0.0
    """Standard deviation of ``best``."""


class GreySampler(StudySampler):
    """The default sampler; without ``models`` of a study it only takes one-knob steps."""

    name = GREY

    def __init__(
        self, models: Models | None = None, trials: Sequence[Trial] = (), known: Sequence[Observation] = ()
    ) -> None:
        numbers = {e.number for e in known}
        self._models, self._known = models, known
        self._trials = sorted((t for t in trials if t.number in numbers), key=lambda t: t.number)
        failed = (e for e in known if e.standing is OptunaTrialStatus.INFEASIBLE)
        self._failed = [e.configuration for e in failed if not _ran_out(e.trial)]

    def bind(self, task: Task | None, prior_data: PriorData | None = None) -> GreySampler:
        return self if task is None else GreySampler(models_for(task, prior_data))

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> GreySampler:
        return GreySampler(self._models, trials, known)

    def propose(self, turn: Turn) -> Proposal | None:
        located, level = _located(turn), self._level(turn.track)
        values = [(p, e.value if e.standing is OptunaTrialStatus.FEASIBLE else None) for p, e in located]
        here = progress(turn.field.grid.dimensions, values)
        base = None if here is None else here.base
        outlooks = [self._outlook(field, turn, level) for field in (turn.field, *turn.nearby)]
        least = self._least(outlooks, held=here is not None)
        outlooks = [o.likely(least) for o in outlooks]
        step_of = _steps(outlooks[-1], turn.track, here, located)
        forecast = None if self.times is None else best_forecast(outlooks, base, WORTH)
        step = step_of(WORTH)
        owed = steps_owed(turn.track, GREY) > 0
        if forecast is not None and step is not None:
            owed = owed or is_dear(forecast, step)
        if forecast is not None and turn.around is not None:
            around = turn.around
            forecast = refined(forecast, base, lambda one: self._outlook(around(one), turn, level).likely(least))
        either = [(forecast, GREY), (step, STEP)]
        for choice, source in reversed(either) if owed else either:
            if choice is not None:
                return _ask(turn, choice, source)
        if turn.waits():
            return None
        for worth in (LEFT, ANY):  # smaller gains, then every step
            step = step_of(worth)
            if step is not None:
                return _ask(turn, step, STEP)
            forecast = best_forecast(outlooks, base, worth, uncertain=True)
            if forecast is not None and (worth is LEFT or self.times is None):
                return _ask(turn, forecast, GREY)
        return RANDOM.propose(turn) if self.times is None else None

    @cached_property
    def _fitted(self) -> tuple[Trial, ...]:
        """Trials that the models are fitted to."""
        kept = {e.number for e in selected(self._known, KEPT_FASTEST, KEPT_NEWEST)}
        return tuple(t for t in self._trials if t.number in kept)

    @cached_property
    def times(self) -> PhaseTimes | None:
        """The model of times."""
        if self._models is None or self._models.times is None:
            return None
        return self._models.times.fitted(self._models.task, self._fitted)

    @cached_property
    def peaks(self) -> MemoryModel | None:
        """The model of memory."""
        if self._models is None or self._models.peaks is None:
            return None
        return self._models.peaks.fitted(self._models.task, self._fitted)

    def _least(self, outlooks: Sequence[Outlook], *, held: bool) -> float:
        """Returns the least probability of fitting to try; lower if no candidate has it, or no trial was feasible."""
        measured = sum(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in self._trials)
        enough = likely_from(measured, sum(_ran_out(t) for t in self._trials))
        most = max((float(o.fits[o.left].max()) for o in outlooks if o.left.any()), default=1.0)
        return min(enough, max(most, UNLIKELY if held else 0.0))

    def _outlook(self, field: Field, turn: Turn, level: Level) -> Outlook:
        """Returns the forecasts of the candidates of ``field``."""
        grid, size = field.grid, len(field.grid)
        suspects = grid.suspicion(self._failed, [t.configuration for t in self._trials if t.fits])
        fits = np.ones(size) if self.peaks is None else self.peaks.forecast(grid.candidates).fits
        gain, spread = np.zeros(size), np.ones(size)
        if self.times is not None:
            forecast = self.times.forecast(grid.candidates)
            gain = level.log_tokens - level.best - forecast.log_seconds - self._divisors(grid.candidates)
            spread = np.sqrt(np.maximum(forecast.spread**2 - level.spread**2, 0.0))
        return Outlook(grid, field.left, suspects, gain, spread, fits, grid.restarts(turn.process))

    def _level(self, track: Sequence[Observation]) -> Level:
        """Returns the scale of a track. Weights each measured value and its forecast by their variances; a running
        trial counts with its forecast."""
        feasible = (e for e in track if e.standing is OptunaTrialStatus.FEASIBLE)
        held = heapq.nlargest(COMPARED, feasible, key=lambda e: (e.value, -e.number))
        pending = [e.configuration for e in self._known if e.standing is OptunaTrialStatus.PENDING]
        if not held or self.times is None:
            return Level()
        own = [e.configuration for e in held]
        values = np.array([e.value for e in held], dtype=np.float64)
        found = self.times.forecast([*own, *pending])
        logs = found.log_seconds + self._divisors([*own, *pending])
        level = float(np.median(values + logs[: len(own)]))
        trust = MEASURED / (MEASURED + np.maximum(found.spread[: len(own)], 1e-6) ** 2)
        shrunk = (1.0 - trust) * values + trust * (level - logs[: len(own)])
        best = int(np.argmax(shrunk))
        return Level(level, float(max([shrunk[best], *(level - logs[len(own) :])])), float(found.spread[best]))

    def _divisors(self, configurations: Sequence[Configuration]) -> Array:
        return np.zeros(len(configurations)) if self._models is None else self._models.task.log_divisors(configurations)


StepOf = Callable[[Worth], Choice | None]
"""Function that chooses a step by the least gain that the step must promise."""


def _located(turn: Turn) -> list[tuple[Point, Observation]]:
    """Returns the finished observations that have a point on the track's grid, with their points."""
    decided = [e for e in turn.track if e.standing is not OptunaTrialStatus.PENDING]
    points = turn.field.grid.points([e.configuration for e in decided])
    return [(point, e) for point, e in zip(points, decided, strict=True) if point is not None]


def _steps(
    outlook: Outlook, track: Sequence[Observation], here: Progress | None, located: Sequence[tuple[Point, Observation]]
) -> StepOf:
    """Returns the function that chooses a step from the base configuration."""
    if here is None:
        return lambda _: None
    base = located[here.place][1]
    able, misled = outlook.left & (outlook.suspects <= 1), was_misled(track, GREY)
    found = steps(outlook.grid, able, here)
    return lambda worth: best_step(
        found, outlook, base.trial.phase_shares, base.configuration.get(ENGINE), worth, misled=misled
    )


def _ask(turn: Turn, choice: Choice, source: str) -> Proposal:
    outlook, place = choice
    return turn.ask(CandidateSampler(outlook.grid, place), source, outlook.grid, outlook.left)


def _ran_out(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.reason is FailureReason.OOM
