"""Why so many combinations are legal: what each rule removes, with an example."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from search_spaces.configuration import KnobValue
from search_spaces.domains import Part, Situation
from search_spaces.enumeration import applicable, legal_parts
from search_spaces.legality import Case, Rule, Violation, violation
from search_spaces.product import spread

MAX_JUDGED = 20_000
"""Combinations of the knobs one rule reads that are judged; of more, that many all over stand for them."""


@dataclass(frozen=True)
class Explanation:
    """What a space holds on a machine."""

    combinations: int
    """Different combinations, before any rule; two that would run the same count once."""
    legal: int
    removed: Mapping[str, int]
    """Rule -> combinations it forbids, most first; several rules may forbid the same one."""
    examples: Mapping[str, Violation]
    """Rule -> the first combination's sentence."""
    exact: bool = True
    """False if the numbers are estimates because the space is too large to be looked at whole."""

    def as_json(self) -> dict[str, object]:
        return {
            "combinations": self.combinations,
            "legal": self.legal,
            "exact": self.exact,
            "removed": [{**self.examples[name].as_json(), "combinations": n} for name, n in self.removed.items()],
        }


def explain(situation: Situation, seed: int = 0) -> Explanation:
    """Count the combinations, the legal ones, and those each rule forbids."""
    legal = legal_parts(situation, seed)
    counts: dict[str, int] = {}
    examples: dict[str, Violation] = {}
    combinations, exact = 0, all(part.exact for part in legal)
    for part in situation.parts():
        size = math.prod(len(options) for options in part.variables)
        combinations += size
        for rule, read in applicable(part):
            broken, judged, first = _broken(part, rule, read, situation)
            if first is None:
                continue
            whole = math.prod(len(part.variables[i]) for i in read)
            counts[rule.name] = counts.get(rule.name, 0) + round(size * broken / judged)
            exact = exact and judged == whole
            examples.setdefault(rule.name, violation(*first))
    removed = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return Explanation(combinations, sum(part.count for part in legal), removed, examples, exact)


def _broken(
    part: Part, rule: Rule, read: tuple[int, ...], situation: Situation
) -> tuple[int, int, tuple[Case, Rule, str] | None]:
    """(combinations broken, combinations judged, the first broken one)."""
    broken = judged = 0
    first: tuple[Case, Rule, str] | None = None
    for values in _choices(part, read):
        case = Case(values, situation.resources, situation.reference)
        sentence = rule.judge(case)
        judged += 1
        if sentence is not None:
            broken += 1
            first = first or (case, rule, sentence)
    return broken, judged, first


def _choices(part: Part, read: tuple[int, ...]) -> Iterator[dict[str, KnobValue]]:
    for row in spread([part.variables[i] for i in read], MAX_JUDGED):
        values = dict(part.context)
        for option in row:
            values.update(option)
        yield values
