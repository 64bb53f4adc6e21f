"""Tables of trials and configurations: best first, only knobs that differ, in a limited width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from autotune.cli.screens.text import fit
from autotune.domain import Configuration, Trial, TrialState
from autotune.insights.standings import Standing, folded, outcome_word
from autotune.wording.numbers import rate, signed_percent
from autotune.wording.sentences import PERMITTED_MARK, measured_words
from autotune.wording.text import differing, knob_value, short_name

Side = Literal["left", "right"]

VALUE_WIDTH = 9
"""Most terminal cells of a knob's value; longer values are cut."""


@dataclass(frozen=True)
class KnobColumns:
    """Headings of the knobs that have a column, and the knobs for which there is no room."""

    heads: Mapping[str, str]
    hidden: tuple[str, ...]

    def cells(self, configuration: Configuration) -> list[str]:
        return [fit(knob_value(configuration.get(name), name), VALUE_WIDTH) for name in self.heads]

    def legend(self) -> str:
        """Returns the number of knobs without a column, and ``mb micro_batch_size · ...`` for those with one."""
        left_out = [f"{len(self.hidden)} more knobs not shown"] if self.hidden else []
        return " · ".join([*left_out, *(f"{head} {name}" for name, head in self.heads.items() if head != name)])


def knob_columns(configurations: Sequence[Configuration], room: int) -> KnobColumns:
    """Builds columns for the differing knobs that fit into ``room`` terminal cells, with a gap of two before each."""
    heads: dict[str, str] = {}
    hidden: list[str] = []
    for name in differing(configurations):
        head = _unused(short_name(name), heads.values())
        values = (cell_len(knob_value(c.get(name), name)) for c in configurations)
        needed = 2 + max(cell_len(head), min(VALUE_WIDTH, max(values, default=0)))
        if needed <= room and not hidden:
            heads[name] = head
            room -= needed
        else:
            hidden.append(name)
    return KnobColumns(heads, tuple(hidden))


def _unused(head: str, heads: Iterable[str]) -> str:
    used = set(heads)
    if head not in used:
        return head
    return next(f"{head}{n}" for n in range(2, len(used) + 3) if f"{head}{n}" not in used)


def plain_table(columns: Sequence[tuple[str, Side]]) -> Table:
    """Builds a borderless table of columns (head, side); rows are never wrapped."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for head, side in columns:
        table.add_column(Text(head, "dim"), justify=side, no_wrap=True, overflow="ellipsis")
    return table


def standings_table(rows: Sequence[Standing], columns: KnobColumns, baseline: Configuration) -> Table:
    """Draws trials, speed and gain of configurations, then their knobs; the leader of row 1 is green."""
    heads: list[tuple[str, Side]] = [("trial", "left"), ("tokens/hour", "right"), ("gain", "right")]
    table = plain_table([*heads, *((head, "right") for head in columns.heads.values())])
    leader = next((row for row in rows if row.same_learning), None)
    other = "-" if any(row.configuration == baseline for row in rows) else "reference"
    for row in rows:
        own = "baseline" if row.configuration == baseline else other
        cells = [
            f"#{row.numbers[0]}" + (f" x{len(row.numbers)}" if len(row.numbers) > 1 else ""),
            rate(row.tokens_per_hour) + ("" if row.same_learning else PERMITTED_MARK),
            own if row.ratio is None else signed_percent(row.ratio),
            *columns.cells(row.configuration),
        ]
        table.add_row(*(Text(cell, "bold green" if row is leader else "") for cell in cells))
    return table


STANDINGS_WIDTH = 34
"""Most terminal cells of the columns before the knobs: ``#1234 x3``, ``tokens/hour``, ``+123.4 %``."""

TRIALS_WIDTH = 46
"""``STANDINGS_WIDTH``, for ``trials_table``."""


def trials_table(trials: Sequence[Trial], columns: KnobColumns) -> Table:
    """Draws a table with a row for each trial, in the order given; adjacent trials that failed alike share a row."""
    heads: dict[str, Side] = {"trial": "right", "kind": "left", "outcome": "left", "tokens/hour": "right"}
    table = plain_table([*heads.items(), *((head, "right") for head in columns.heads.values())])
    for alike in folded(trials):
        trial, (label, style) = alike[0], outcome_label(alike[0])
        number = f"#{trial.number}" + (f" x{len(alike)}" if len(alike) > 1 else "")
        values = zip(*(columns.cells(each.configuration) for each in alike), strict=True)
        knobs = (value[0] if len(set(value)) == 1 else "…" for value in values)
        table.add_row(*(Text(c, style) for c in (number, trial.kind.value, label, measured_words(trial), *knobs)))
    return table


def outcome_label(trial: Trial) -> tuple[str, str]:
    """Returns a word for the state or outcome of a trial, and its style."""
    word = outcome_word(trial)
    if trial.state is TrialState.FAIL:
        return word, "red"
    if trial.state is TrialState.COMPLETE:
        return word, "" if trial.worst_case_passed and not trial.emulated else "yellow"
    return word, "cyan" if trial.state is TrialState.RUNNING else "dim"
