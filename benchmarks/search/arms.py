"""The searches that are compared: who proposes, what of ours it is given, and what it needs beside the tool.

``NAME`` is a peer as it is published, ``NAME+filter`` the same kept from rows our memory filter holds back,
``NAME+filter+prior`` also begun with the rows our time model expects to be the fastest. How each is told of a failed
trial is in its session's docstring. Every arm has the baseline's trial before it begins, and proposes no row twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import optuna

from autotune.domain import Trial
from autotune.proposals.candidate_grid import Mask
from autotune.proposals.proposer import draw
from autotune.proposals.translation import asked, evidence, rebuilt_study
from benchmarks.search import optuna_peers, ours, peers
from benchmarks.search.models import Known, passing, prior_order, there
from benchmarks.search.replay import Filter, Session
from benchmarks.search.world import World

FILTER, PRIOR = "+filter", "+prior"
PRIOR_FIRST = 10
"""Rows in the prior's order before the peer itself is asked: as many as Optuna's own random start."""
DRAWS = 64
"""Draws of Optuna's TPE that are no row, before the row nearest to the first is taken."""

Begin = Callable[[World, Known, int], Session]
"""World, models, seed -> a new search."""


@dataclass(frozen=True)
class Arm:
    """One search."""

    name: str
    begin: Begin
    needs: tuple[str, ...] = ()
    """Modules beside the tool's."""
    filtered: bool = False
    wants_times: bool = False
    """It cannot do without a time model."""
    is_ours: bool = False

    def lacks(self, known: Known) -> str:
        """Why it cannot run here; empty if it can."""
        missing = [module for module in self.needs if not there(module)]
        if any(module.startswith("autotune.") for module in missing):
            return "this installation has no such sampler"
        if missing:
            return f"needs {' and '.join(missing)} (`make env-search`)"
        return "needs a time model, of which this installation has none" if self.wants_times and not known.times else ""

    def memory_filter(self, world: World, known: Known) -> Filter | None:
        """The filter this arm is given."""
        return partial(passing, world, known) if self.filtered else None


class Blind:
    """Rows in an order made without looking: random's and the grid's. A failure changes nothing."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order

    def propose(self, history: Sequence[Trial], left: Mask) -> int:  # noqa: ARG002
        return next(row for row in self._order if left[row])


class Tpe:
    """Optuna's TPE with its own defaults; every trial has a constraint, broken by what failed.

    A failed trial is told with the worst value measured: left as FAIL it would be invisible, and asked for again.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._seed = world, seed

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        grid = self._world.places
        sampler = optuna.samplers.TPESampler(seed=draw(self._seed, len(history)))
        study = rebuilt_study(grid, evidence(_spelt(self._world, history)), sampler)
        return asked(study, grid, left, DRAWS)


class OfOptuna:
    """Another of Optuna's samplers, held to the rows that are left."""

    def __init__(self, world: World, choose: optuna_peers.Choose, seed: int) -> None:
        self._world, self._choose, self._seed = world, choose, seed

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        seed = draw(self._seed, len(history))
        return self._choose(self._world.places, left, evidence(_spelt(self._world, history)), seed)


class Begun:
    """Another search, begun with the first rows of an order."""

    def __init__(self, order: Sequence[int], inner: Session) -> None:
        self._order, self._inner = order, inner

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        if len(history) <= PRIOR_FIRST:
            row = next((row for row in self._order if left[row]), None)
            if row is not None:
                return row
        return self._inner.propose(history, left)


def _spelt(world: World, history: Sequence[Trial]) -> list[Trial]:
    return [t.with_(configuration=world.spelt(t.configuration)) for t in history]


def _random(world: World, known: Known, seed: int) -> Session:  # noqa: ARG001
    chance = np.random.default_rng([seed, len(world.configurations)])
    return Blind([int(i) for i in chance.permutation(len(world.configurations))])


def _grid(world: World, known: Known, seed: int) -> Session:  # noqa: ARG001
    """Values of the first knob slowest, as nested loops go; the same for every seed."""
    every = np.arange(len(world.configurations))
    points = world.places.places(every).tolist()
    return Blind(sorted(range(len(points)), key=lambda i: points[i]))


def _prior(world: World, known: Known, seed: int) -> Session:  # noqa: ARG001
    return Blind(prior_order(world, known) or range(len(world.configurations)))


def _tpe(world: World, known: Known, seed: int) -> Session:  # noqa: ARG001
    return Tpe(world, seed)


def _gp(world: World, known: Known, seed: int) -> Session:  # noqa: ARG001
    return OfOptuna(world, optuna_peers.gp, seed)


def _cmaes(world: World, known: Known, seed: int) -> Session:  # noqa: ARG001
    return OfOptuna(world, optuna_peers.cmaes, seed)


def _begun(inner: Begin, world: World, known: Known, seed: int) -> Session:
    return Begun(prior_order(world, known) or (), inner(world, known, seed))


def _peer(name: str, begin: Begin, needs: tuple[str, ...] = (), *, prior: bool = False) -> list[Arm]:
    """Native, with the filter, and where asked for with the prior order too."""
    made = [Arm(name, begin, needs), Arm(name + FILTER, begin, needs, filtered=True)]
    if prior:
        made.append(Arm(name + FILTER + PRIOR, partial(_begun, begin), needs, filtered=True, wants_times=True))
    return made


def _all() -> list[Arm]:
    return [
        *_peer("random", _random),
        *_peer("grid", _grid),
        *_peer("tpe", _tpe, prior=True),
        *_peer("gp", _gp, optuna_peers.GP_NEEDS, prior=True),
        *_peer("cmaes", _cmaes, optuna_peers.CMAES_NEEDS),
        *_peer("deepspeed", lambda world, _, seed: peers.DeepSpeed(world, seed), ("xgboost",)),
        *_peer("smac", lambda world, _, seed: peers.Smac(world, seed), ("smac", "ConfigSpace")),
        *_peer("ax", lambda world, _, seed: peers.Ax(world, seed), ("ax", "botorch")),
        Arm("prior" + FILTER, _prior, filtered=True, wants_times=True, is_ours=True),
        *(Arm(name, begin, needs, is_ours=True) for name, (begin, needs) in ours.SEARCHES.items()),
    ]


ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _all()}
"""By name, in the order of the table."""
OURS = "grey"
"""The arm that is compared with the others."""


def best_peer(found: Mapping[str, Sequence[float]]) -> str | None:
    """The peer with our filter that reaches the goal in the fewest trials.

    Args:
        found: trials to the goal by seed, for each arm; ``inf`` where it was not reached.
    """
    peers_there = [a for a in found if a.endswith(FILTER) and not ARMS[a].is_ours]
    return min(peers_there, key=lambda a: (float(np.median(found[a])), _finite_mean(found[a])), default=None)


def _finite_mean(values: Sequence[float]) -> float:
    reached = [v for v in values if v != float("inf")]
    return float(np.mean(reached)) if reached else float("inf")
