"""Filter, order and page of a study's trial list, as the query of an address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.filters import SORTS, knob_is
from autotune.domain import Trial
from autotune.insights.standings import outcome_word
from autotune.recommendation.reading import StudyReading
from autotune.wording.text import clean, in_order

PAGE = 100
KNOB = "knob."
"""Prefix of a knob's name in an address."""
MOST_KNOBS = 30
MOST_VALUES = 40
LONGEST = 200
LAST_PAGE = 10**6


@dataclass(frozen=True)
class TrialFilter:
    """Filter, order and page from an address. Unknown words are kept: they match no trial and are shown unchanged."""

    outcome: str = ""
    kind: str = ""
    knobs: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    """Knobs that are columns; empty: those that differ."""
    sort: str = "speed"
    page: int = 1

    @classmethod
    def of(cls, query: Iterable[tuple[str, str]]) -> TrialFilter:
        """Makes the filter from the names and values of a query; ignores unknown names."""
        cut = [(_cut(name), _cut(value)) for name, value in query]
        given = [(name, value) for name, value in cut if value]
        plain = dict(given)
        knobs = {n.removeprefix(KNOB): v for n, v in given if n.startswith(KNOB)}
        columns = dict.fromkeys(value for name, value in given if name == "column")
        page = plain.get("page", "1")
        return cls(
            outcome=plain.get("outcome", ""),
            kind=plain.get("kind", ""),
            knobs=tuple(sorted(knobs.items()))[:MOST_KNOBS],
            columns=tuple(columns)[:MOST_KNOBS],
            sort=plain["sort"] if plain.get("sort") in SORTS else "speed",
            page=min(LAST_PAGE, max(1, int(page))) if page.isdecimal() and len(page) < 9 else 1,
        )

    def query(self) -> tuple[tuple[str, str], ...]:
        """Returns the filter as the query of an address, without defaults."""
        parts = [("outcome", self.outcome), ("kind", self.kind)]
        parts += [(KNOB + name, value) for name, value in self.knobs]
        parts += [("column", name) for name in self.columns]
        parts += [
            ("sort", self.sort if self.sort != "speed" else ""),
            ("page", str(self.page if self.page > 1 else "")),
        ]
        return tuple((name, value) for name, value in parts if value)

    @property
    def narrow(self) -> bool:
        """True if the filter excludes some trials."""
        return bool(self.outcome or self.kind or self.knobs)

    def takes(self, trial: Trial) -> bool:
        """Tells whether a trial passes the filter."""
        if self.kind and trial.kind.value != self.kind:
            return False
        if self.outcome and outcome_word(trial) != self.outcome:
            return False
        return all(knob_is(trial.configuration.get(name), value) for name, value in self.knobs)


def _cut(words: str) -> str:
    return clean(clean(words)[:LONGEST])


@dataclass(frozen=True)
class TrialsPage:
    """Trials of one page of the list."""

    shown: tuple[Trial, ...]
    matching: int
    """Number of the study's trials that pass the filter."""
    page: int
    pages: int


def trials_page(reading: StudyReading, selection: TrialFilter, most: int = PAGE) -> TrialsPage:
    """Returns the requested page of ``most`` trials, or the last one if there are fewer."""
    trials: Sequence[Trial] = reading.best_first
    if selection.sort != "speed":
        trials = sorted(trials, key=SORTS[selection.sort][1])
    if selection.narrow:
        trials = [t for t in trials if selection.takes(t)]
    pages = max(1, -(-len(trials) // most))
    page = min(selection.page, pages)
    return TrialsPage(tuple(trials[(page - 1) * most : page * most]), len(trials), page, pages)


@dataclass(frozen=True)
class Menu:
    """A drop-down of the form above the table."""

    name: str
    """Name in the address."""
    label: str
    choices: tuple[tuple[str, str, bool], ...]
    """Value, words, and whether it is chosen; the first is "any". A free menu has its written value alone."""
    free: bool = False
    """True if there are too many values to choose from: the user writes a value or a range."""


def menus(reading: StudyReading, selection: TrialFilter) -> tuple[Menu, ...]:
    """Returns the menus of outcome, kind, order, and each knob that differs between trials."""
    made = [
        _menu("outcome", "outcome", sorted({outcome_word(t) for t in reading.trials}), selection.outcome),
        _menu("kind", "kind", sorted({t.kind.value for t in reading.trials}), selection.kind),
    ]
    chosen = dict(selection.knobs)
    for name in in_order({*reading.differing, *chosen}):
        values = reading.values_of(name) if name in reading.differing else ()
        wanted_value = chosen.get(name, "")
        if len(values) <= MOST_VALUES:
            made.append(_menu(KNOB + name, name, values, wanted_value))
        else:
            made.append(Menu(KNOB + name, name, ((wanted_value, wanted_value, True),), free=True))
    order = tuple((key, words, key == selection.sort) for key, (words, _) in SORTS.items())
    return (*made, Menu("sort", "order", order))


def _menu(name: str, label: str, values: Sequence[str], chosen: str) -> Menu:
    every = [*values, *([chosen] if chosen and chosen not in values else [])]
    listed_values = tuple((value, value.replace("_", " "), value == chosen) for value in every)
    return Menu(name, label, (("", "any", not chosen), *listed_values))
