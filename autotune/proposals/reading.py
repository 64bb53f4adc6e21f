"""Configurations as rows of numbers, which models compute with: each read once, each different row worked on once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from autotune.proposals.forecasts import Task

Table = TypeVar("Table")
Values = NDArray[np.float64]

MANY = 256
"""A longer tuple is a search's candidates, which are asked about again and again: its table is kept as a whole."""
LARGEST = 1 << 62
"""Of the numbers that stand for rows."""


class Reader(Generic[Table]):
    """Reads configurations of one task at a time, and keeps what it read for as long as the task is the same.

    Args:
        read: a row of each configuration, which depends on no other.
        tabled: what a forecast needs of such rows.
    """

    def __init__(
        self, read: Callable[[Task, Sequence[Configuration]], Values], tabled: Callable[[Values], Table]
    ) -> None:
        self._read, self._tabled = read, tabled
        self._task: Task | None = None
        self._rows: Values = np.zeros(0)

    def rows(self, task: Task, configurations: Sequence[Configuration]) -> Values:
        """Of each configuration, in their order."""
        self._turn_to(task)
        new = tuple(dict.fromkeys(c for c in configurations if c not in self._places))
        if new:
            self._rows = np.concatenate([self._rows, self._read(task, new)])
            self._places.update(zip(new, range(len(self._places), len(self._rows)), strict=True))
        return self._rows[[self._places[c] for c in configurations]]

    def table(self, task: Task, configurations: Sequence[Configuration]) -> Table:
        """The same, ready for a forecast."""
        if len(configurations) <= MANY:
            return self._tabled(self.rows(task, configurations))
        if not isinstance(configurations, tuple):
            return self._tabled(self._read(task, configurations))
        self._turn_to(task)
        if id(configurations) not in self._tables:
            table = self._tabled(self._read(task, configurations))
            self._tables[id(configurations)] = configurations, table
        return self._tables[id(configurations)][1]

    def _turn_to(self, task: Task) -> None:
        if task is self._task or task == self._task:
            return
        self._task = task
        self._places: dict[Configuration, int] = {}
        self._rows = self._read(task, ())
        self._tables: dict[int, tuple[Sequence[Configuration], Table]] = {}
        """By the id of the candidates, which are held, so that no others get it."""


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
    for column, several in some:  # a row as one number: sorting whole rows takes many times as long
        if count * several > LARGEST:
            number = np.unique(number, return_inverse=True)[1].reshape(-1).astype(np.int64)
            count = int(number.max()) + 1
        number = number * several + column
        count *= several
    _, first, index = np.unique(number, return_index=True, return_inverse=True)
    return first.astype(np.intp), index.reshape(-1).astype(np.intp)
