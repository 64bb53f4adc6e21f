"""Searches the legal values closest to an illegal one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from search_spaces.batch import BATCH_KNOBS
from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, Kind, Knob
from search_spaces.knobs.model import show
from search_spaces.legality.case import COMPARED, Case, Rule, dependents

_REACH = 4096
"""Largest distance from a number at which neighbours are tried one by one."""
_NAMED = 3
"""Most follow-on changes named in one sentence."""
_SHARES = 100
"""Number of equal steps between 0 and 1 that are tried for a share."""


def nearest(case: Case, broken: Rule, rules: tuple[Rule, ...]) -> tuple[tuple[str, KnobValue], ...]:
    """Returns for each remedy of ``broken`` the closest value that mends it and breaks no rule that held before."""
    held = [r for r in rules if r is not broken and r.judge(case) is None]
    found = ((name, _closest(case, name, broken, held)) for name in broken.remedies)
    return tuple((name, value) for name, value in found if value is not None)


def in_words(case: Case, changes: tuple[tuple[str, KnobValue], ...]) -> str:
    """Formats ``changes``, such as ``micro_batch_size 8, or num_generations 3``, each with its follow-on changes."""
    return ", or ".join(_change(case, name, value) for name, value in changes)


def _change(case: Case, name: str, value: KnobValue) -> str:
    moved = case.moved(name, value)
    accumulation, values = moved.batch.accumulation, moved.values
    follows = accumulation != case.batch.accumulation and name != "gradient_accumulation_steps"
    rests = [other for other in dependents(name) if case.values.get(other) != values.get(other)]
    words = f" with accumulation {accumulation}" if follows else ""
    if rests:
        more = [f"{len(rests) - _NAMED} more"] if len(rests) > _NAMED else []
        words += f" without {' and '.join((*rests[:_NAMED], *more))}"
    return f"{name} {show(value)}{words}"


def _closest(case: Case, name: str, broken: Rule, held: list[Rule]) -> KnobValue | None:
    knob = KNOBS[name]
    if case.framework not in knob.frameworks:
        return None
    touched = frozenset({name, *dependents(name), *(BATCH_KNOBS if name in COMPARED else ())})
    held = [rule for rule in held if rule.reads & touched]  # the others are as before
    for value in _outwards(knob, case.get(name)):
        try:
            knob.parse(value)
        except SpaceError:
            continue
        moved = case.moved(name, value)
        if broken.judge(moved) is None and all(r.judge(moved) is None for r in held):
            return value
    return None


def _outwards(knob: Knob, value: KnobValue | None) -> Iterator[KnobValue]:
    """Yields other values of the knob, closest first; of two equally close numbers the smaller first."""
    if knob.kind is Kind.BOOL:
        yield from (v for v in (False, True) if v is not value)
    elif knob.kind is Kind.CHOICE:
        yield from (v for v in knob.choices if v != value)
    elif isinstance(value, int) and not isinstance(value, bool):
        # Numbers of thousands have neighbours at powers of two rather than one by one.
        close = itertools.chain.from_iterable((value - d, value + d) for d in range(1, _REACH + 1))
        yield from (n for n in close if n >= 0)
        yield from (2**e for e in range(13, 45) if 2**e > value + _REACH)
    elif isinstance(value, float):
        around = sorted((n / _SHARES for n in range(1, _SHARES)), key=lambda share: abs(share - value))
        yield from (share for share in around if share != value)
