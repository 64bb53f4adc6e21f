"""Configurations as rows of numbers, which models compute with: each read once, each different row worked on once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from autotune.proposals.forecasts import Task
from search_spaces.configuration import KnobValue, column
from search_spaces.knobs import KNOBS, defaults

Table = TypeVar("Table")
Values = NDArray[np.float64]

MANY = 256
"""A longer tuple is a search's candidates, which are asked about again and again: its table is kept as a whole."""
TABLES = 12
"""Tables that are kept, of those asked for last: a track's candidates, the living process's, neighbours of a few."""
LARGEST = 1 << 62
"""Of the numbers that stand for rows."""


class Reader(Generic[Table]):
    """Reads configurations of one task at a time, and keeps the rows as long as the task is the same. ``read`` makes a
    row of each configuration, which depends on no other; ``tabled`` the columns of a forecast from such rows."""

    def __init__(
        self, read: Callable[[Task, Sequence[Configuration]], Values], tabled: Callable[[Values], Table]
    ) -> None:
        self._read, self._tabled = read, tabled
        self._task: Task | None = None
        self._rows: Values = np.zeros(0)

    def rows(self, task: Task, configurations: Sequence[Configuration]) -> Values:
        """One row for each configuration, in their order."""
        self._turn_to(task)
        new = tuple(dict.fromkeys(c for c in configurations if c not in self._places))
        if new:
            self._rows = np.concatenate([self._rows, self._read(task, new)])
            self._places.update(zip(new, range(len(self._places), len(self._rows)), strict=True))
        return self._rows[[self._places[c] for c in configurations]]

    def table(self, task: Task, configurations: Sequence[Configuration]) -> Table:
        """The rows as columns, ready for a forecast."""
        if len(configurations) <= MANY:
            return self._tabled(self.rows(task, configurations))
        if not isinstance(configurations, tuple):
            return self._tabled(self._read(task, configurations))
        self._turn_to(task)
        held = self._tables.pop(id(configurations), None)
        if held is None:
            held = configurations, self._tabled(self._read(task, configurations))
        self._tables[id(configurations)] = held
        while len(self._tables) > TABLES:
            del self._tables[next(iter(self._tables))]
        return held[1]

    def _turn_to(self, task: Task) -> None:
        if task is self._task or task == self._task:
            return
        self._task = task
        self._places: dict[Configuration, int] = {}
        self._rows = self._read(task, ())
        self._tables: dict[int, tuple[Sequence[Configuration], Table]] = {}
        """By the id of the candidates, which are held, so that no others get it."""


class Columns:
    """Configurations as columns of numbers; a knob that one does not set has the framework's default."""

    def __init__(self, configurations: tuple[Configuration, ...], framework: str, device: str) -> None:
        self._all = configurations
        self._set = set().union(*configurations) if configurations else set()
        self._unset = defaults(framework, device)
        self._read: dict[str, tuple[list[KnobValue | None], NDArray[np.intp]]] = {}

    def full(self, value: float) -> Values:
        """``value`` for every configuration."""
        return np.full(len(self._all), float(value))

    def each(self, name: str, number: Callable[[KnobValue | None], float]) -> Values:
        """``number`` of a knob's values; its argument is ``None`` if the knob is unset and has no default."""
        return self._numbers(name, number, self._unset.get(name))

    def number(self, name: str, otherwise: float | Values | None = None) -> Values:
        """A knob's numbers (False 0, True 1); not set: the framework's default, else ``otherwise``, else 0."""
        unset = self._unset.get(name)
        fallback = otherwise if not isinstance(unset, int | float) else float(unset)
        found = self._numbers(name, lambda v: float(v) if isinstance(v, int | float) else np.nan, None)
        return np.where(np.isfinite(found), found, 0.0 if fallback is None else fallback)

    def given(self, name: str) -> Values:
        """1 where the knob is a number in the configuration itself."""
        return self._numbers(name, lambda v: isinstance(v, int | float), None)

    def level(self, name: str, table: Mapping[str, float], otherwise: float) -> Values:
        """A choice's number in ``table``; ``otherwise`` for a value that is not in it."""
        unset = self._unset.get(name, KNOBS[name].inactive)
        return self._numbers(name, lambda v: table.get(str(v), otherwise), unset)

    def has(self, name: str, *values: KnobValue) -> Values:
        """1 where a choice has one of ``values``."""
        return self.level(name, {str(value): 1.0 for value in values}, 0.0)

    def different(self, names: Sequence[str]) -> tuple[list[dict[str, KnobValue]], NDArray[np.intp]]:
        """Distinct settings of some knobs (one for no knob), and the index of each configuration's setting."""
        given = [name for name in names if name in self._set]
        if not given:
            return [{}], np.zeros(len(self._all), dtype=np.intp)
        rows = list(zip(*(self._index(name)[1].tolist() for name in given), strict=True))
        places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
        every = [[(name, self._index(name)[0][at]) for name, at in zip(given, row, strict=True)] for row in places]
        few = [{name: value for name, value in each if value is not None} for each in every]
        return few, np.fromiter(map(places.__getitem__, rows), np.intp, len(rows))

    def _numbers(self, name: str, number: Callable[[KnobValue | None], float], unset: KnobValue | None) -> Values:
        if name not in self._set:
            return self.full(number(unset))
        values, index = self._index(name)
        numbers = [float(number(unset if value is None else value)) for value in values]
        return np.array(numbers, dtype=np.float64).take(index)

    def _index(self, name: str) -> tuple[list[KnobValue | None], NDArray[np.intp]]:
        """A knob's different values, and which of them each configuration has."""
        if name not in self._read:
            said = column(name, self._all, None)
            places = {value: place for place, value in enumerate(dict.fromkeys(said))}
            self._read[name] = list(places), np.fromiter(map(places.__getitem__, said), np.intp, len(said))
        return self._read[name]


@lru_cache(maxsize=1)
def columns_of(configurations: tuple[Configuration, ...], framework: str, device: str) -> Columns:
    """``Columns`` of what is asked about now: times and memory read the same configurations one after the other."""
    return Columns(configurations, framework, device)


Codes = Mapping[int, tuple[NDArray[np.int64], int]]
"""Of each column that is not the same everywhere: its values by their order, and how many there are."""


def coded_columns(values: Values) -> Codes:
    """The columns in which rows differ."""
    found = {}
    varying = np.flatnonzero(np.any(values != values[:1], axis=0)) if len(values) else ()
    for place in varying:
        several, codes = np.unique(values[:, place], return_inverse=True)
        found[int(place)] = (codes.reshape(-1).astype(np.int64), len(several))
    return found


def distinct(codes: Codes, columns: Sequence[int], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First place of each different row by some columns, and of each of ``size`` rows which one it is."""
    some = [codes[place] for place in columns if place in codes]
    if size == 0 or not some:
        return np.zeros(min(size, 1), dtype=np.intp), np.zeros(size, dtype=np.intp)
    number, count = np.zeros(size, dtype=np.int64), 1
    for codes_of, several in some:  # a row as one number: sorting whole rows takes many times as long
        if count * several > LARGEST:
            number = np.unique(number, return_inverse=True)[1].reshape(-1).astype(np.int64)
            count = int(number.max()) + 1
        number = number * several + codes_of
        count *= several
    _, first, index = np.unique(number, return_index=True, return_inverse=True)
    return first.astype(np.intp), index.reshape(-1).astype(np.intp)
