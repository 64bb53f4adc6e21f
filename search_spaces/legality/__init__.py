"""Legality: named, pure rules that are checked before a launch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from search_spaces.batch import BATCH_KNOBS, batch_of
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, Kind, Knob
from search_spaces.knobs.model import show
from search_spaces.legality import (
    batch_rules,
    gpu_rules,
    knob_rules,
    megatron_rules,
    numeric_rules,
    openr1_rules,
    rollout_rules,
    swift_rules,
    verl_rules,
)
from search_spaces.legality.case import COMPARED, Case, Reference, Rule, Violation, dependents

RULES: tuple[Rule, ...] = (
    *knob_rules.RULES,
    *gpu_rules.RULES,
    *batch_rules.RULES,
    *rollout_rules.RULES,
    *numeric_rules.RULES,
    *openr1_rules.RULES,
    *swift_rules.RULES,
    *verl_rules.RULES,
    *megatron_rules.RULES,
)


def check(
    configuration: Mapping[str, KnobValue], resources: Resources, baseline: Configuration | None = None
) -> tuple[Violation, ...]:
    """Returns every rule that ``configuration`` breaks on ``resources``, in the order of the rules; empty if legal.

    Args:
        configuration: knobs that are not set have the framework's defaults.
        resources: facts that are not known (``None``, no software) rule nothing out.
        baseline: fixes rows per update, group size and reuse; by default ``resources`` fixes them.
    """
    return _check(configuration, resources, Reference.of(baseline, resources))


def check_baseline(baseline: Mapping[str, KnobValue], resources: Resources) -> tuple[Violation, ...]:
    """Returns every rule that ``baseline`` breaks by itself; any number of updates per generation is allowed."""
    reference = Reference.own(baseline, resources)
    case = Case(baseline, resources, replace(reference, rows=None))
    return tuple(
        each if each.nearest else _of_other_rows(each, case) for each in _check(baseline, resources, reference)
    )


def _of_other_rows(violated: Violation, case: Case) -> Violation:
    """Returns ``violated`` with the nearest legal values at other rows per update, and these rows in its sentence."""
    rule = next(
        (each for each in batch_rules.RULES if each.name == violated.rule and each.judge(case) is not None), None
    )
    more = replace(rule, remedies=(*rule.remedies, "gradient_accumulation_steps")) if rule is not None else None
    changes = nearest(case, more, RULES) if more is not None else ()
    ways = [f"{in_words(case, (one,))} ({case.with_knob(*one).batch.rows} rows per update)" for one in changes]
    words = ", or ".join(ways).replace("gradient_accumulation_steps", "accumulation")
    ending = f"; nearest with other rows: {words}." if ways else "."
    return Violation(violated.rule, violated.sentence.removesuffix(".") + ending, changes)


def _check(configuration: Mapping[str, KnobValue], resources: Resources, reference: Reference) -> tuple[Violation, ...]:
    broken = [(name, domain) for name, v in configuration.items() if (domain := knob_rules.domain_problem(name, v))]
    if broken:
        return tuple(Violation("unknown_knob" if n not in KNOBS else "knob_domain", f"{text}.") for n, text in broken)
    case = Case(configuration, resources, reference)
    return tuple(violation(case, rule, sentence) for rule in RULES if (sentence := rule.judge(case)) is not None)


def is_legal(
    configuration: Mapping[str, KnobValue], resources: Resources, baseline: Configuration | None = None
) -> bool:
    """Tells whether ``configuration`` satisfies all rules; faster than ``check``, which searches nearest values."""
    if any(knob_rules.domain_problem(name, value) for name, value in configuration.items()):
        return False
    case = Case(configuration, resources, Reference.of(baseline, resources))
    return all(rule.judge(case) is None for rule in RULES)


def violation(case: Case, rule: Rule, sentence: str) -> Violation:
    """Builds the violation of ``rule`` with its ``sentence`` and the nearest legal values."""
    changes = nearest(case, rule, RULES)
    ending = f"; nearest legal: {in_words(case, changes)}" if changes else ""
    return Violation(rule.name, f"{sentence}{ending}.", changes)


def notes(
    configuration: Mapping[str, KnobValue], resources: Resources, baseline: Configuration | None = None
) -> tuple[str, ...]:
    """Returns a note if a legal configuration's rows per update differ from the baseline's; else nothing."""
    target = Reference.of(baseline, resources).rows
    batch = batch_of(configuration, resources)
    if target is None or batch.rows == target:
        return ()
    ranks = Case(configuration, resources).ranks_in_words(batch.ranks)
    share = 100 * (batch.rows / target - 1)
    return (
        f"{batch.rows} rows per update instead of {target} ({share:+.1f} %), because {ranks} cannot share {target}.",
    )


_REACH = 4096
"""Largest distance from an integer at which all neighbours are tried as nearest values."""
_NAMED = 3
"""Most follow-on changes named in one sentence."""
_SHARES = 100
"""Number of equal steps between 0 and 1 that are tried for a share."""


def nearest(case: Case, broken: Rule, rules: tuple[Rule, ...]) -> tuple[tuple[str, KnobValue], ...]:
    """Returns, for each remedy knob, its closest value that satisfies ``broken`` and breaks no other rule anew."""
    held = [r for r in rules if r is not broken and r.judge(case) is None]
    found = ((name, _closest(case, name, broken, held)) for name in broken.remedies)
    return tuple((name, value) for name, value in found if value is not None)


def in_words(case: Case, changes: tuple[tuple[str, KnobValue], ...]) -> str:
    """Formats ``changes``, such as ``micro_batch_size 8, or num_generations 3``, each with its follow-on changes."""
    return ", or ".join(_change(case, name, value) for name, value in changes)


def _change(case: Case, name: str, value: KnobValue) -> str:
    moved = case.with_knob(name, value)
    accumulation, values = moved.batch.accumulation, moved.values
    follows = accumulation != case.batch.accumulation and name != "gradient_accumulation_steps"
    rests = [other for other in dependents(name) if case.values.get(other) != values.get(other)]
    words = f" with accumulation {accumulation}" if follows else ""
    if rests:
        more = [f"{len(rests) - _NAMED} more"] if len(rests) > _NAMED else []
        words += f" without {' and '.join((*rests[:_NAMED], *more))}"
    return f"{name} {show(value)}{words}"


def _closest(case: Case, name: str, broken: Rule, rules: list[Rule]) -> KnobValue | None:
    knob = KNOBS[name]
    if case.framework not in knob.frameworks:
        return None
    touched = frozenset({name, *dependents(name), *(BATCH_KNOBS if name in COMPARED else ())})
    rules = [rule for rule in rules if rule.reads & touched]  # the others are as before
    for value in _outwards(knob, case.get(name)):
        try:
            knob.parse(value)
        except SpaceError:
            continue
        moved = case.with_knob(name, value)
        if broken.judge(moved) is None and all(r.judge(moved) is None for r in rules):
            return value
    return None


def _outwards(knob: Knob, value: KnobValue | None) -> Iterator[KnobValue]:
    """Yields other values of the knob, closest first; among two equally close numbers the smaller first."""
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
