"""Legality: named, pure rules that hold before anything is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.batch import batch_of
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.knobs import KNOBS
from search_spaces.legality import (
    batch_rules,
    gpu_rules,
    knob_rules,
    megatron_rules,
    numeric_rules,
    openr1_rules,
    rollout_rules,
    swift_megatron_rules,
    swift_rules,
    verl_rules,
)
from search_spaces.legality.case import Case, Reference, Rule, Violation
from search_spaces.legality.nearest import in_words, nearest

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
    *swift_megatron_rules.RULES,
)


def check(
    configuration: Mapping[str, KnobValue], resources: Resources, baseline: Configuration | None = None
) -> tuple[Violation, ...]:
    """Returns every rule that ``configuration`` breaks on ``resources``, in the order of the rules; empty if legal.

    Args:
        configuration: knobs that are not set have the framework's defaults.
        resources: facts that are not known (``None``, no software) rule nothing out.
        baseline: the reference of rows, prompts and reuse; by default ``resources`` gives them.
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
    """Returns ``violated`` with nearest values that change the rows per update, if no values at fixed rows mend it."""
    rule = next(
        (each for each in batch_rules.RULES if each.name == violated.rule and each.judge(case) is not None), None
    )
    more = replace(rule, remedies=(*rule.remedies, "gradient_accumulation_steps")) if rule is not None else None
    changes = nearest(case, more, RULES) if more is not None else ()
    ways = [f"{in_words(case, (one,))} ({case.moved(*one).batch.rows} rows per update)" for one in changes]
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
    """Tells whether no rule is broken; quicker than ``check``, because no nearest values are searched."""
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
    """Returns notes on a legal configuration: rows per update that differ from the baseline's."""
    target = Reference.of(baseline, resources).rows
    batch = batch_of(configuration, resources)
    if target is None or batch.rows == target:
        return ()
    ranks = Case(configuration, resources).ranks_in_words(batch.ranks)
    share = 100 * (batch.rows / target - 1)
    return (
        f"{batch.rows} rows per update instead of {target} ({share:+.1f} %), because {ranks} cannot share {target}.",
    )
