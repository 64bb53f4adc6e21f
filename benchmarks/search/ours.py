"""Our own searches, and the same without each of their parts.

``start`` is what ``autotune start`` does with TPE and dominance. ``grey`` is the product's own sampler in its place.
``grey-residual`` never fits the time model, so that the prior alone orders; ``grey-times`` has no time model and goes
by steps; ``grey-memory`` has no memory model; ``grey-dominance`` forgets what an out-of-memory failure rules out.
``grey-wrong`` begins with a prior that is turned round on purpose, and has to notice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from autotune.domain import Configuration, Trial
from autotune.ports import Proposer
from autotune.proposals.candidate_grid import Mask
from autotune.proposals.forecasts import Task, TimeForecast, TimeModel
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers import SAMPLERS, StudySampler
from autotune.proposals.times import PhaseTimes, roofline
from autotune.proposals.times.features import PhaseRows
from autotune.proposals.times.roofline import Observed, Parts
from autotune.proposals.times.roofline import World as TimeWorld
from benchmarks.search.models import MODULE, Known
from benchmarks.search.world import World
from search_spaces.space import SearchSpace

GREY_MODULE = "autotune.proposals.samplers.grey"


@dataclass(frozen=True)
class PriorOnly:
    """A time model that learns nothing."""

    inner: TimeModel

    @property
    def trusted(self) -> bool:
        return True

    def fitted(self, task: Task, trials: Sequence[Trial]) -> TimeModel:  # noqa: ARG002
        return PriorOnly(self.inner.fitted(task, ()))

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        return self.inner.forecast(configurations)


def turned_round(phase: str, rows: PhaseRows, world: TimeWorld, observed: Observed | None = None) -> Parts:
    """A prior by which what is fast is slow, phase by phase."""
    seconds = roofline(phase, rows, world, observed)
    return Parts(beside={"all": np.where(seconds > 0, 1.0 / np.maximum(seconds, 1e-9), 0.0)})


def with_wrong_prior(times: TimeModel) -> PhaseTimes:
    """The project's own model of times with ``turned_round`` for its roofline.

    Raises:
        TypeError: another model has no prior that could be turned round.
    """
    if not isinstance(times, PhaseTimes):
        raise TypeError(f"{type(times).__name__} has no prior that could be turned round")
    return replace(times, prior=turned_round).fitted(times.known.task, ())


class OfProposer:
    """A proposer of the tool, held to the rows."""

    def __init__(self, world: World, make: Callable[[Sequence[Configuration]], Proposer]) -> None:
        self._world = world
        self._proposer = make(world.configurations)
        self._places = {c: i for i, c in enumerate(world.configurations)}

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        proposed = self._proposer.propose(history, len(history))
        if proposed is None:  # everything left is ruled out; the search would end here
            return next(int(i) for i, free in enumerate(left) if free)
        return self._places[proposed[0]]


class Forgetful(TwoTrackProposer):
    """It rules nothing out."""

    def _regions(self, trials: Sequence[Trial]) -> tuple[()]:  # noqa: ARG002
        return ()


def house(
    world: World, sampler: StudySampler, seed: int, rows: Sequence[Configuration], kind: type[TwoTrackProposer]
) -> Proposer:
    """The proposer of ``autotune start`` with all rows in one track: the fastest is looked for, whatever it changes."""
    baseline = world.table.header.baseline
    return kind(
        headline=rows,
        permitted=(),
        searched=SearchSpace.from_json(world.table.header.space).values,
        baseline=baseline,
        complete_baseline=baseline,
        sampler=sampler,
        seed=seed,
        one_memory=world.task.resources.device == "cpu",
        framework=world.task.resources.framework,
        device=world.task.resources.device,
    )


def _start(world: World, known: Known, seed: int) -> OfProposer:  # noqa: ARG001
    return OfProposer(world, lambda rows: house(world, SAMPLERS["tpe"], seed, rows, TwoTrackProposer))


def _grey(without: str, world: World, known: Known, seed: int) -> OfProposer:
    made = importlib.import_module(GREY_MODULE).GreySampler(_models(without, world, known))
    kind = Forgetful if without == "dominance" else TwoTrackProposer
    return OfProposer(world, lambda rows: house(world, made, seed, rows, kind))


def _models(without: str, world: World, known: Known) -> Any:
    times: TimeModel | None = known.times
    if without == "times":
        times = None
    elif without == "residual" and times is not None:
        times = PriorOnly(times)
    elif without == "wrong" and times is not None:
        times = with_wrong_prior(times)
    peaks = None if without == "memory" else known.peaks
    return importlib.import_module(MODULE).Models(task=world.task, times=times, peaks=peaks)


SEARCHES: Mapping[str, tuple[Callable[[World, Known, int], OfProposer], tuple[str, ...]]] = {
    "start": (_start, ()),
    "grey": (partial(_grey, ""), (GREY_MODULE,)),
    "grey-residual": (partial(_grey, "residual"), (GREY_MODULE,)),
    "grey-times": (partial(_grey, "times"), (GREY_MODULE,)),
    "grey-memory": (partial(_grey, "memory"), (GREY_MODULE,)),
    "grey-dominance": (partial(_grey, "dominance"), (GREY_MODULE,)),
    "grey-wrong": (partial(_grey, "wrong"), (GREY_MODULE,)),
}
"""Name -> (how it begins, modules it needs)."""
