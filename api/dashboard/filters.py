"""Filter, order and page of the lists of studies and of trials, as the query of an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from api.dashboard.links import with_query
from api.filters import SORTS, knob_is
from autotune.domain import Study, Trial
from autotune.insights.standings import outcome_word
from autotune.recommendation.reading import RunState, StudyReading
from autotune.wording.sentences import model_name
from autotune.wording.text import clean, in_order

Item = TypeVar("Item")
Query = Iterable[tuple[str, str]]

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
    def of(cls, query: Query) -> TrialFilter:
        """Makes the filter from the names and values of a query; ignores unknown names."""
        given = _words(query)
        plain = dict(given)
        knobs = {n.removeprefix(KNOB): v for n, v in given if n.startswith(KNOB)}
        columns = dict.fromkeys(value for name, value in given if name == "column")
        return cls(
            outcome=plain.get("outcome", ""),
            kind=plain.get("kind", ""),
            knobs=tuple(sorted(knobs.items()))[:MOST_KNOBS],
            columns=tuple(columns)[:MOST_KNOBS],
            sort=plain["sort"] if plain.get("sort") in SORTS else "speed",
            page=_page(plain.get("page", "1")),
        )

    def query(self) -> tuple[tuple[str, str], ...]:
        """Returns the filter as the query of an address, without defaults."""
        parts = [("outcome", self.outcome), ("kind", self.kind)]
        parts += [(KNOB + name, value) for name, value in self.knobs]
        parts += [("column", name) for name in self.columns]
        return _query_of([*parts, ("sort", self.sort if self.sort != "speed" else "")], self.page)

    def takes(self, trial: Trial) -> bool:
        """Tells whether a trial passes the filter."""
        if self.kind and trial.kind.value != self.kind:
            return False
        if self.outcome and outcome_word(trial) != self.outcome:
            return False
        return all(knob_is(trial.configuration.get(name), value) for name, value in self.knobs)


@dataclass(frozen=True)
class StudyFilter:
    """Filter and page of the list of studies. Unknown words are kept, as in ``TrialFilter``."""

    state: str = ""
    model: str = ""
    text: str = ""
    """Part of the name, the model or the framework, in any case."""
    page: int = 1

    @classmethod
    def of(cls, query: Query) -> StudyFilter:
        """Makes the filter from the names and values of a query; ignores unknown names."""
        plain = dict(_words(query))
        state, model, text = (plain.get(name, "") for name in ("state", "model", "text"))
        return cls(state, model, text, _page(plain.get("page", "1")))

    def query(self) -> tuple[tuple[str, str], ...]:
        """Returns the filter as the query of an address, without defaults."""
        return _query_of([("state", self.state), ("model", self.model), ("text", self.text)], self.page)

    def takes(self, study: Study, state: Callable[[Study], str]) -> bool:
        """Tells whether a study passes the filter; calls ``state`` only if the filter has a state."""
        model = study.spec.workload.model
        about = clean(f"{study.spec.name} {model} {study.spec.framework}").casefold()
        named = self.model in ("", clean(model), model_name(model)) and self.text.casefold() in about
        return named and (not self.state or state(study) == self.state)


def _words(query: Query) -> list[tuple[str, str]]:
    cut = [(_cut(name), _cut(value)) for name, value in query]
    return [(name, value) for name, value in cut if value]


def _query_of(parts: Query, page: int) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in (*parts, ("page", str(page) if page > 1 else "")) if value)


def _page(number: str) -> int:
    return min(LAST_PAGE, max(1, int(number))) if number.isdecimal() and len(number) < 9 else 1


def _cut(words: str) -> str:
    return clean(clean(words)[:LONGEST])


class Page(NamedTuple, Generic[Item]):
    """One page of a list."""

    shown: Sequence[Item]
    matching: int
    """Number of the list's items that pass the filter."""
    page: int
    pages: int

    def turned(self, path: str, selection: TrialFilter | StudyFilter, by: int) -> str:
        """Returns the address of the page ``by`` pages after this one; empty if there is none."""
        query = replace(selection, page=self.page + by).query()
        return with_query(path, query) if 1 <= self.page + by <= self.pages else ""


def page_of(items: Sequence[Item], number: int, most: int) -> Page[Item]:
    """Returns the requested page of ``most`` items, or the last one if there are fewer."""
    pages = max(1, -(-len(items) // most))
    page = min(number, pages)
    return Page(items[(page - 1) * most : page * most], len(items), page, pages)


def trials_page(reading: StudyReading, selection: TrialFilter, most: int = PAGE) -> Page[Trial]:
    """Returns the requested page of ``most`` trials, or the last one if there are fewer."""
    trials: Sequence[Trial] = reading.best_first
    trials = trials if selection.sort == "speed" else sorted(trials, key=SORTS[selection.sort][1])
    return page_of([t for t in trials if selection.takes(t)], selection.page, most)


@dataclass(frozen=True)
class Menu:
    """A drop-down of the form above the table."""

    name: str
    """Name in the address."""
    label: str
    choices: tuple[tuple[str, str, bool], ...]
    """(value, label, whether it is chosen); the first is "any". A free menu has only the value that the user wrote."""
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


def study_menus(studies: Sequence[Study], selection: StudyFilter) -> tuple[Menu, ...]:
    """Returns the menus of state and model, and the field for a text; none for a single study."""
    models = sorted({model_name(study.spec.workload.model) for study in studies})
    chosen = _menu("state", "state", list(RunState), selection.state), _menu("model", "model", models, selection.model)
    text = Menu("text", "text", ((selection.text, selection.text, True),), free=True)
    return (*chosen, text) if len(studies) > 1 else ()


def _menu(name: str, label: str, values: Sequence[str], chosen: str) -> Menu:
    every = [*values, *([chosen] if chosen and chosen not in values else [])]
    listed_values = tuple((value, value.replace("_", " "), value == chosen) for value in every)
    return Menu(name, label, (("", "any", not chosen), *listed_values))
