"""Who proposes: ``grey`` and ``tpe`` as ``autotune start --sampler`` has them, and peers as published with our memory
filter.

A peer has no openings and no moves; it is told of the baseline and the search trials, as in ``benchmarks.search``, and
proposes nothing that our memory filter holds back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from autotune.domain import Configuration, Protocol, Trial, TrialKind
from autotune.ports import Proposer
from autotune.proposals.proposer import TwoTrackProposer, make_proposer
from autotune.proposals.samplers import named_sampler
from autotune.tables.table import Header, RecordedTable, TableRow
from benchmarks.decisions.studies import Arm, Place
from benchmarks.search.arms import ARMS as PEERS
from benchmarks.search.models import Known, models_of, passing
from benchmarks.search.ours import house
from benchmarks.search.replay import Session
from benchmarks.search.world import World

FILTERED = {"optuna": "tpe+filter", **{name: f"{name}+filter" for name in ("random", "deepspeed", "smac", "ax")}}
"""Name of an arm -> the peer of ``benchmarks.search`` it is."""


def world_of(place: Place) -> World:
    """The place's candidates as ``benchmarks.search`` wants them: nothing is measured in it."""
    spec = place.spec
    header = Header(
        study=place.name, framework=spec.framework, model="recorded", resources=spec.resources, space=spec.space,
        baseline=spec.baseline, rows_per_update=spec.workload.rows_per_update,
        max_prompt_length=spec.workload.max_prompt_length, max_completion_length=spec.workload.max_completion_length,
        protocol=Protocol(lengths=place.lengths), memory_limit=spec.memory_limit, probe=place.prior_data.probe,
    )  # fmt: skip
    every = dict.fromkeys((spec.baseline, *place.candidates))
    trials = (
        Trial(1, n, TrialKind.SEARCH, c, Protocol(), spec.workload.rows_per_update, "row", 0.0)
        for n, c in enumerate(every)
    )
    return World(RecordedTable(header, tuple(TableRow(trial, same_learning=True) for trial in trials)))


@dataclass
class OfSession:
    """A search of ``benchmarks.search`` as a proposer of the loop. It keeps what the search keeps."""

    world: World
    known: Known
    session: Session

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:  # noqa: ARG002
        trials = [t for t in history if t.kind.is_searched and t.state.is_finished]
        taken = {t.configuration for t in history}
        left = np.array([c not in taken for c in self.world.configurations], dtype=np.bool_)
        allowed = left & passing(self.world, self.known, trials)
        if not allowed.any():
            return None
        return self.world.configurations[self.session.propose(trials, allowed)], "peer"

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:  # noqa: ARG002
        return None

    def count_ruled_out(self, history: Sequence[Trial]) -> int:  # noqa: ARG002
        return 0


_MADE: dict[tuple[int, str], TwoTrackProposer] = {}


def _own(sampler: str, place: Place, seed: int) -> Proposer:
    """Made once for each place: what is known of 50,000 candidates before any trial takes half a minute to work out."""
    key = id(place), sampler
    if key not in _MADE:
        _MADE[key] = _made(sampler, place)
    return _MADE[key].seeded(seed)


def _made(sampler: str, place: Place) -> TwoTrackProposer:
    spec = place.spec
    if place.rows:
        sampling = named_sampler(sampler).bind(place.task, place.prior_data)
        return cast(TwoTrackProposer, house(world_of(place), sampling, 0, place.rows, TwoTrackProposer))
    made = make_proposer(
        place.space, spec.baseline, spec.resources, sampler, 0, task=place.task, prior_data=place.prior_data
    )
    return cast(TwoTrackProposer, made)


def _peer(name: str, place: Place, seed: int) -> Proposer:
    world = _world(place)
    known = models_of(place.task, place.prior_data.probe)
    return OfSession(world, known, PEERS[name].begin(world, known, seed))


_WORLDS: dict[int, World] = {}


def _world(place: Place) -> World:
    """Made once for each place: it holds 50,000 candidates."""
    if id(place) not in _WORLDS:
        _WORLDS[id(place)] = world_of(place)
    return _WORLDS[id(place)]


def _arm(make: Callable[[str, Place, int], Proposer], name: str) -> Arm:
    return lambda place, seed: make(name, place, seed)


ARMS: Mapping[str, Arm] = {
    "grey": _arm(_own, "grey"),
    "tpe": _arm(_own, "tpe"),
    "own-random": _arm(_own, "random"),
    **{name: _arm(_peer, peer) for name, peer in FILTERED.items()},
}


def lacks(name: str) -> str:
    """Why an arm cannot run here; empty if it can."""
    return PEERS[FILTERED[name]].lacks(Known()) if name in FILTERED else ""
