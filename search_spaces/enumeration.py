"""Legal combinations, counted without listing them and listed without judging each one.

Within a part, rules tie variables together; variables no rule ties are independent. So the legal
combinations of a part are the product of those of its tied groups, which are small.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.domains import Part, Situation
from search_spaces.legality import RULES, Case, Reference, Rule
from search_spaces.product import at, size

Option = dict[str, KnobValue]

MAX_GROUP = 150_000
"""Combinations of one tied group that are all looked at; of more, that many drawn by chance."""


@dataclass(frozen=True)
class Legal:
    """The legal combinations of one part, as a product."""

    part: Part
    groups: tuple[tuple[Option, ...], ...]
    """Each group's legal options; empty groups mean nothing is legal."""
    exact: bool = True
    """False if a group was too large to be looked at whole."""

    @property
    def count(self) -> int:
        return math.prod(len(group) for group in self.groups)

    def at(self, index: int) -> Configuration:
        """The combination at ``index`` of ``range(count)``."""
        values = dict(self.part.context)
        for group in reversed(self.groups):
            index, place = divmod(index, len(group))
            values.update(group[place])
        return Configuration(values)


def legal_parts(situation: Situation, seed: int) -> tuple[Legal, ...]:
    """The parts that have legal combinations."""
    found = (_legal(part, situation.resources, situation.reference, seed) for part in situation.parts())
    return tuple(legal for legal in found if legal.count)


def take(parts: Sequence[Legal], limit: int, seed: int) -> tuple[Configuration, ...]:
    """All legal combinations in order or, of more than ``limit``, that many drawn by ``seed``, in order.

    Half of what is drawn is shared evenly over the parts: a rollout engine with many knobs of its own would else
    crowd out one that has few.
    """
    counts = [legal.count for legal in parts]
    shares = counts if sum(counts) <= limit else _shares(counts, limit)
    found: list[Configuration] = []
    for place, (legal, share) in enumerate(zip(parts, shares, strict=True)):
        indices = range(share) if share == legal.count else _draw(legal.count, share, f"{seed}/{place}")
        found.extend(legal.at(index) for index in indices)
    return tuple(found)


def _shares(counts: Sequence[int], limit: int) -> list[int]:
    """How many of each part; together ``limit``, none more than there are."""
    shares = [min(count, limit // (2 * len(counts))) for count in counts]
    left, rest = sum(counts) - sum(shares), limit - sum(shares)
    shares = [share + (count - share) * rest // left for share, count in zip(shares, counts, strict=True)]
    for place, count in enumerate(counts):  # what rounding left over
        shares[place] += min(count - shares[place], limit - sum(shares))
    return shares


def _draw(total: int, count: int, seed: int | str) -> list[int]:
    """``count`` different numbers below ``total``, ascending; the same for the same arguments."""
    chance = random.Random(seed)  # noqa: S311 (repeatable on purpose)
    if total < 2**62:
        return sorted(chance.sample(range(total), count))
    drawn: set[int] = set()
    while len(drawn) < count:
        drawn.add(chance.randrange(total))
    return sorted(drawn)


def applicable(part: Part) -> tuple[tuple[Rule, tuple[int, ...]], ...]:
    """Every rule with the variables of ``part`` it reads."""
    keys = [frozenset(options[0] or options[1]) for options in part.variables]  # one may leave its knob unset
    return tuple((rule, tuple(i for i, names in enumerate(keys) if names & rule.reads)) for rule in RULES)


def _legal(part: Part, resources: Resources, reference: Reference, seed: int) -> Legal:
    rules = applicable(part)

    def holds(rule: Rule, options: Sequence[Option]) -> bool:
        values = dict(part.context)
        for option in options:
            values.update(option)
        return rule.judge(Case(values, resources, reference)) is None

    if not all(holds(rule, ()) for rule, read in rules if not read):
        return Legal(part, ((),))
    options = [
        tuple(o for o in variable if all(holds(rule, (o,)) for rule, read in rules if read == (index,)))
        for index, variable in enumerate(part.variables)
    ]
    if not all(options):
        return Legal(part, ((),))
    tied = [(rule, read) for rule, read in rules if len(read) > 1]
    groups = _tied_groups(len(options), [read for _, read in tied])
    solved = [_solve([options[i] for i in group], group, tied, holds, seed) for group in groups]
    return Legal(part, tuple(found for found, _ in solved), all(exact for _, exact in solved))


def _tied_groups(count: int, ties: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Variables joined where a rule reads several of them."""
    label = list(range(count))
    for tie in ties:
        joined = {label[i] for i in tie}
        label = [min(joined) if x in joined else x for x in label]
    return [tuple(i for i in range(count) if label[i] == x) for x in sorted(set(label))]


def _solve(
    options: list[tuple[Option, ...]],
    group: tuple[int, ...],
    tied: list[tuple[Rule, tuple[int, ...]]],
    holds: Callable[[Rule, Sequence[Option]], bool],
    seed: int,
) -> tuple[tuple[Option, ...], bool]:
    """Legal options of a group of variables, merged; and whether all were looked at."""
    places = {variable: place for place, variable in enumerate(group)}
    # A rule is asked as soon as the last variable it reads is chosen.
    due: list[list[Rule]] = [[] for _ in group]
    for rule, read in tied:
        if read[0] in places:
            due[max(places[i] for i in read)].append(rule)
    total = size(options)
    if total > MAX_GROUP:
        every = (at(options, index) for index in _draw(total, MAX_GROUP, seed))
        chosen = (row for row in every if all(holds(rule, row) for rules in due for rule in rules))
        return tuple(_merged(row) for row in chosen), False

    def extend(row: tuple[Option, ...]) -> Iterator[Option]:
        if len(row) == len(options):
            yield _merged(row)
            return
        for option in options[len(row)]:
            longer = (*row, option)
            if all(holds(rule, longer) for rule in due[len(row)]):
                yield from extend(longer)

    return tuple(extend(())), True


def _merged(row: Sequence[Option]) -> Option:
    return {name: value for option in row for name, value in option.items()}
