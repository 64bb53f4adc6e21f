"""Explains the number of legal combinations: the combinations that each rule forbids, with an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from search_spaces.domains import Situation
from search_spaces.enumeration import judged_parts, legal_parts
from search_spaces.legality import Case, Rule, Violation, violation
from search_spaces.product import size, spread
from search_spaces.verdicts import JudgedPart, Option

MAX_JUDGED = 20_000
"""Most combinations of one rule's knobs that are checked; a larger set is sampled evenly."""


@dataclass(frozen=True)
class Explanation:
    """Number of combinations of a space on a machine: all, legal, and forbidden by each rule."""

    combinations: int
    """Distinct combinations, before any rule; combinations that would run identically count once."""
    legal: int
    removed: Mapping[str, int]
    """Rule -> combinations it forbids, most first; several rules may forbid the same combination."""
    examples: Mapping[str, Violation]
    """Rule -> violation of the first combination that it forbids."""
    exact: bool = True
    """False if the numbers are estimates because the space is too large to enumerate."""

    def as_json(self) -> dict[str, object]:
        return {
            "combinations": self.combinations,
            "legal": self.legal,
            "exact": self.exact,
            "removed": [{**self.examples[name].as_json(), "combinations": n} for name, n in self.removed.items()],
        }


def explain(situation: Situation, seed: int = 0) -> Explanation:
    """Counts all combinations, the legal ones, and the combinations that each rule forbids."""
    parts = judged_parts(situation)
    legal = legal_parts(parts, seed)
    counts: dict[str, int] = {}
    examples: dict[str, Violation] = {}
    combinations, exact = 0, all(part.exact for part in legal)
    for judged in parts:
        total = size(judged.part.variables)
        combinations += total
        for rule, read in judged.reads.items():
            found = _broken(judged, rule, read)
            if found.first is None:
                continue
            counts[rule.name] = counts.get(rule.name, 0) + round(total * found.broken / found.judged)
            exact = exact and found.judged == size([judged.part.variables[i] for i in read])
            if rule.name not in examples:
                case = Case(found.first, situation.resources, situation.reference)
                examples[rule.name] = violation(case, rule, rule.judge(case) or "")
    removed = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return Explanation(combinations, sum(part.count for part in legal), removed, examples, exact)


class _Broken(NamedTuple):
    """Combinations of a rule's variables that the rule forbids."""

    broken: int
    judged: int
    first: Option | None
    """Knobs of the first forbidden combination."""


def _broken(judged: JudgedPart, rule: Rule, read: tuple[int, ...]) -> _Broken:
    variables = [judged.part.variables[i] for i in read]
    table = judged.table(rule)
    if table is not None:
        first = table.first_broken()
        row = None if first is None else [v[i] for v, i in zip(variables, first, strict=True)]
        return _Broken(table.broken, table.size, None if row is None else judged.merged(row))
    rows = list(spread(variables, MAX_JUDGED))
    broken = [row for row in rows if not judged.holds(rule, row)]
    return _Broken(len(broken), len(rows), judged.merged(broken[0]) if broken else None)
