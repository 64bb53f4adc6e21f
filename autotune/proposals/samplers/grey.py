"""Grey box: what physics and memory say of every candidate, corrected by what was measured, weighed against its cost.

See docs/decisions/0031-grey-box-sampler.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import Background, PeakModel, Task, TimeForecast, TimeModel
from autotune.proposals.grey.choice import Outlook, choice, likely
from autotune.proposals.grey.costs import course
from autotune.proposals.grey.learnt import Learnt, learnt, passes
from autotune.proposals.grey.memo import Memo
from autotune.proposals.grey.models import Models, models_for, peaks_at, times_at
from autotune.proposals.grey.reading import (
    axes,
    compared,
    cycle_seconds,
    fastest,
    identity,
    lessons,
    likely_enough,
    places,
    ranked,
    told,
)
from autotune.proposals.grey.surfaces import Array
from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.samplers.opening import opening
from autotune.proposals.translation import Evidence
from search_spaces.configuration import KnobValue

WEIGHED = 768
"""Candidates looked at where more are left: the first of a shortlist, or drawn evenly where there is none ..."""
NEIGHBOURS = 128
"""... and those nearest to the fastest trial."""
COMPARED = 16
"""Fastest trials whose measured and expected values are weighed against each other."""

Shortlists = Memo[NDArray[np.int64]]


class GreySampler:
    """Expected improvement times the probability of holding, for each second expected.

    Args:
        models: of a study; without them it has nothing but its own surfaces.
    """

    name = "grey"
    needs: tuple[str, ...] = ()
    learns = False

    def __init__(self, models: Models | None = None) -> None:
        self._models = models
        self._shortlists: Shortlists = Memo()

    def for_task(self, task: Task, background: Background | None = None) -> GreySampler:
        return GreySampler(models_for(task, background))

    def informed(self, trials: Sequence[Trial], known: Sequence[Evidence]) -> InformedSampler:
        return InformedSampler(self._models, trials, known, self._shortlists)

    def choose(
        self,
        lattice: Lattice,
        left: Mask,
        evidence: Sequence[Evidence],
        seed: int,
        start: Mapping[str, KnobValue] | None,
    ) -> int:
        return self.informed((), evidence).choose(lattice, left, evidence, seed, start)


class InformedSampler:
    """A ``Sampler`` that has read the trials.

    Where there is a model of times and it is trusted, it is ``grey``; else it is ``grey-fallback``: moves, then
    surfaces through what was measured, and the memory model as a filter.
    """

    needs: tuple[str, ...] = ()

    def __init__(
        self, models: Models | None, trials: Sequence[Trial], known: Sequence[Evidence], shortlists: Shortlists
    ) -> None:
        self._known = known
        numbers = {e.number for e in known}
        self._trials = sorted((t for t in trials if t.number in numbers), key=lambda t: t.number)
        self._told = told(self._trials, known)
        self._models = models
        self._shortlists = shortlists

    @cached_property
    def _least(self) -> float:
        """Probability of fitting that is likely enough."""
        return likely_enough(self._trials)

    @property
    def learns(self) -> bool:
        """As of the other models while nothing forecasts what comes next; the forecasts need no moves."""
        return self._times is None

    @property
    def name(self) -> str:
        return "grey" if self._times is not None else "grey-fallback"

    @cached_property
    def _times(self) -> TimeModel | None:
        if self._models is None or self._models.times is None:
            return None
        fitted = self._models.times.fitted(self._models.task, self._told)
        return fitted if fitted.trusted else None

    @cached_property
    def _peaks(self) -> PeakModel | None:
        if self._models is None or self._models.peaks is None:
            return None
        return self._models.peaks.fitted(self._models.task, self._told)

    def may_fit(self, configuration: Configuration) -> bool:
        return self._peaks is None or bool(self._peaks.forecast([configuration]).fits[0] >= self._least)

    def prepare(self, lattice: Lattice) -> None:
        """Have ready what does not depend on how the newest trial ends."""
        if len(lattice) > WEIGHED and self._models is not None and self._models.times is not None:
            self._shortlist(lattice)

    def choose(
        self,
        lattice: Lattice,
        left: Mask,
        evidence: Sequence[Evidence],
        seed: int,
        start: Mapping[str, KnobValue] | None,
    ) -> int:
        if self._times is None:
            return self._fall_back(lattice, left, evidence, seed, start)
        # With other numerics or learning a configuration is ranked among all: what it has to beat is the best of all.
        known = evidence if start is None else self._known
        pool = self._pool(lattice, left, known)
        outlook, best = self._expected(self._times, lattice, pool, known)
        return int(pool[choice(outlook, best, self._least)])

    def _pool(self, lattice: Lattice, left: Mask, known: Sequence[Evidence]) -> NDArray[np.int64]:
        """The candidates looked at, in their order."""
        indices = np.flatnonzero(left)
        if len(indices) <= WEIGHED:
            return indices
        shortlist = self._shortlist(lattice)
        first = shortlist[left[shortlist]][:WEIGHED]
        listed = np.zeros_like(left)
        listed[shortlist] = left[shortlist]
        near = _around_best(lattice, listed, known) if len(first) else indices[:WEIGHED]
        return np.unique(np.concatenate([first, near]))

    def _shortlist(self, lattice: Lattice) -> NDArray[np.int64]:
        """The candidates worth a closer look, best first, by all but the newest trial.

        So it can be made while that one runs, and is the same whether it was or not.
        """
        before = self._trials[:-1]
        read, least = told(before, self._known), likely_enough(before)
        key = (id(lattice), identity(read), least)
        return self._shortlists.get(key, lambda: ranked(self._models, lattice, read, least))

    def _expected(
        self, times: TimeModel, lattice: Lattice, pool: NDArray[np.int64], known: Sequence[Evidence]
    ) -> tuple[Outlook, float]:
        """What the models expect of ``pool``, and the value to improve on."""
        asked, held = [lattice.candidates[i] for i in pool], fastest(known, COMPARED)
        forecast, (level, best) = _forecast(times, lattice, pool, held)
        logs, spread = forecast.log_seconds, forecast.spread
        way = course(self._trials, *self._place)
        restarts = way.restarts(asked)
        seconds = way.seconds(np.exp(logs), restarts, forecast.restart_s)
        taught = lessons(lattice, self._trials, self._known)
        passing = passes(axes(lattice), taught, places(lattice, pool), by_peaks=self._peaks is not None)
        value = level - logs
        outlook = Outlook(value, spread, passing * self._fits(lattice, pool), seconds, restarts)
        return outlook, best if held else float(value.min())

    @property
    def _place(self) -> tuple[str, str]:
        """Framework and device, as far as they are known."""
        resources = self._models.task.resources if self._models is not None else None
        return (resources.framework, resources.device) if resources is not None else ("trl", "")

    def _fits(self, lattice: Lattice, pool: NDArray[np.int64]) -> Array:
        """Probability that memory suffices; 1 where no model says."""
        if self._peaks is None:
            return np.ones(len(pool))
        return peaks_at(self._peaks, lattice, pool).fits

    def _fall_back(
        self,
        lattice: Lattice,
        left: Mask,
        known: Sequence[Evidence],
        seed: int,
        start: Mapping[str, KnobValue] | None,
    ) -> int:
        pool = _drawn(lattice, left, known, seed)
        fits = self._fits(lattice, pool)
        enough = likely(fits, self._least)
        pool, fits = pool[enough], fits[enough]
        mask = np.zeros_like(left)
        mask[pool] = True
        first = opening(lattice, mask, known, seed, start)
        if first is not None:
            return first
        taught = lessons(lattice, self._trials, known)
        if self._peaks is not None:
            taught = [one for one in taught if not one.memory]
        found = learnt(axes(lattice), taught, places(lattice, pool))
        return int(pool[self._weighed(lattice, pool, found, fits)])

    def _weighed(self, lattice: Lattice, pool: NDArray[np.int64], found: Learnt, fits: Array) -> int:
        way = course(self._trials, *self._place)
        restarts = way.restarts([lattice.candidates[i] for i in pool])
        cycle_s = found.cycle_s
        if cycle_s is None:
            measured = [s for t in self._told if t.feasible and (s := cycle_seconds(t)) is not None]
            cycle_s = min(measured, default=1.0) * np.exp(np.clip(found.best - found.value, -3.0, 3.0))
        outlook = Outlook(found.value, found.spread, found.holds * fits, way.seconds(cycle_s, restarts), restarts)
        return choice(outlook, found.best, self._least)


def _forecast(
    times: TimeModel, lattice: Lattice, pool: NDArray[np.int64], held: Sequence[Evidence]
) -> tuple[TimeForecast, tuple[float, float]]:
    """Of ``pool``; and ``held`` compared with its own."""
    among = [i for e in held if (i := lattice.index(e.configuration)) is not None]
    if len(among) < len(held):
        of_held = times.forecast([e.configuration for e in held])
        return times_at(times, lattice, pool), compared(held, of_held.log_seconds, of_held.spread)
    both, size = times_at(times, lattice, np.concatenate([pool, np.array(among, dtype=np.int64)])), len(pool)
    first, rest = both.part(slice(0, size)), both.part(slice(size, None))
    return first, compared(held, rest.log_seconds, rest.spread)


def _around_best(lattice: Lattice, left: Mask, known: Sequence[Evidence]) -> NDArray[np.int64]:
    best = fastest(known, 1)
    point = lattice.point(best[0].configuration) if best else None
    return np.zeros(0, dtype=np.int64) if point is None else lattice.around(point, left, NEIGHBOURS)


def _drawn(lattice: Lattice, left: Mask, known: Sequence[Evidence], seed: int) -> NDArray[np.int64]:
    """Candidates where no forecast puts them in order."""
    indices = np.flatnonzero(left)
    if len(indices) <= WEIGHED:
        return indices
    drawn = np.random.default_rng(seed).choice(indices, size=WEIGHED, replace=False)
    return np.unique(np.concatenate([drawn, _around_best(lattice, left, known)]))
