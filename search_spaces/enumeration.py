"""Counts legal combinations without listing them, and lists them without checking each.

Within a part, rules connect variables; variables without a common rule are independent. So the legal combinations of a
part are the product of those of its connected groups, which are small.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.configuration import Configuration
from search_spaces.domains import Situation, SpacePart
from search_spaces.legality import Rule
from search_spaces.product import at, size
from search_spaces.verdicts import Codes, JudgedPart, Option, verdicts_of

MAX_GROUP = 1_000_000
"""Most combinations of one group that are all checked."""
MAX_DRAWN = 150_000
"""Combinations drawn at random from a larger group."""


@dataclass(frozen=True)
class LegalGroup:
    """The legal combinations of the variables that common rules connect."""

    variables: tuple[tuple[Option, ...], ...]
    rows: NDArray[np.intp]
    """Shape (combinations, variables): index of each variable's option."""

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, place: int) -> Option:
        """Returns the knobs that the combination at index ``place`` sets; cached, for all combinations of the part."""
        if place not in self._options:
            chosen = zip(self.variables, self.rows[place].tolist(), strict=True)
            self._options[place] = {name: v for options, index in chosen for name, v in options[index].items()}
        return self._options[place]

    @cached_property
    def _options(self) -> dict[int, Option]:
        return {}


@dataclass(frozen=True)
class Legal:
    """Legal combinations of one part, as a product of independent groups."""

    part: SpacePart
    groups: tuple[LegalGroup, ...]
    """One empty group means that the part has no legal combination."""
    exact: bool = True
    """False if a group was too large to enumerate."""

    @property
    def count(self) -> int:
        return math.prod(len(group) for group in self.groups)

    def at(self, indices: Sequence[int]) -> Iterator[Configuration]:
        """Yields the configurations at ``indices``, each below ``count``."""
        left: NDArray[Any] = np.array(indices, dtype=np.int64 if self.count < 2**63 else object)
        columns: list[list[Option]] = []
        for group in reversed(self.groups):
            left, places = np.divmod(left, len(group))
            columns.append([group.at(place) for place in places.tolist()])
        context = dict(sorted(self.part.context.items()))  # so that little is left to sort of each
        for options in zip(*columns, strict=True) if columns else itertools.repeat((), len(indices)):
            values = dict(context)
            for option in options:
                values.update(option)
            yield Configuration(values)


def judged_parts(situation: Situation) -> tuple[JudgedPart, ...]:
    """Returns the parts of a space, each with the verdicts of the rules."""
    verdicts = verdicts_of(situation.resources, situation.reference)
    return tuple(JudgedPart(part, verdicts) for part in situation.parts())


def legal_parts(parts: Iterable[JudgedPart], seed: int) -> tuple[Legal, ...]:
    """Returns the parts that have legal combinations."""
    return tuple(legal for part in parts if (legal := _legal(part, seed)).count)


def take(parts: Sequence[Legal], limit: int, seed: int) -> tuple[Configuration, ...]:
    """Returns all legal combinations in order, or a sample of ``limit`` by ``seed`` if there are more, in order.

    Half of the sample is divided evenly among the parts, so that a rollout engine with many knobs does not crowd out
    an engine with few.
    """
    counts = [legal.count for legal in parts]
    shares = counts if sum(counts) <= limit else _shares(counts, limit)
    found: list[Configuration] = []
    for place, (legal, share) in enumerate(zip(parts, shares, strict=True)):
        indices = range(share) if share == legal.count else _draw(legal.count, share, f"{seed}/{place}")
        found.extend(legal.at(indices))
    return tuple(found)


def _shares(counts: Sequence[int], limit: int) -> list[int]:
    """Returns the number of combinations to take from each part; the sum is ``limit``, none exceeds its part."""
    shares = [min(count, limit // (2 * len(counts))) for count in counts]
    left, rest = sum(counts) - sum(shares), limit - sum(shares)
    shares = [share + (count - share) * rest // left for share, count in zip(shares, counts, strict=True)]
    for place, count in enumerate(counts):  # what rounding left over
        shares[place] += min(count - shares[place], limit - sum(shares))
    return shares


def _draw(total: int, count: int, seed: int | str) -> list[int]:
    """Draws ``count`` distinct integers below ``total``, ascending; deterministic."""
    chance = random.Random(seed)  # noqa: S311 (repeatable on purpose)
    if total < 2**62:
        return sorted(chance.sample(range(total), count))
    drawn: set[int] = set()
    while len(drawn) < count:
        drawn.add(chance.randrange(total))
    return sorted(drawn)


def _legal(judged: JudgedPart, seed: int) -> Legal:
    part = judged.part
    if not all(judged.holds(rule) for rule, read in judged.reads.items() if not read):
        return Legal(part, (LegalGroup((), np.empty((0, 0), dtype=np.intp)),))
    options = [np.arange(len(variable)) for variable in part.variables]
    for rule, read in judged.reads.items():
        if len(read) == 1:
            (i,) = read
            options[i] = options[i][judged.allow(rule, {i: options[i]})]
    tied = [(rule, read) for rule, read in judged.reads.items() if len(read) > 1]
    groups = _tied_groups(len(options), [read for _, read in tied])
    solved = [_solve(judged, {i: options[i] for i in group}, tied, seed) for group in groups]
    return Legal(part, tuple(found for found, _ in solved), all(exact for _, exact in solved))


def _tied_groups(count: int, ties: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Returns the connected groups of ``count`` variables; a tie lists the variables that one rule reads together."""
    label = list(range(count))
    for tie in ties:
        joined = {label[i] for i in tie}
        label = [min(joined) if x in joined else x for x in label]
    return [tuple(i for i in range(count) if label[i] == x) for x in sorted(set(label))]


def _solve(
    judged: JudgedPart, options: Mapping[int, Codes], tied: Sequence[tuple[Rule, tuple[int, ...]]], seed: int
) -> tuple[LegalGroup, bool]:
    """Returns the legal combinations of tied variables, and whether all combinations were checked.

    Args:
        options: variable -> indices of the options to combine.
        seed: seed of the sample of a larger set.
    """
    numbered: list[list[int]] = [numbers.tolist() for numbers in options.values()]
    total = size(numbered)
    exact = total <= MAX_GROUP
    columns: dict[int, Codes] = {}
    if not exact:
        rows = [at(numbered, index) for index in _draw(total, MAX_DRAWN, seed)]
        columns = dict(zip(options, np.array(rows, dtype=np.intp).T, strict=True))
    count = 1 if exact else MAX_DRAWN
    for variable, numbers in options.items():
        if exact:
            columns = {i: np.repeat(column, len(numbers)) for i, column in columns.items()}
            columns[variable] = np.tile(numbers, count)
            count *= len(numbers)
        for rule, read in tied:
            if variable == max(read):  # a rule is asked as soon as the last variable it reads is chosen
                kept = judged.allow(rule, columns)
                columns = {i: column[kept] for i, column in columns.items()}
                count = int(kept.sum())
    variables = tuple(judged.part.variables[i] for i in options)
    return LegalGroup(variables, np.column_stack([columns[i] for i in options])), exact
