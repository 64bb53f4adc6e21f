"""Legality of batch shapes: whole groups, the baseline's rows per update, and the baseline's reuse of completions."""

from __future__ import annotations

from fractions import Fraction

from search_spaces.batch import TOLERANCE_PERCENT, on_policy, rows_allowed
from search_spaces.legality.case import COMPARED, Case, forbid, rule


@rule(COMPARED, ("micro_batch_size", "num_generations"))
def whole_groups(case: Case) -> str | None:
    """Requires a generation to hold whole groups."""
    batch = case.batch
    if batch.group < 2 or batch.rollout_rows % batch.group == 0:
        return None
    steps = f" × steps_per_generation {batch.steps}" if batch.steps != 1 else ""
    product = f"{case.ranks_in_words(batch.ranks)} × micro-batch {batch.micro}{steps}"
    return f"{product} = {batch.rollout_rows} is not divisible by num_generations {batch.group}"


@rule(COMPARED, ("steps_per_generation", "micro_batch_size"))
def fresh_completions(case: Case) -> str | None:
    """Requires the baseline's updates per generation; at 1, generations that divide an update evenly."""
    batch, reuse = case.batch, case.reference.reuse
    steps, accumulation = batch.steps, batch.accumulation
    if steps < 1 or accumulation < 1:
        return "steps_per_generation and gradient_accumulation_steps must be at least 1"
    if reuse > 1:
        if Fraction(steps, accumulation) == reuse:
            return None
        share = f"{float(reuse):g} updates"
        return f"steps_per_generation {steps} of {accumulation} micro-batches does not serve {share} as the baseline's"
    if on_policy(steps, accumulation):
        return None
    if steps > accumulation:
        return (
            f"steps_per_generation {steps} is more than gradient_accumulation_steps {accumulation}, "
            "so later updates would train on completions of older weights"
        )
    return f"steps_per_generation {steps} does not divide gradient_accumulation_steps {accumulation}"


@rule(COMPARED, ("micro_batch_size", "gradient_accumulation_steps"))
def rows_per_update(case: Case) -> str | None:
    """Requires the baseline's number of rows in an update."""
    batch, target = case.batch, case.reference.rows
    if target is None or rows_allowed(batch.rows, target, batch.ranks):
        return None
    product = f"{case.ranks_in_words(batch.ranks)} × micro-batch {batch.micro} × accumulation {batch.accumulation}"
    if target % batch.ranks == 0:
        return f"{product} = {batch.rows} rows per update instead of {target}"
    if target < batch.ranks:
        fewer = f"which {target} training processes at most can share"
        return f"{product} = {batch.rows} rows per update instead of {target}, {fewer}"
    off = 100 * abs(Fraction(batch.rows, target) - 1)
    limit = TOLERANCE_PERCENT
    return f"{product} = {batch.rows} rows per update is {float(off):.1f} % off {target}, more than {limit} %"


def _few_prompts(c: Case) -> bool:
    """Tells whether an update has less than half of the baseline's prompts, both counted at the fixed rows.

    So the few per cent by which a GPU split changes the rows do not matter.
    """
    group = c.reference.group
    return c.reference.rows is not None and group is not None and c.batch.group > 2 * group


RULES = (
    forbid(
        "group_size: num_generations",
        lambda c: c.batch.group < 2,
        "num_generations {c.batch.group} leaves nothing to compare within a group; GRPO needs at least 2",
    ),
    whole_groups,
    fresh_completions,
    rows_per_update,
    forbid(
        "prompts_per_update: num_generations | batch",
        _few_prompts,
        lambda c: (
            f"num_generations {c.batch.group} leaves {(c.reference.rows or 0) / c.batch.group:g} prompts per update, "
            f"fewer than half of the baseline's {(c.reference.rows or 0) / (c.reference.group or 1):g}"
        ),
    ),
    forbid(
        "micro_batch_average: micro_batch_size",
        lambda c: c.resources.per_micro_batch and c.reference.micro not in (None, c.batch.micro),
        "{c.resources.per_micro_batch} is averaged over each micro-batch, so micro_batch_size {c.batch.micro} learns "
        "differently from {c.reference.micro}",
    ),
)
