"""``autotune compare``: compares two trials, or two studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.cli import console
from autotune.cli.options import HomeOption, JsonOption, find_study, reading
from autotune.cli.screens.tables import plain_table
from autotune.cli.screens.text import fit
from autotune.documents.study import configuration_json, plain
from autotune.domain import Gain
from autotune.errors import UsageError
from autotune.insights.usage_words import use_json
from autotune.recommendation.comparison import ComparedSide, Comparison, compare_studies, compare_trials, verdict
from autotune.recommendation.comparison_words import baselines_words, figure_lines
from autotune.recommendation.reading import read_study
from autotune.recommendation.whole_run import Estimate
from autotune.wording.sentences import PERMITTED_MARK
from autotune.wording.text import clean, in_order, knob_value
from search_spaces.configuration import KnobValue
from search_spaces.knobs import Effect, defaults, effects_of_change
from search_spaces.knobs.model import whole_number

VALUE_WIDTH = 21
"""Width of each side's column in terminal cells."""


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Number of a trial, or name of a study.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A second trial if A is a trial, or a second study.")],
    study: Annotated[
        str | None, typer.Option(metavar="STUDY", help="Study of both trials. Default: the newest.")
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Compares two trials, or the best of two studies, side by side.

    Each ratio is B divided by A. If the studies have different workloads or machines, the output begins
    with the differences, because the ratio is then not only due to the knobs.

    \b
    Examples:
      autotune compare 7 12
      autotune compare 0 9 --study my-study
      autotune compare my-study my-study-2 --json
    """
    with reading(home) as (_, store):
        first, second = whole_number(a), whole_number(b)
        if first is not None and second is not None:
            record = read_study(store, find_study(store, study))
            comparison = compare_trials(record, record.trial(first), record.trial(second))
        elif (first, second) != (None, None):
            raise UsageError(f"compare two trials by number or two studies by name, not {clean(a)!r} with {clean(b)!r}")
        else:
            comparison = compare_studies(*(read_study(store, find_study(store, name)) for name in (a, b)))
    if as_json:
        console.document(comparison_json(comparison))
        return
    console.show(comparison_screen(comparison))


def comparison_screen(comparison: Comparison) -> RenderableType:
    """Shows the verdict, then other differences, knobs and figures, in at most 80 columns."""
    a, b = comparison.a, comparison.b
    parts: list[RenderableType] = [Text(verdict(comparison), "bold", overflow="fold")]
    if comparison.differs:
        parts += [Text(), Text("Not only knobs differ, so this is no gain of the knobs:", "yellow")]
        parts += [Text(f"  {clean(line)}", "yellow", overflow="fold") for line in comparison.differs]
    parts += [Text(), _figures(a, b, comparison)]
    if comparison.changes:
        parts += [Text(), _knobs(comparison)]
        if _beyond_speed(comparison):
            parts.append(Text(f"{PERMITTED_MARK} changes numerics or the update", "dim"))
    if comparison.baselines is not None:
        parts += [Text(), Text(baselines_words(*comparison.baselines), overflow="fold")]
    return Group(*parts)


def _figures(a: ComparedSide, b: ComparedSide, comparison: Comparison) -> Table:
    names = [fit(f"{letter} {side.label}", VALUE_WIDTH) for letter, side in (("A", a), ("B", b))]
    table = plain_table([("", "left"), *((name, "right") for name in (*names, "B over A"))])
    for line in figure_lines((a, b), comparison.ratio):
        indent = "  " if line.name.startswith(" ") else ""
        cells = (fit(cell, VALUE_WIDTH) for cell in (*line.values, line.change))
        table.add_row(*map(Text, (indent + fit(line.name, VALUE_WIDTH), *cells)))
    return table


def _knobs(comparison: Comparison) -> Table:
    table = plain_table([("knob", "left"), ("A", "right"), ("B", "right")])
    marked = _beyond_speed(comparison)
    for name in in_order(comparison.changes):
        here, there = comparison.changes[name]
        mark = PERMITTED_MARK if name in marked else ""
        table.add_row(*(Text(fit(cell, 30)) for cell in (name + mark, knob_value(here, name), knob_value(there, name))))
    return table


def _beyond_speed(comparison: Comparison) -> frozenset[str]:
    """Returns the changed knobs that affect rounding or learning."""
    a = _values(comparison.a, {name: here for name, (here, _) in comparison.changes.items()})
    b = _values(comparison.b, {name: there for name, (_, there) in comparison.changes.items()})
    effects = effects_of_change(b, a, comparison.a.framework)
    return frozenset(name for name, effect in effects.items() if effect is not Effect.SPEED)


def _values(side: ComparedSide, own: Mapping[str, KnobValue | None]) -> dict[str, KnobValue]:
    """Returns the knob values of one side; an unset knob has its framework's default, if known."""
    unset = defaults(side.framework)
    found = {name: unset.get(name) if value is None else value for name, value in own.items()}
    return {name: value for name, value in found.items() if value is not None}


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Converts a comparison to JSON; ``ratio`` is B's tokens/hour / A's - 1."""
    found = comparison.changes
    return {
        "a": side_json(comparison.a),
        "b": side_json(comparison.b),
        "ratio": _interval_json(comparison.ratio),
        "decided": comparison.decided,
        "comparable": comparison.comparable,
        "differs": plain(comparison.differs),
        "changes": {plain(name): {"a": plain(found[name][0]), "b": plain(found[name][1])} for name in in_order(found)},
        "baselines": None if comparison.baselines is None else [side_json(side) for side in comparison.baselines],
    }


def side_json(side: ComparedSide) -> dict[str, Any]:
    """Converts one side of a comparison to JSON; ``null`` for figures that were not measured."""
    return {
        "label": plain(side.label),
        "study": plain(side.study),
        "trials": list(side.trials),
        "outcome": plain(side.outcome),
        "configuration": configuration_json(side.configuration),
        "rows_per_update": side.rows_per_update,
        "tokens_per_hour": _interval_json(side.speed),
        "speed_cycles": side.cycles,
        "disturbed_cycles": side.disturbed,
        "cycle_seconds": plain(side.cycle_s),
        "cycle_completion_tokens": plain(side.cycle_tokens),
        "phase_seconds": plain(side.phases),
        "startup_seconds": plain(side.startup),
        "host_peak_bytes": side.host_peak,
        "device_peak_bytes": side.device_peak,
        "usage": None if side.use is None else use_json(side.use),
    }


def _interval_json(gain: Estimate | Gain | None) -> dict[str, Any] | None:
    return None if gain is None else {name: plain(getattr(gain, name)) for name in ("value", "low", "high")}
