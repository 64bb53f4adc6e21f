"""Optuna's distributions as axes of surfaces, and points of them to choose among."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from autotune.proposals.grey.choice import LIKELY, Outlook
from autotune.proposals.grey.learnt import Predictions, Tried, fastest
from autotune.proposals.grey.surfaces import Array, Axes, columns
from autotune.proposals.translation import STARTUP

Params = Mapping[str, Any]
Legal = Callable[[Params], bool]

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
class DrawnPool:
    """``grey_box.Pool``: points of a space, of which the study's trials alone tell anything."""

    found: Sequence[Params]
    places: Array
    cycles: int
    restarts: NDArray[np.int64]
    """1 where a process has to be started."""
    startup_s: float | None
    """Median; ``None``: not known."""
    least: float = LIKELY
    forecasts_memory: bool = False

    def params(self, index: int) -> Params:
        return self.found[index]

    def forecast(self, held: Sequence[FrozenTrial]) -> None:  # noqa: ARG002
        return None

    def outlook(self, found: Predictions) -> Outlook:
        seconds = np.ones(len(self.found)) if found.cycle_s is None else self.cycles * found.cycle_s
        if self.startup_s is not None and found.cycle_s is not None:
            seconds = seconds + self.restarts * self.startup_s
        return Outlook(found.value, found.spread, found.holds, seconds, self.restarts)


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
        """Where ``params`` lie by the axes; ``None`` if they lack one or hold a value that is not of the space."""
        found = []
        for name, distribution in self.space.items():
            if name not in params:
                return None
            place = self._along(name, distribution, params[name])
            if place is None:
                return None
            found.append(place)
        return tuple(found)

    def _along(self, name: str, distribution: BaseDistribution, value: Any) -> float | None:
        if isinstance(distribution, CategoricalDistribution):
            return self._ranks[name].get(_key(value))
        numbers = _numbers(distribution)
        if not isinstance(value, int | float) or not numbers.low <= value <= numbers.high:
            return None
        scale = math.log if numbers.log else float
        low, high = scale(numbers.low), scale(numbers.high)
        return (scale(value) - low) / (high - low)

    def pool(self, tried: Sequence[Tried], before: Sequence[FrozenTrial], chance: np.random.Generator) -> DrawnPool:
        """Points that may be proposed: nothing twice, unless everything was.

        Raises:
            ValueError: none was legal.
        """
        found, places = self.candidates([one.trial.params for one in fastest(tried)[:BEST]], chance)
        taken = {one.lesson.place for one in tried}
        free = np.array([place not in taken for place in map(tuple, places.tolist())])
        if free.any():
            found, places = [p for p, one in zip(found, free, strict=True) if one], places[free]
        starts = [s for t in before if (s := number(t.user_attrs.get(STARTUP))) is not None]
        startup_s = statistics.median(starts) if starts and self._restart is not None else None
        return DrawnPool(found, places, self._cycles, self._restarts(found, before), startup_s)

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
        found = self._whole
        turns = 0 if math.prod(_size(d) for d in self.space.values()) <= WHOLE else ROUNDS
        while not found[0] and turns > 0:
            drawn = (self._drawn(chance) for _ in range(DRAWN))
            found = self._placed(itertools.chain(drawn, *(self._around(p, chance) for p in best)))
            turns -= 1
        if not found[0]:
            raise ValueError("`legal` allowed no point of the search space")
        return found

    @cached_property
    def _whole(self) -> tuple[Sequence[Params], Array]:
        """Every legal point of a small space; none of a larger one."""
        if math.prod(_size(d) for d in self.space.values()) > WHOLE:
            return (), columns([], len(self.space))
        values = [_values(d) for d in self.space.values()]
        return self._placed(dict(zip(self.space, point, strict=True)) for point in itertools.product(*values))

    def _placed(self, points: Iterable[Params]) -> tuple[Sequence[Params], Array]:
        found = {place: p for p in points if (place := self.place(p)) is not None}
        kept = {place: p for place, p in found.items() if self._legal is None or self._legal(p)}
        return tuple(kept.values()), columns(tuple(kept), len(self.space))

    def _drawn(self, chance: np.random.Generator) -> Params:
        return {name: _draw(d, chance) for name, d in self.space.items()}

    def _around(self, params: Params, chance: np.random.Generator) -> Iterator[Params]:
        for name, distribution in self.space.items():
            few = _size(distribution) <= WAYS
            values = _values(distribution) if few else [_draw(distribution, chance) for _ in range(WAYS)]
            for value in values:
                yield {**{n: params[n] for n in self.space}, name: value}


def _key(value: Any) -> str:
    """Tells ``1``, ``1.0`` and ``True`` apart."""
    return repr(value)


def _ordered(distribution: BaseDistribution) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return all(isinstance(c, int | float) for c in distribution.choices)
    return True


def _ranks(distribution: BaseDistribution) -> Mapping[str, float]:
    """Choice -> place; numbers by their rank among the choices."""
    if not isinstance(distribution, CategoricalDistribution):
        return {}
    choices: list[Any] = list(distribution.choices)
    if not _ordered(distribution):
        return {_key(c): float(i) for i, c in enumerate(choices)}
    ranked = sorted(choices)
    return {_key(c): i / max(1, len(ranked) - 1) for i, c in enumerate(ranked)}


@dataclass(frozen=True)
class _Numbers:
    """An int or float distribution."""

    low: float
    high: float
    log: bool
    step: float | None
    whole: bool

    def value(self, number: float) -> int | float:
        """The distribution's own value next to ``number``."""
        inside = min(self.high, max(self.low, number))
        return round(inside) if self.whole else inside


def _numbers(distribution: BaseDistribution) -> _Numbers:
    if isinstance(distribution, FloatDistribution | IntDistribution):
        whole = isinstance(distribution, IntDistribution)
        return _Numbers(distribution.low, distribution.high, distribution.log, distribution.step, whole)
    raise TypeError(f"the grey-box sampler knows no distribution like {distribution!r}")


def _size(distribution: BaseDistribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    numbers = _numbers(distribution)
    return math.inf if numbers.step is None else math.floor((numbers.high - numbers.low) / numbers.step + 1e-8) + 1


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    """All values, of a distribution that has a finite number of them."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    numbers = _numbers(distribution)
    return [numbers.value(numbers.low + i * (numbers.step or 0.0)) for i in range(int(_size(distribution)))]


def _draw(distribution: BaseDistribution, chance: np.random.Generator) -> Any:
    """A value, evenly; by its logarithm where the distribution says so."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(chance.integers(len(distribution.choices)))]
    numbers = _numbers(distribution)
    if numbers.log:
        return numbers.value(math.exp(chance.uniform(math.log(numbers.low), math.log(numbers.high))))
    if numbers.step is None:
        return numbers.value(chance.uniform(numbers.low, numbers.high))
    return numbers.value(numbers.low + int(chance.integers(int(_size(distribution)))) * numbers.step)


def number(value: Any) -> float | None:
    """``value`` as a finite number, or ``None`` if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
