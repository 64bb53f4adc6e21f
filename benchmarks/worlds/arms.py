"""Who proposes: the product's sampler, and what it is measured by.

All arms are asked by the same loop, propose nothing twice and only what is legal and learns as the baseline does, but
for the product's, which may leave the baseline's learning where its space does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autotune.domain import Configuration, Trial
from autotune.specification.request import DEFAULT_SAMPLER
from benchmarks.decisions.studies import Arm, Place
from benchmarks.worlds import product
from search_spaces.configuration import KnobValue
from search_spaces.knobs import RESTART
from search_spaces.knobs.model import Restart

FIRST = ("rollout_engine", "gradient_checkpointing", "micro_batch_size", "logprob_rows", "attn_implementation")
"""Knobs in the order of the coordinate descent; after them those that need a restart, and then all others."""


@dataclass
class Searcher:
    """``ports.Proposer`` of an arm: it rules nothing out, and what it proposes follows from the history alone."""

    place: Place
    seed: int

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """The next configuration."""
        found = self.next(history, number)
        return None if found is None else (found, "arm")

    def next(self, history: Sequence[Trial], number: int) -> Configuration | None:
        """The next configuration; ``None`` when there is none left."""
        raise NotImplementedError

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:  # noqa: ARG002
        return None

    def count_ruled_out(self, history: Sequence[Trial]) -> int:  # noqa: ARG002
        return 0


def values_of(history: Sequence[Trial]) -> dict[Configuration, float | None]:
    """Tokens/second of what was tried; ``None`` of what did not hold or was stopped because it cannot win.

    By the median cycle: the first one of a new process is slow.
    """
    found: dict[Configuration, float | None] = {}
    for trial in history:
        if trial.kind.is_searched and trial.state.is_finished and not trial.inconclusive:
            cycles = [c.completion_tokens / c.seconds for c in trial.speed_cycles()]
            found[trial.configuration] = statistics.median(cycles) if trial.feasible and cycles else None
    return found


@dataclass
class Coordinate(Searcher):
    """Coordinate descent: knob by knob in a fixed order, step by step as long as a step is faster, until none is.

    A step that the product's memory model thinks unlikely to fit is left out. A knob that brings others into play takes
    them as they were, or as like that as likely fits.
    """

    def next(self, history: Sequence[Trial], number: int) -> Configuration | None:  # noqa: ARG002
        known, base = values_of(history), self.place.spec.baseline
        likely = product.likely(self.place, history)
        while True:
            before = base
            for knob in self.order:
                for step in self._line(knob, base, known, likely):
                    if step not in known:
                        return step
                    if (known.get(step) or 0.0) > (known.get(base) or 0.0):
                        base = step
            if base == before:
                return None

    @property
    def order(self) -> tuple[str, ...]:
        """Knobs in the order they are looked at."""
        rest = [name for name in self.place.space.values if name not in FIRST]
        restarting = [name for name in rest if RESTART.get(name, Restart.PROCESS) is not Restart.NONE]
        return (*FIRST, *restarting, *(name for name in rest if name not in restarting))

    def _line(
        self, knob: str, base: Configuration, known: Mapping[Configuration, float | None], likely: product.Likely
    ) -> Iterator[Configuration]:
        """Steps along a knob: up while they pay, or else down; of what is no number, every other value."""
        by_value: dict[KnobValue, Configuration] = {}
        like = sorted(self.place.about(base, (knob,)), key=lambda c: (c not in known, len(c.difference(base))))
        for one in like:
            value = one.get(knob)
            if value is not None and value not in (base.get(knob), *by_value) and (one in known or likely(one)):
                by_value[value] = one
        own = base.get(knob)
        numbers = sorted(v for v in by_value if isinstance(v, int | float) and not isinstance(v, bool))
        if len(numbers) < len(by_value) or isinstance(own, bool) or not isinstance(own, int | float):
            yield from (by_value[value] for value in by_value)
            return
        last = base
        for way in ([n for n in numbers if n > own], [n for n in reversed(numbers) if n < own]):
            for step in (by_value[value] for value in way if last is base or way[0] > own):
                yield step
                if (known[step] or 0.0) <= (known.get(last) or 0.0):
                    break
                last = step


@dataclass
class Ordered(Searcher):
    """What the product forecasts to be fastest before any trial, in that order; only what fits is learnt."""

    def next(self, history: Sequence[Trial], number: int) -> Configuration | None:  # noqa: ARG002
        known, likely = values_of(history), product.likely(self.place, history)
        return next((c for c in _in_order(self.place) if c not in known and likely(c)), None)


@lru_cache(maxsize=8)
def _in_order(place: Place) -> tuple[Configuration, ...]:
    seconds, _, _ = product.forecast(place, (), place.candidates)
    return tuple(place.candidates[i] for i in np.argsort(seconds, kind="stable"))


@dataclass
class Guesses(Searcher):
    """Five configurations that an expert would try by hand, each the legal one nearest to what is written here."""

    def next(self, history: Sequence[Trial], number: int) -> Configuration | None:  # noqa: ARG002
        known = values_of(history)
        found = [self._nearest(wish) for wish in GUESSES]
        return next((c for c in found if c not in known), None)

    def _nearest(self, wish: Mapping[str, Any]) -> Configuration:
        """The baseline with one wish after the other, as far as that is legal."""
        base = self.place.spec.baseline
        for name, value in wish.items():
            if name in self.place.space.values:
                wanted = value(base.get(name)) if callable(value) else value
                fitting = [c for c in self.place.about(base, (name,)) if c.get(name) == wanted]
                base = min(fitting, key=lambda c: len(c.difference(base)), default=base)
        return base


def _times(factor: int) -> Callable[[Any], int]:
    return lambda value: int(value) * factor


_ENGINE = {"rollout_engine": "vllm", "attn_implementation": "flash_attention_2"}
GUESSES: tuple[Mapping[str, Any], ...] = (
    {**_ENGINE, "gpu_memory_utilization": 0.4},
    {**_ENGINE, "gpu_memory_utilization": 0.4, "micro_batch_size": _times(4), "logprob_rows": _times(8)},
    {**_ENGINE, "gpu_memory_utilization": 0.4, "gradient_checkpointing": False, "logprob_rows": _times(4)},
    {**_ENGINE, "gpu_memory_utilization": 0.6, "sleep_level": 2, "micro_batch_size": _times(8), "zero_stage": 2},
    {**_ENGINE, "gpu_memory_utilization": 0.6, "sleep_level": 2, "gradient_checkpointing": False, "zero_stage": 2,
     "micro_batch_size": _times(2), "remove_padding": True, "dynamic_batching": True},
)  # fmt: skip


@dataclass
class Peer(Searcher):
    """A sampler of Optuna's over all searched knobs, each as the number of its value; the candidate nearest to what it
    draws is proposed. What failed is told as the slowest, with a constraint that it breaks."""

    make: Callable[[int], optuna.samplers.BaseSampler]

    def next(self, history: Sequence[Trial], number: int) -> Configuration | None:
        grid, known = grid_of(self.place), values_of(history)
        study = optuna.create_study(direction="maximize", sampler=self.make(self.seed * 10_007 + number))
        worst = min((value for value in known.values() if value), default=1.0)
        for configuration, value in known.items():
            told = optuna.create_trial(
                value=value or worst, params=grid.params(configuration), distributions=grid.shapes,
                constraints={"fits": 0.0 if value else 1.0},
            )  # fmt: skip
            study.add_trial(told)
        return grid.nearest(study.ask(grid.shapes).params, known)


class Grid:
    """The candidates of a place as Optuna's parameters: the number of a knob's value, ordered where it is a number."""

    def __init__(self, place: Place) -> None:
        self.candidates = place.candidates
        self.rows = {c: row for row, c in enumerate(self.candidates)}
        everything = (*self.candidates, place.spec.baseline)
        listed = {name: _listed({c.get(name) for c in everything}) for name in place.space.values}
        self._values = {name: values for name, values in listed.items() if len(values) > 1}
        self.points = np.array([list(self.params(c).values()) for c in self.candidates])
        self.shapes = {name: _shape(values) for name, values in self._values.items()}
        self._ordered = np.array([isinstance(s, IntDistribution) for s in self.shapes.values()])

    def params(self, configuration: Configuration) -> dict[str, int]:
        """Of Optuna's trial."""
        return {name: values[configuration.get(name)] for name, values in self._values.items()}

    def nearest(self, params: Mapping[str, int], known: Iterable[Configuration]) -> Configuration:
        """The candidate that is not known and differs least; a step between numbers counts by its share of them."""
        steps = np.abs(self.points - np.array([params[name] for name in self._values]))
        shares = np.where(self._ordered, steps / self.points.max(axis=0), steps > 0).sum(axis=1)
        shares[[self.rows[c] for c in known if c in self.rows]] = np.inf
        return self.candidates[int(np.argmin(shares))]


def _listed(values: set[Any]) -> dict[Any, int]:
    return {value: place for place, value in enumerate(sorted(values, key=lambda v: (str(type(v)), v)))}


def _shape(values: Mapping[Any, int]) -> BaseDistribution:
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return IntDistribution(0, len(values) - 1)
    return CategoricalDistribution(tuple(values.values()))


grid_of = lru_cache(maxsize=8)(Grid)


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed)


def _gp(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.GPSampler(seed=seed)


def _of(sampler: str) -> Arm:
    return lambda place, seed: product.proposer(sampler, place, seed)


ARMS: Mapping[str, Arm] = {
    "ours": _of(DEFAULT_SAMPLER),
    "coordinate": Coordinate,
    "order": Ordered,
    "tpe": partial(Peer, make=_tpe),
    "gp": partial(Peer, make=_gp),
    "expert": Guesses,
    "own-tpe": _of("tpe"),
    "own-random": _of("random"),
}
"""``own-...``: other samplers of the product."""
DEFAULT = ("ours", "coordinate", "order", "tpe", "gp", "expert")


def lacks(arm: str) -> str:
    """Why an arm cannot run here; empty if it can."""
    return "needs torch (`make env-search`)" if arm == "gp" and find_spec("torch") is None else ""
