"""Reads the knobs of configurations as columns of numbers for models; converts each distinct value once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from search_spaces.configuration import KnobValue, column
from search_spaces.knobs import KNOBS, defaults

Values = NDArray[np.float64]
Distinct = tuple[list[KnobValue | None], NDArray[np.intp]]


class Columns:
    """Configurations as columns of numbers; an unset knob has the framework's default."""

    def __init__(self, configurations: tuple[Configuration, ...], framework: str, device: str) -> None:
        self.configurations = configurations
        self.names: frozenset[str] = frozenset().union(*configurations)
        self._unset = defaults(framework, device)
        self._read = _columns_read(configurations)

    def full(self, value: float) -> Values:
        """Returns ``value`` for every configuration."""
        return np.full(len(self.configurations), float(value))

    def each(self, name: str, number: Callable[[KnobValue | None], float]) -> Values:
        """Applies ``number`` to a knob's values; its argument is ``None`` for an unset knob without a default."""
        return self._numbers(name, number, self._unset.get(name))

    def number(self, name: str, otherwise: float | Values | None = None) -> Values:
        """Returns a knob's numbers (False 0, True 1); if unset the framework's default, else ``otherwise``, else 0."""
        unset = self._unset.get(name)
        fallback = otherwise if not isinstance(unset, int | float) else float(unset)
        found = self._numbers(name, lambda v: float(v) if isinstance(v, int | float) else np.nan, None)
        return np.where(np.isfinite(found), found, 0.0 if fallback is None else fallback)

    def given(self, name: str) -> Values:
        """Returns 1 where the configuration itself sets the knob to a number."""
        return self._numbers(name, lambda v: isinstance(v, int | float), None)

    def level(self, name: str, table: Mapping[str, float], otherwise: float) -> Values:
        """Returns a choice's number in ``table``; ``otherwise`` for a value outside it."""
        unset = self._unset.get(name, KNOBS[name].inactive)
        return self._numbers(name, lambda v: table.get(str(v), otherwise), unset)

    def has(self, name: str, *values: KnobValue) -> Values:
        """Returns 1 where a choice has one of ``values``."""
        return self.level(name, {str(value): 1.0 for value in values}, 0.0)

    def different(self, names: Sequence[str]) -> tuple[list[dict[str, KnobValue]], NDArray[np.intp]]:
        """Returns the distinct settings of ``names`` (one if empty), and each configuration's index among them."""
        given = [name for name in names if name in self.names]
        if not given:
            return [{}], np.zeros(len(self.configurations), dtype=np.intp)
        rows = list(zip(*(self.distinct(name)[1].tolist() for name in given), strict=True))
        places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
        every = [[(name, self.distinct(name)[0][at]) for name, at in zip(given, row, strict=True)] for row in places]
        few = [{name: value for name, value in each if value is not None} for each in every]
        return few, np.fromiter(map(places.__getitem__, rows), np.intp, len(rows))

    def _numbers(self, name: str, number: Callable[[KnobValue | None], float], unset: KnobValue | None) -> Values:
        if name not in self.names:
            return self.full(number(unset))
        values, index = self.distinct(name)
        numbers = [float(number(unset if value is None else value)) for value in values]
        return np.array(numbers, dtype=np.float64).take(index)

    def distinct(self, name: str) -> Distinct:
        """Returns a knob's different values, and each configuration's index among them."""
        if name not in self._read:
            self._read[name] = distinct_values(column(name, self.configurations, None))
        return self._read[name]


def distinct_values(values: Sequence[KnobValue | None]) -> Distinct:
    """Returns the different values, and each value's index among them."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return list(places), np.fromiter(map(places.__getitem__, values), np.intp, len(values))


@lru_cache(maxsize=64)
def _columns_read(configurations: tuple[Configuration, ...]) -> dict[str, Distinct]:  # noqa: ARG001 - the key
    """Returns the columns read so far, for all readers of the same configurations."""
    return {}


@lru_cache(maxsize=1)
def columns_of(configurations: tuple[Configuration, ...], framework: str, device: str) -> Columns:
    """Returns the columns; caches the last ones, because times and memory read the same configurations in turn."""
    return Columns(configurations, framework, device)
