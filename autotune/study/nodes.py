"""Assigns trials of a study to nodes, so that no gain is a faster node's. Pure. Each node runs the baseline, and one
node both halves of a round of confirmation; a half whose node is gone runs again with its other half."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autotune.domain import Study, Trial, TrialDraft, TrialKind, TrialState
from autotune.study.protocols import protocol_of

SOURCE = "node"
"""Of a node's own baseline: ``node/NAME``."""


@dataclass(frozen=True)
class Spot:
    """A place that is free, among the others."""

    here: tuple[Trial, ...] = ()
    """Finished trials of the place, in their order."""
    node: str = ""
    """Empty where there is one machine."""
    nodes: tuple[str, ...] = ()
    """Of all places that take trials."""


def due(study: Study, trials: Sequence[Trial], spot: Spot) -> TrialDraft | None:
    """Returns the baseline of the spot's node if that has none yet, among several; ``None`` before any has held."""
    spec = study.spec
    own = [t for t in trials if t.configuration == spec.baseline and t.kind is not TrialKind.SEARCH]
    held = any(t.feasible for t in own)
    if len(set(spot.nodes)) < 2 or not held or any(t.node == spot.node and not t.inconclusive for t in own):
        return None
    protocol = replace(protocol_of(study), natural=0, maximum=0, double=0)
    return study.draft(TrialKind.VERIFY, spec.baseline, protocol, f"{SOURCE}/{spot.node}")


def whole_rounds(trials: Sequence[Trial], nodes: Collection[str]) -> Sequence[Trial]:
    """Returns ``trials`` without finished halves of rounds whose other half cannot follow, because their node is gone.
    An empty name in ``nodes``, which take trials, or none is this machine without a cluster."""
    nodes = nodes or ("",)
    rounds: dict[tuple[int, str], set[str]] = {}
    for trial in trials:
        if trial.kind is TrialKind.CONFIRM and trial.pair is not None and trial.fits:
            rounds.setdefault((trial.pair, trial.node), set()).add(trial.configuration.key)
    halves = (t for t in trials if t.kind is TrialKind.CONFIRM and t.pair is not None and t.state.is_finished)
    lost = [t for t in halves if t.node not in nodes and len(rounds.get((t.pair or 0, t.node), ())) < 2]
    return [t for t in trials if t not in lost] if lost else trials


def node_of_round(trials: Sequence[Trial], pair: int | None) -> str:
    """Returns the node of a round of confirmation; empty before its first half."""
    halves = [t for t in trials if t.kind is TrialKind.CONFIRM and t.pair == pair and t.node and not t.inconclusive]
    return halves[-1].node if halves else ""


def confirming(trials: Sequence[Trial], pair: int | None, spot: Spot) -> bool:
    """Tells whether the round's next trial is for the spot's node: that of its other half, else the least loaded."""
    if len(set(spot.nodes)) < 2:
        return True
    where = node_of_round(trials, pair)
    running = Counter(t.node for t in trials if t.state is TrialState.RUNNING)
    least = min(set(spot.nodes), key=lambda name: (running[name], name))
    return spot.node == (where if where in spot.nodes else least)


def waits_for(trials: Sequence[Trial], waiting: Trial, spot: Spot) -> bool:
    """Tells whether a trial that an earlier attempt left behind is for another node."""
    others = [t for t in trials if t.number != waiting.number]
    if waiting.kind is TrialKind.CONFIRM:
        return not confirming(others, waiting.pair, spot)
    name = waiting.source.removeprefix(f"{SOURCE}/") if waiting.source.startswith(f"{SOURCE}/") else spot.node
    return name != spot.node and name in spot.nodes
