"""Map of two knobs: for each pair of values, whether it fits, ran out of which memory, is ruled out, or is untried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Mark, drawing, empty
from autotune.charts.scales import Bands
from autotune.charts.svg import Svg, group, label, linked, tag
from autotune.domain import FailureReason, Outcome, Trial
from autotune.insights.feasibility import cause, has_verdict
from autotune.statistics.retries import corrected
from autotune.wording.numbers import counted, rate
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue

NAME = "feasibility"
MOST_VALUES = 16
CELL = 40.0
WORDY = 96.0
"""Least width of a cell that shows a cause of more than five characters."""

Pair = tuple[str, str]
"""Values of the horizontal and of the vertical knob, as text."""
CellHref = Callable[[str, str], str]

LEGEND = (
    Mark("cell-fits", "fits", "✓"),
    Mark("cell-mixed", "some fit, some fail", "±"),
    Mark("cell-oom", "out of memory", "✕"),
    Mark("cell-failed", "failed otherwise", "!"),
    Mark("cell-ruled", "ruled out by an out-of-memory failure", "▨"),
    Mark("cell-likely", "predicted to fit, with this probability", "?"),
    Mark("cell-unlikely", "predicted not to fit", "?"),
    Mark("cell-untried", "not tried", "·"),
)
_GLYPHS = {mark.style: mark.glyph for mark in LEGEND}


@dataclass(frozen=True)
class Cell:
    """One cell of the map: the trials of a pair of knob values, or its prediction."""

    style: str
    """Style in ``LEGEND``; for a prediction ``cell-ruled``, ``cell-likely`` or ``cell-unlikely``."""
    words: str
    short: str = ""
    """Text inside the cell; for a prediction its probability."""


def pair_of(trial: Trial, across: str, up: str) -> Pair:
    """Returns the trial's values as text."""
    return knob_value(trial.configuration.get(across)), knob_value(trial.configuration.get(up))


def values_of(knob: str, trials: Iterable[Trial], searched: Iterable[KnobValue] = ()) -> tuple[KnobValue | None, ...]:
    """Returns tried and listed values in ascending order, numbers first; prefers tried ones beyond ``MOST_VALUES``."""
    tried = {knob_value(v): v for t in trials for v in [t.configuration.get(knob)]}
    every = {**tried, **{knob_value(v): v for v in searched if len(tried) < MOST_VALUES}}
    kept = dict(list(every.items())[:MOST_VALUES])
    return tuple(sorted(kept.values(), key=_order))


def feasibility_map(
    trials: Sequence[Trial],
    knobs: tuple[str, str],
    searched: Mapping[str, Sequence[KnobValue]],
    predicted: Mapping[Pair, Cell],
    href: CellHref | None = None,
) -> Chart:
    """Draws the map of ``knobs`` (horizontal, vertical). ``searched`` are the space's values by knob; cells link to
    ``href``, if given."""
    across, up = knobs
    if not across or not up or across == up:
        return empty(NAME, "What fits", "A map needs two different knobs whose values differ between trials.")
    title = f"What fits: {across} and {up}"
    decided = [t for t in corrected(trials) if t.kind.is_searched and has_verdict(t)]
    columns = [knob_value(v) for v in values_of(across, trials, searched.get(across, ()))]
    rows = [knob_value(v) for v in values_of(up, trials, searched.get(up, ()))]
    if not columns or not rows:
        return empty(NAME, title, "Neither the trials nor the space have values of these knobs.")
    by_pair: dict[Pair, list[Trial]] = {}
    for trial in decided:
        by_pair.setdefault(pair_of(trial, across, up), []).append(trial)
    cells = {(x, y): cell(by_pair.get((x, y), ()), predicted.get((x, y))) for x in columns for y in rows}
    says = _says(cells)
    frame = Frame(170.0, 846.0, 28.0, 28.0 + CELL * len(rows))
    view = drawing(frame.bottom + 44, _parts(frame, (across, up), columns, rows, cells, href), says, NAME)
    table = tuple((y, *(cells[x, y].words for x in columns)) for y in reversed(rows))
    seen = {c.style for c in cells.values()}
    note = "Each cell holds every trial with that pair, whatever its other knobs are."
    heads = (f"{up} ↓ {across} →", *columns)
    return Chart(NAME, title, says, view, heads, table, tuple(m for m in LEGEND if m.style in seen), note)


def cell(trials: Sequence[Trial], predicted: Cell | None) -> Cell:
    """Returns one cell of the map, from the pair's trials, or from its prediction if it has none."""
    if not trials:
        return predicted or Cell("cell-untried", "not tried")
    fitting = [t for t in trials if t.fits]
    causes = Counter(cause(t.outcome or Outcome()) for t in trials if not t.fits)
    failed = ", ".join(f"{n} {what}" for what, n in sorted(causes.items(), key=lambda i: (-i[1], i[0])))
    if fitting:
        best = max((t.tokens_per_hour or 0.0 for t in fitting), default=0.0)
        speed = f", best {rate(best)} tokens/hour" if best else ""
        words = f"{len(fitting)} of {len(trials)} fit{speed}" + (f"; {failed}" if failed else "")
        style = "cell-mixed" if causes else "cell-fits"
        return Cell(style, words, f"{len(fitting)}/{len(trials)}" if causes else str(len(fitting)))
    oom = any(t.outcome is not None and t.outcome.reason is FailureReason.OOM for t in trials)
    first = next(iter(causes))
    return Cell("cell-oom" if oom else "cell-failed", failed, first if len(causes) == 1 else str(len(trials)))


def _order(value: KnobValue | None) -> tuple[bool, float, str]:
    amount = isinstance(value, int | float) and value == value
    return (not amount, float(value) if isinstance(value, int | float) and amount else 0.0, str(value))


def _says(cells: Mapping[Pair, Cell]) -> str:
    counts = Counter(c.style for c in cells.values())
    known = [f"{m.words}: {counts[m.style]}" for m in LEGEND if counts[m.style]]
    return f"{counted(len(cells), 'pair')} of values; {'; '.join(known)}."


def _parts(
    frame: Frame,
    knobs: tuple[str, str],
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Mapping[Pair, Cell],
    href: CellHref | None,
) -> list[str]:
    across, up = Bands(len(columns), frame.left, frame.right), Bands(len(rows), frame.bottom, frame.top)
    middle = (frame.left + frame.right) / 2
    parts: list[str] = [
        label(middle, frame.bottom + 38, knobs[0], "axis-title", "middle"),
        label(10, frame.top - 12, knobs[1], "axis-title"),
    ]
    parts += [label(across.centre(i), frame.bottom + 18, x, "tick", "middle") for i, x in enumerate(columns)]
    parts += [label(frame.left - 8, up.centre(j) + 4, y, "tick", "end") for j, y in enumerate(rows)]
    for i, x in enumerate(columns):
        for j, y in enumerate(rows):
            box = (across.left_edge(i), up.left_edge(j) + up.width, across.width)
            where = href(x, y) if href is not None else ""
            parts.append(_cell(box, cells[x, y], f"{knobs[0]} {x}, {knobs[1]} {y}", where))
    return parts


def _cell(box: tuple[float, float, float], entry: Cell, pair: str, where: str) -> Svg:
    left, top, width = box
    height = CELL - 3
    ground = tag("rect", x=left + 1.5, y=top + 1.5, width=width - 3, height=height, rx=4, class_=f"cell {entry.style}")
    glyph = _GLYPHS[entry.style]
    short = entry.short if width >= WORDY or len(entry.short) <= 5 else ""
    words = f"{glyph} {short}" if short else glyph
    said = label(left + width / 2, top + CELL / 2 + 5, words, "cell-words", "middle")
    tried = entry.style in ("cell-fits", "cell-mixed", "cell-oom", "cell-failed")
    return linked(group([ground, said]), where if tried else "", f"{pair}: {entry.words}")
