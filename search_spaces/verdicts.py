"""Boolean masks of the combinations that a rule allows; each combination of the values it reads is checked once.

A rule reads few knobs, and the options of a part differ in them far less often than in all knobs. So a rule is checked
on the distinct values of the knobs it reads, and its verdict is looked up for everything else.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces.configuration import KnobValue, Resources
from search_spaces.domains import SpacePart
from search_spaces.legality import RULES
from search_spaces.legality.case import Case, Reference, Rule

Option = dict[str, KnobValue]
Codes = NDArray[np.intp]

MAX_JUDGED = 200_000
"""Most combinations of the values that one rule reads for which a table is made."""


@dataclass(frozen=True)
class VerdictTable:
    """Verdicts of one rule on every combination of the variables it reads."""

    holds: NDArray[np.bool_]
    """One axis for each variable, over the distinct values of its options."""
    codes: tuple[Codes, ...]
    """For each variable: index of each option on the variable's axis."""

    def of(self, options: Sequence[Codes]) -> NDArray[np.bool_]:
        """Returns the verdict on each combination. ``options``: each variable's option index by combination."""
        found: NDArray[np.bool_] = self.holds[
            tuple(code[column] for code, column in zip(self.codes, options, strict=True))
        ]
        return found

    @property
    def size(self) -> int:
        """Combinations of options."""
        return math.prod(len(code) for code in self.codes)

    @property
    def broken(self) -> int:
        """Combinations of options that the rule forbids."""
        weights: NDArray[np.int64] = np.ones((), dtype=np.int64)
        for axis, code in enumerate(self.codes):
            counts = np.bincount(code, minlength=self.holds.shape[axis])
            weights = np.multiply.outer(weights, counts)
        return int(weights[~self.holds].sum())

    def first_broken(self) -> tuple[int, ...] | None:
        """Returns the first forbidden combination, the last variable changing fastest; ``None`` if all are allowed."""
        if self.holds.all():
            return None
        whole = self.holds[np.ix_(*self.codes)] if self.codes else self.holds
        place = int(np.argmin(whole))
        return tuple(int(i) for i in np.unravel_index(place, whole.shape))


class Verdicts:
    """Verdicts of all rules on one machine, against one reference."""

    def __init__(self, resources: Resources, reference: Reference) -> None:
        self.resources = resources
        self.reference = reference
        self.tables: dict[Hashable, NDArray[np.bool_]] = {}
        """Inputs -> verdicts; parts with equal inputs share a table."""
        self._known: dict[Rule, dict[tuple[KnobValue | None, ...], bool]] = {}

    def holds(self, rule: Rule, values: Mapping[str, KnobValue]) -> bool:
        """Tells whether ``rule`` allows ``values``."""
        read = tuple(map(values.get, rule.reads))
        known = self._known.setdefault(rule, {})
        found = known.get(read)
        if found is None:
            found = known[read] = rule.judge(Case(values, self.resources, self.reference)) is None
        return found


class JudgedPart:
    """A part of a space, with the verdicts of each rule on its combinations.

    A column has one variable's option index in each of a list of combinations.
    """

    def __init__(self, part: SpacePart, verdicts: Verdicts) -> None:
        self.part = part
        self._verdicts = verdicts
        self._knobs = [frozenset(options[0] or options[1]) for options in part.variables]  # one may set nothing
        self._projected: dict[tuple[int, frozenset[str]], tuple[list[Option], Codes]] = {}
        self._tables: dict[Rule, VerdictTable | None] = {}
        self.reads = {
            rule: tuple(i for i, names in enumerate(self._knobs) if not names.isdisjoint(rule.reads)) for rule in RULES
        }
        """Rule -> indices of the variables that it reads."""

    def holds(self, rule: Rule, options: Iterable[Option] = ()) -> bool:
        """Tells whether ``rule`` allows the part's context together with ``options``."""
        return self._verdicts.holds(rule, self.merged(options))

    def merged(self, options: Iterable[Option]) -> Option:
        """Returns the part's context merged with ``options``."""
        return _merged(self.part.context, options)

    def allow(self, rule: Rule, columns: Mapping[int, Codes]) -> NDArray[np.bool_]:
        """Returns the verdict of ``rule`` on each combination; ``columns``: variable index -> column."""
        read, table = self.reads[rule], self.table(rule)
        if table is not None:
            return table.of([columns[i] for i in read])
        rows = zip(*(columns[i].tolist() for i in read), strict=True)
        chosen = ([self.part.variables[i][number] for i, number in zip(read, row, strict=True)] for row in rows)
        return np.array([self.holds(rule, options) for options in chosen], dtype=np.bool_)

    def table(self, rule: Rule) -> VerdictTable | None:
        """Returns the verdicts of ``rule``; ``None`` if it has more than ``MAX_JUDGED`` combinations."""
        if rule not in self._tables:
            self._tables[rule] = self._table(rule)
        return self._tables[rule]

    def _table(self, rule: Rule) -> VerdictTable | None:
        projected = [self._projection(i, self._knobs[i] & rule.reads) for i in self.reads[rule]]
        shape = tuple(len(distinct) for distinct, _ in projected)
        if math.prod(shape) > MAX_JUDGED:
            return None
        own = {name: value for name, value in self.part.context.items() if name in rule.reads}
        every = [distinct for distinct, _ in projected]
        key = rule, tuple(own.items()), tuple([tuple([tuple(o.items()) for o in distinct]) for distinct in every])
        if key not in self._verdicts.tables:
            holds = [self._verdicts.holds(rule, _merged(own, row)) for row in itertools.product(*every)]
            self._verdicts.tables[key] = np.array(holds, dtype=np.bool_).reshape(shape)
        return VerdictTable(self._verdicts.tables[key], tuple(codes for _, codes in projected))

    def _projection(self, variable: int, names: frozenset[str]) -> tuple[list[Option], Codes]:
        """Returns the distinct values that a variable's options give ``names``, and their index for each option."""
        if (variable, names) not in self._projected:
            options, ordered = self.part.variables[variable], sorted(names)
            places: dict[tuple[KnobValue | None, ...], int] = {}
            codes = [places.setdefault(tuple(map(option.get, ordered)), len(places)) for option in options]
            distinct = [
                {name: value for name, value in zip(ordered, values, strict=True) if value is not None}
                for values in places
            ]
            self._projected[variable, names] = distinct, np.array(codes, dtype=np.intp)
        return self._projected[variable, names]


def _merged(context: Mapping[str, KnobValue], options: Iterable[Option]) -> Option:
    """Returns ``context`` merged with ``options``."""
    values = dict(context)
    for option in options:
        values.update(option)
    return values


@functools.lru_cache(maxsize=8)
def verdicts_of(resources: Resources, reference: Reference) -> Verdicts:
    """Returns the verdicts for one machine; cached for the last few machines, because a search asks often."""
    return Verdicts(resources, reference)
