"""Candidates of a track as points on a grid, so that thousands can be evaluated at once."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from autotune.proposals.costs import restarts
from autotune.proposals.dominance import STEPS, Region, coordinate
from autotune.proposals.reading import Columns
from search_spaces.configuration import KnobValue, column
from search_spaces.knobs import KNOBS
from search_spaces.native import UNSET

OF_ENGINE = frozenset({"rollout_engine", *(k.name for k in KNOBS.values() if "rollout_engine" in k.needs)})
"""Knobs that an engine is built from."""
Mask = NDArray[np.bool_]
Point = tuple[int, ...]


@dataclass(frozen=True)
class Dimension:
    """A searched knob as a dimension; a point contains the index of its coordinate in ``values``."""

    name: str
    values: tuple[KnobValue, ...]
    ordered: bool
    """Neighbouring values are alike (numbers); otherwise any two differ equally."""

    @cached_property
    def places(self) -> Mapping[KnobValue, int]:
        return {value: place for place, value in enumerate(self.values)}

    @property
    def span(self) -> int:
        """Scale of a dimension: a change from its first to its last place, or between two choices, has distance 1."""
        return len(self.values) - 1 if self.ordered else 1


class CandidateGrid:
    """Candidates in a fixed order, without duplicates, and the dimensions (of the knobs ``searched``) they differ in.

    ``anchors`` also have a point, such as the baseline. A knob in ``unset`` may be left to the framework, which counts
    as one of its values.
    """

    def __init__(
        self,
        candidates: Sequence[Configuration],
        searched: Iterable[str],
        anchors: Sequence[Configuration],
        unset: Collection[str] = (),
    ) -> None:
        self.candidates = tuple(candidates)
        self._unset = frozenset(unset)
        self._masks: dict[Region, Mask] = {}
        self._read: dict[str, Columns] = {}
        self._distinct: dict[str, tuple[Sequence[KnobValue | None], NDArray[np.intp]]] = {}
        dimensions = (self._dimension(n, anchors) for n in sorted(set(searched)))
        self.dimensions = tuple(d for d in dimensions if d is not None)

    def __len__(self) -> int:
        return len(self.candidates)

    def beside(self, candidates: Iterable[Configuration]) -> CandidateGrid:
        """Returns a grid of other candidates on the same dimensions; omits candidates with a value outside these."""
        found = tuple(candidates)
        placed = np.all(self._placed(found) >= 0, axis=1).tolist()
        other = CandidateGrid(tuple(itertools.compress(found, placed)), (), (), self._unset)
        other.dimensions = self.dimensions
        return other

    def point(self, configuration: Configuration) -> Point | None:
        """Returns the point of ``configuration``, or ``None`` if no dimension contains one of its values."""
        return self.points((configuration,))[0]

    def points(self, configurations: Sequence[Configuration]) -> list[Point | None]:
        """Returns the ``point`` of each."""
        places = [self._places.get(c) for c in configurations]
        found = self._points[[0 if place is None else place for place in places]] if len(self) else None
        others = [number for number, place in enumerate(places) if place is None]
        if found is None or others:
            placed = self._placed([configurations[number] for number in others])
            found = placed if found is None else found
            found[others] = placed
        return [None if -1 in point else tuple(point) for point in found.tolist()]

    def params(self, configuration: Configuration) -> dict[str, int]:
        """Returns the index of ``configuration`` in each dimension that contains its value."""
        (places,) = self._placed((configuration,)).tolist()
        return {d.name: place for d, place in zip(self.dimensions, places, strict=True) if place >= 0}

    def at(self, point: Point) -> int | None:
        """Returns the candidate at ``point``, or ``None`` if there is none."""
        there = self.alike(point, ())
        return int(np.argmax(there)) if there.any() else None

    def without(self, taken: Iterable[Configuration], regions: Iterable[Region]) -> Mask:
        """Returns the mask of the candidates that are not in ``taken`` and in no region."""
        left = np.ones(len(self.candidates), dtype=np.bool_)
        left[[i for c in taken if (i := self._places.get(c)) is not None]] = False
        for region in regions:
            left &= ~self._covered(region)
        return left

    def nearest(self, point: Point, left: Mask) -> int:
        """Returns the candidate in ``left`` closest to ``point``, the first among equals. A step in an ordered
        dimension counts as its share of the dimension, any other change as 1."""
        indices = np.flatnonzero(left)
        return int(indices[np.argmin(self._distance(indices, point))])

    def alike(self, point: Point, but: Collection[str]) -> Mask:
        """Returns the mask of the candidates that equal ``point`` in every dimension except those in ``but``."""
        axes = [axis for axis, d in enumerate(self.dimensions) if d.name not in but]
        same: Mask = np.all(self._points[:, axes] == np.array(point, dtype=np.int64)[axes], axis=1)
        return same

    def at_place(self, axis: int, place: int) -> Mask:
        """Returns the mask of the candidates with index ``place`` in a dimension."""
        there: Mask = self._points[:, axis] == place
        return there

    def below(self, name: str, point: Point) -> Mask:
        """Returns the mask of the candidates below ``point`` in dimension ``name``; all False if it does not exist."""
        axes = [axis for axis, d in enumerate(self.dimensions) if d.name == name]
        less: Mask = np.any(self._points[:, axes] < np.array(point, dtype=np.int64)[axes], axis=1)
        return less

    def distance(self, index: int, point: Point) -> float:
        """Returns the distance of a candidate from ``point``, defined as in ``nearest``."""
        return float(self._distance(np.array([index]), point)[0])

    def restarts(self, last: Configuration | None, framework: str) -> NDArray[np.int64]:
        """Returns the ``Restart`` that each candidate needs after ``last``; a new process if ``last`` is ``None``."""
        if framework not in self._read:
            self._read[framework] = Columns(self.candidates, framework, "cuda")
        return restarts(self._read[framework], last, framework)

    def suspicion(self, failed: Iterable[Configuration], held: Sequence[Configuration]) -> NDArray[np.int64]:
        """Counts for each candidate the failures that share one of its values, or all its engine settings, and that no
        configuration in ``held`` disproves."""
        found = np.zeros(len(self.candidates), dtype=np.int64)
        engine = [axis for axis, d in enumerate(self.dimensions) if d.name in OF_ENGINE]
        groups = [[axis] for axis in range(len(self.dimensions))] + [engine] * bool(engine)
        failed = tuple(failed)
        proven = self._placed(held if failed else ())
        for point in self._placed(failed):
            for axes in groups:
                if not np.all(proven[:, axes] == point[axes], axis=1).any():
                    found += np.all(self._points[:, axes] == point[axes], axis=1)
        return found

    def _column(self, name: str, configurations: Iterable[Configuration]) -> list[KnobValue | None]:
        """Returns the ``coordinate`` of each configuration; ``UNSET`` for a knob that may be left to the framework."""
        unset = UNSET if name in self._unset else None
        if name != STEPS:
            return column(name, configurations, unset)
        return [unset if (value := coordinate(name, c)) is None else value for c in configurations]

    def _placed(self, configurations: Sequence[Configuration]) -> NDArray[np.int64]:
        """Returns the index of each coordinate by configuration and dimension; -1 if the dimension lacks it."""
        places = [[d.places.get(v, -1) for v in self._column(d.name, configurations)] for d in self.dimensions]  # type: ignore[arg-type]
        return np.array(places, dtype=np.int64).reshape(len(self.dimensions), len(configurations)).T

    def _dimension(self, name: str, anchors: Sequence[Configuration]) -> Dimension | None:
        """Returns the dimension of a knob; ``None`` if it has fewer than two values, or a candidate has none."""
        found = set(self._column(name, self.candidates))
        values = {v for v in found.union(self._column(name, anchors)) if v is not None}
        if None in found or len(values) < 2:
            return None
        numbers = sorted(v for v in values if isinstance(v, int | float))
        if len(numbers) == len(values):
            return Dimension(name, tuple(numbers), ordered=True)
        if UNSET in values and len(numbers) == len(values) - 1:
            return Dimension(name, (*numbers, UNSET), ordered=False)
        return Dimension(name, tuple(sorted(values, key=repr)), ordered=False)

    def _distance(self, indices: NDArray[np.int64], point: Point) -> NDArray[np.float64]:
        distance = np.zeros(len(indices))
        for axis, dimension in enumerate(self.dimensions):
            steps = np.abs(self._columns[axis][indices] - point[axis])
            distance += steps / dimension.span if dimension.ordered else steps > 0
        return distance

    @cached_property
    def _places(self) -> Mapping[Configuration, int]:
        return {c: place for place, c in enumerate(self.candidates)}

    @cached_property
    def _points(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self._placed(self.candidates))

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self._points.T)

    @cached_property
    def _set(self) -> frozenset[str]:
        """The knobs that any candidate sets."""
        return frozenset().union(*self.candidates)

    def _values(self, name: str) -> tuple[Sequence[KnobValue | None], NDArray[np.intp]]:
        """Returns a knob's distinct coordinates, and their index for each candidate."""
        if name not in self._distinct:
            counted = name == STEPS
            found = [coordinate(name, c) for c in self.candidates] if counted else column(name, self.candidates, None)
            places = {value: place for place, value in enumerate(dict.fromkeys(found))}
            self._distinct[name] = tuple(places), np.array([places[value] for value in found], dtype=np.intp)
        return self._distinct[name]

    def _covered(self, region: Region) -> Mask:
        """Returns ``dominance.covers`` for every candidate; caches it, because a region does not change."""
        if region not in self._masks:
            mask = np.ones(len(self.candidates), dtype=np.bool_)
            for name, sign in region.compared(self._set):
                values, index = self._values(name)
                allowed = np.array([region.allows(name, sign, value) for value in values], dtype=np.bool_)
                if not allowed.all():
                    mask &= allowed[index]
                if not mask.any():
                    break
            self._masks[region] = mask
        return self._masks[region]
