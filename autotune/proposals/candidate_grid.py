"""Candidates of a track as points on a grid, so that thousands can be evaluated at once."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import ne

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from autotune.proposals.dominance import STEPS, Region, coordinate
from autotune.proposals.reading import Columns, Distinct, distinct_values
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, RESTART, defaults
from search_spaces.knobs.model import Restart
from search_spaces.native import UNSET

OF_ENGINE = frozenset({"rollout_engine", *(k.name for k in KNOBS.values() if "rollout_engine" in k.needs)})
"""Knobs that configure the rollout engine."""
Mask = NDArray[np.bool_]
Point = tuple[int, ...]


@dataclass(frozen=True)
class Dimension:
    """A searched knob as a grid dimension; a point holds one index into ``values`` per dimension."""

    name: str
    values: tuple[KnobValue, ...]
    ordered: bool
    """True if neighbouring values are alike (numbers); otherwise any two differ equally."""

    @cached_property
    def places(self) -> Mapping[KnobValue | None, int]:
        """Index of each value; ``None``, for a knob left to the framework, has the index of ``UNSET``."""
        return {None if value == UNSET else value: place for place, value in enumerate(self.values)}

    @property
    def span(self) -> int:
        """Scale of a dimension: a change from its first to its last index, or between two choices, has distance 1."""
        return len(self.values) - 1 if self.ordered else 1


class Coordinates(Columns):
    """Configurations as columns: a coordinate (``dominance.coordinate``) per knob and configuration."""

    def distinct(self, name: str) -> Distinct:
        """Returns the different coordinates along a knob, and each configuration's index among them."""
        return self._steps if name == STEPS else super().distinct(name)

    @cached_property
    def _steps(self) -> Distinct:
        return distinct_values([coordinate(STEPS, c) for c in self.configurations])


class CandidateGrid:
    """Candidates in a fixed order, without duplicates, and the dimensions (of the knobs ``searched``) they differ in.

    Configurations in ``anchors``, such as the baseline, also have a point. A knob in ``unset`` may be left to the
    framework, which counts as one of its values.
    """

    def __init__(
        self,
        candidates: Sequence[Configuration],
        searched: Iterable[str],
        anchors: Sequence[Configuration],
        unset: Collection[str] = (),
        framework: str = "trl",
    ) -> None:
        self.candidates = tuple(candidates)
        self._framework = framework
        self._masks: dict[Region, Mask] = {}
        self._read = self._coordinates(self.candidates)
        anchored = self._coordinates(anchors)
        dimensions = (self._dimension(n, anchored, n in unset) for n in sorted(set(searched)))
        self.dimensions = tuple(d for d in dimensions if d is not None)

    def __len__(self) -> int:
        return len(self.candidates)

    def beside(self, candidates: Iterable[Configuration]) -> CandidateGrid:
        """Returns a grid of other candidates on the same dimensions; omits candidates with values outside them."""
        found = tuple(candidates)
        placed = np.all(self._placed(self._coordinates(found)) >= 0, axis=1).tolist()
        other = CandidateGrid(tuple(itertools.compress(found, placed)), (), (), (), self._framework)
        other.dimensions = self.dimensions
        return other

    def points(self, configurations: Sequence[Configuration]) -> list[Point | None]:
        """Returns the point of each configuration, or ``None`` if no dimension contains one of its values."""
        found = self._placed(self._coordinates(configurations)).tolist()
        return [None if -1 in point else tuple(point) for point in found]

    def place(self, index: int) -> Point:
        """Returns the point of a candidate."""
        return tuple(self._points[index].tolist())

    def params(self, point: Point) -> dict[str, int]:
        """Returns ``point`` as a mapping: name of the dimension -> index."""
        return {d.name: place for d, place in zip(self.dimensions, point, strict=True)}

    def at(self, point: Point) -> int | None:
        """Returns the index of the candidate at ``point``, or ``None`` if there is none."""
        there = self.alike(point, ())
        return int(np.argmax(there)) if there.any() else None

    def without(self, taken: Iterable[Configuration], regions: Iterable[Region]) -> Mask:
        """Returns the mask of the candidates that are neither in ``taken`` nor in a region."""
        left = np.ones(len(self.candidates), dtype=np.bool_)
        left[[i for c in taken if (i := self._places.get(c)) is not None]] = False
        for region in regions:
            left &= ~self._covered(region)
        return left

    def nearest(self, point: Point, left: Mask) -> int:
        """Returns the index of the candidate in ``left`` closest to ``point``, the first among equals. A step in an
        ordered dimension counts as its share of the dimension, any other change as 1."""
        indices = np.flatnonzero(left)
        return int(indices[np.argmin(self._distance(indices, point))])

    def alike(self, point: Point, but: Collection[str]) -> Mask:
        """Returns the mask of the candidates that equal ``point`` in every dimension except those in ``but``."""
        axes = [axis for axis, d in enumerate(self.dimensions) if d.name not in but]
        same: Mask = np.all(self._points[:, axes] == np.array(point, dtype=np.int64)[axes], axis=1)
        return same

    def below(self, name: str, point: Point) -> Mask:
        """Returns the mask of the candidates below ``point`` in dimension ``name``; all False if it does not exist."""
        axes = [axis for axis, d in enumerate(self.dimensions) if d.name == name]
        less: Mask = np.any(self._points[:, axes] < np.array(point, dtype=np.int64)[axes], axis=1)
        return less

    def distance(self, index: int, point: Point) -> float:
        """Returns the distance of a candidate from ``point``, defined as in ``nearest``."""
        return float(self._distance(np.array([index]), point)[0])

    def restarts(self, last: Configuration | None) -> NDArray[np.int64]:
        """Returns the ``Restart`` that each candidate needs after ``last``; a new process if ``last`` is ``None``."""
        if last is None:
            return np.full(len(self), Restart.PROCESS, dtype=np.int64)
        found, unset = self._read.full(Restart.NONE), defaults(self._framework)
        for name in sorted(self._read.names.union(last)):
            level, own = RESTART.get(name, Restart.PROCESS), last.get(name, unset.get(name))
            if level is not Restart.NONE:
                found = np.maximum(found, level * self._read.each(name, partial(ne, own)))
        return found.astype(np.int64)

    def suspicion(self, failed: Iterable[Configuration], held: Sequence[Configuration]) -> NDArray[np.int64]:
        """Counts for each candidate the failures that share one of its values, or all its engine settings, and that no
        configuration in ``held`` disproves."""
        found = np.zeros(len(self.candidates), dtype=np.int64)
        engine = [axis for axis, d in enumerate(self.dimensions) if d.name in OF_ENGINE]
        groups = [[axis] for axis in range(len(self.dimensions))] + [engine] * bool(engine)
        failed = tuple(failed)
        proven = self._placed(self._coordinates(held if failed else ()))
        for point in self._placed(self._coordinates(failed)):
            for axes in groups:
                if not np.all(proven[:, axes] == point[axes], axis=1).any():
                    found += np.all(self._points[:, axes] == point[axes], axis=1)
        return found

    def _placed(self, read: Coordinates) -> NDArray[np.int64]:
        """Returns the index of each coordinate by configuration and dimension; -1 if the dimension lacks it."""
        found = np.empty((len(read.configurations), len(self.dimensions)), dtype=np.int64)
        for axis, dimension in enumerate(self.dimensions):
            values, index = read.distinct(dimension.name)
            found[:, axis] = np.array([dimension.places.get(v, -1) for v in values], dtype=np.int64)[index]
        return found

    def _coordinates(self, configurations: Iterable[Configuration]) -> Coordinates:
        return Coordinates(tuple(configurations), self._framework, "cuda")

    def _dimension(self, name: str, anchors: Coordinates, may_be_unset: bool) -> Dimension | None:
        """Returns the dimension of a knob; ``None`` if it has fewer than two values, or a candidate has none."""
        found, anchored = ({*read.distinct(name)[0]} for read in (self._read, anchors))
        values = {UNSET if v is None else v for v in found | anchored if v is not None or may_be_unset}
        if (None in found and not may_be_unset) or len(values) < 2:
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
            steps = np.abs(self._points[indices, axis] - point[axis])
            distance += steps / dimension.span if dimension.ordered else steps > 0
        return distance

    @cached_property
    def _places(self) -> Mapping[Configuration, int]:
        return {c: place for place, c in enumerate(self.candidates)}

    @cached_property
    def _points(self) -> NDArray[np.int64]:
        return self._placed(self._read)

    def _covered(self, region: Region) -> Mask:
        """Returns ``dominance.covers`` for every candidate; caches it, because a region does not change."""
        if region not in self._masks:
            mask = np.ones(len(self.candidates), dtype=np.bool_)
            for name, sign in region.compared(self._read.names):
                values, index = self._read.distinct(name)
                allowed = np.array([region.allows(name, sign, value) for value in values], dtype=np.bool_)
                if not allowed.all():
                    mask &= allowed[index]
                if not mask.any():
                    break
            self._masks[region] = mask
        return self._masks[region]
