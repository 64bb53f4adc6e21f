"""Screen of ``autotune plan``; marks every figure as predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.cli.screens.tables import plain_table
from autotune.cli.screens.text import LabelGrid
from autotune.domain import Configuration
from autotune.domain.differences import chosen_differences
from autotune.forecast.answer import LIKELY, Load, Need, Needs, Plan, Predicted
from autotune.wording.numbers import format_duration, format_size, percent, rate
from autotune.wording.text import SHORT_NAMES, change_words, clean

MOST_PARTS = 8
HEAD = "PREDICTED from the model's configuration alone; nothing was run."


def plan_screen(plan: Plan, run: Sequence[str] = ()) -> RenderableType:
    """Shows the training, the best configurations, and the first in full; ``run``: sentences on the whole run."""
    grid = LabelGrid()
    grid.add("", HEAD, "bold")
    _add_load(grid, plan.load)
    grid.add("machine", plan.machine.words())
    legal = f"{'' if plan.exact else 'about '}{plan.legal:,} legal combination{'' if plan.legal == 1 else 's'}"
    seen = f"a forecast made for {plan.looked_at:,}, {plan.fitting:,} sure to fit"
    grid.add("space", f"{clean(plan.space)}: {legal}, {seen}")
    grid.add("accuracy", plan.accuracy.sentence)
    for note in plan.notes:
        grid.add("note", note)
    first, faster = plan.best[0], plan.faster
    details = LabelGrid()
    if plan.config:
        verdict = f"{'fits' if plan.feasible else 'is not likely to fit'}, with {percent(plan.baseline.fits)}"
        details.add("result", f"{clean(plan.config)} {verdict}", "bold green" if plan.feasible else "bold red")
        _add_predicted(details, plan.baseline)
        details.gap()
        fits = "what fits instead" if first.fits >= LIKELY else "what is closest to fitting"
        said = "what is predicted to be faster" if plan.feasible else fits
        details.add("also", said if faster else "nothing that was looked at is predicted to be faster", "bold")
    elif not plan.feasible:
        alike = " with the same numerics" if plan.permitted and plan.permitted.fits >= LIKELY else ""
        said = f"Nothing{alike} is likely to fit; the closest is shown, with {percent(first.fits)}. See --need."
        details.add("result", said, "bold red")
    elif not plan.fitting:
        details.add("result", f"Nothing is sure to fit; the closest does with {percent(first.fits)}.", "bold yellow")
    for found in faster[:1]:
        _add_changes(details, found, plan)
        _add_predicted(details, found)
    if plan.permitted is not None:
        details.gap()
        details.add("also", "if you allow other numerics or another update (predicted)", "bold")
        _add_changes(details, plan.permitted, plan)
        _add_predicted(details, plan.permitted)
    details.gap()
    for sentence in run:
        details.add("your run", f"{sentence} (predicted)")
    details.add("next", "autotune start measures; a plan only says where to begin", "bold")
    return Group(grid.table, Text(), _table(plan), Text(), details.table)


def needs_screen(needs: Needs) -> RenderableType:
    """Draws the fewest GPUs that fit: a row for each kind of GPU, a column for each way of training."""
    grid = LabelGrid()
    grid.add("", HEAD, "bold")
    _add_load(grid, needs.load)
    for note in needs.notes:
        grid.add("note", note)
    ways = list(dict.fromkeys(need.how for need in needs.needs))
    table = plain_table([("GPU", "left"), ("memory", "right"), *((_head(how, needs), "left") for how in ways)])
    for gpu in dict.fromkeys(need.gpu for need in needs.needs):
        row = [need for need in needs.needs if need.gpu == gpu]
        cells = [_cell(next((n for n in row if n.how == how), None)) for how in ways]
        table.add_row(Text(gpu), Text(format_size(row[0].memory)), *(Text(cell) for cell in cells))
    ends = LabelGrid()
    for how in ways:
        least = needs.smallest(how)
        words = "none of those looked at"
        if least is not None and least.machine is not None and least.found is not None:
            host = f"host memory of a node {format_size(least.found.host)}, not held against it"
            words = f"{least.machine.words()} (predicted; {host})"
        ends.add("least", f"{_head(how, needs)}: {words}")
    ends.add("", f"GPUs, up to {needs.largest}; - means more than that. Least is least memory of all GPUs together.")
    return Group(grid.table, Text(), table, Text(), ends.table)


def _head(how: str, needs: Needs) -> str:
    ranks = {n.lora_rank for n in needs.needs if n.how == how and n.lora_rank is not None}
    return f"{how}, rank {ranks.pop()}" if len(ranks) == 1 else how


def _cell(need: Need | None) -> str:
    machine = None if need is None else need.machine
    if machine is None:
        return "-"
    return str(machine.gpus) if machine.nodes == 1 else f"{machine.gpus} x {machine.nodes} nodes"


def _add_load(grid: LabelGrid, load: Load) -> None:
    shape = load.architecture
    active = f", {_billions(shape.active)} active in a token" if shape.active < shape.parameters else ""
    how = "all parameters trained" if load.lora_rank is None else f"LoRA of rank {load.lora_rank}"
    grid.add(
        "model",
        f"{clean(load.model)}: {clean(shape.family) or 'decoder'}, {_billions(shape.parameters)} parameters{active}; "
        f"{how}",
    )
    grid.add(
        "load",
        f"{load.framework}, {load.rows_per_update} rows per update in groups of {load.num_generations}, prompts up to "
        f"{load.max_prompt_length} tokens, completions up to {load.max_completion_length} "
        f"(mean {load.mean_completion:g}, presumed)",
    )


def _table(plan: Plan) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("", no_wrap=True)
    table.add_column("tokens/hour", justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    table.add_column("fits", justify="right", no_wrap=True)
    own = "your configuration" if plan.config else "the framework's defaults"
    own = "the one configuration of the space" if plan.legal == 1 and not plan.config else own
    table.add_column(f"predicted; {'yours' if plan.config else 'the defaults'} but", overflow="fold", ratio=1)
    baseline = plan.baseline.configuration
    for place, found in enumerate(plan.best, 1):
        changed = _changes(found, baseline)
        words = ", ".join(f"{SHORT_NAMES.get(name, name)} {after}" for name, _, after in changed)
        table.add_row(*_cells(str(place), found, words or own))
    if plan.config or plan.legal > 1:
        table.add_row(*_cells("-", plan.baseline, own))
    return table


def _cells(place: str, row: Predicted, words: str) -> list[Text]:
    speed, low, high = _speeds(row)
    return [Text(cell) for cell in (place, speed, f"{low} to {high}", format_size(row.peak), percent(row.fits), words)]


def _speeds(row: Predicted) -> list[str]:
    """Returns tokens/hour and the ends of its interval."""
    return [rate(value, row.low, row.high) for value in (row.tokens_per_hour, row.low, row.high)]


def _add_changes(grid: LabelGrid, row: Predicted, plan: Plan) -> None:
    changed = _changes(row, plan.baseline.configuration)
    width = max((len(name) for name, _, _ in changed), default=0)
    for place, (name, before, after) in enumerate(changed):
        grid.add("" if place else "change", Text(f"{name:<{width}}  {before} → {after}", "green"))


def _changes(row: Predicted, baseline: Configuration) -> tuple[tuple[str, str, str], ...]:
    """Returns (knob, before, after), without derived knobs."""
    return change_words(chosen_differences(baseline, row.configuration))


def _add_predicted(grid: LabelGrid, row: Predicted) -> None:
    speed, low, high = _speeds(row)
    grid.add("predicted", f"{speed} tokens/hour, 95 % {low} to {high}")
    total = sum(row.phases.values())
    shown = {name: seconds / total for name, seconds in row.phases.items() if seconds > total / 200}
    parts = ", ".join(f"{name} {percent(share)}" for name, share in shown.items())
    grid.add("time", f"{format_duration(row.cycle_s)} a cycle: {parts}")
    grid.add(
        "memory",
        f"peak {format_size(row.peak)} {row.when} (95 % {format_size(row.peak_low)} to "
        f"{format_size(row.peak_high)}) of {format_size(row.capacity)}; fits with probability {percent(row.fits)}",
    )
    grid.add("", f"{_parts(row.parts)}; host memory of a node {format_size(row.host)}")
    grid.add("bound by", row.limit())


def _parts(parts: Mapping[str, float]) -> str:
    shown = list(parts.items())[:MOST_PARTS]
    return ", ".join(f"{name} {format_size(size)}" for name, size in shown)


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"
