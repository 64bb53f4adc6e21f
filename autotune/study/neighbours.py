"""Assigns trials of a study to slots and nodes, so that no gain is due to a neighbour or a faster node. Pure.

Trials share memory bandwidth, PCIe lanes, power and disks, so copies of the baseline run at once in every slot. Each
node runs the baseline, and both halves of a confirmation round run on one node; if the node of a half is gone, both
halves run again.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autotune.domain import Study, Trial, TrialDraft, TrialKind, TrialState
from autotune.study.protocols import protocol_of

SOURCE = "beside"
"""Source of a copy, followed by the number of parallel trials: ``beside/8``."""
NODE = "node"
"""Source of a node's own baseline: ``node/NAME``."""
MOST = 0.03
"""Largest slowdown of a cycle by other trials, as a share, at which a confirmation may run beside them."""


def source(at_once: int) -> str:
    """Returns the ``Trial.source`` of a copy."""
    return f"{SOURCE}/{at_once}"


def copies(trials: Sequence[Trial], at_once: int) -> list[Trial]:
    """Returns the baseline's copies for ``at_once`` trials, in any state, except copies ended by machine or person."""
    return [t for t in trials if t.source == source(at_once) and not t.inconclusive]


def due(study: Study, trials: Sequence[Trial], at_once: int) -> TrialDraft | None:
    """Returns the next copy; ``None`` if all have been started, or the baseline was not feasible."""
    held = any(t.kind is TrialKind.BASELINE and t.feasible for t in trials)
    if at_once == 1 or not held or len(copies(trials, at_once)) >= at_once:
        return None
    return _copy(study, source(at_once))


def _copy(study: Study, source: str) -> TrialDraft:
    protocol = replace(protocol_of(study), natural=0, maximum=0, double=0)
    return study.draft(TrialKind.VERIFY, study.spec.baseline, protocol, source)


@dataclass(frozen=True)
class Check:
    """Result of the copies that ran at once."""

    at_once: int
    slower: float | None
    """Slowdown of a cycle by the other trials, as a share; ``None`` if a copy failed."""

    @property
    def fine(self) -> bool:
        """True if confirmations may run beside other trials."""
        return self.slower is not None and self.slower <= MOST

    def sentence(self) -> str:
        """Describes the result and its consequence in one sentence."""
        follows = "confirmations run beside other trials" if self.fine else "confirmations run alone"
        if self.slower is None:
            return f"of {self.at_once} copies of the baseline side by side not all held: {follows}"
        more = f"{100 * abs(self.slower):.1f} % {'longer' if self.slower >= 0 else 'less'}"
        return f"a cycle of the baseline took {more} beside {self.at_once - 1} copies of itself than alone: {follows}"


def checked(trials: Sequence[Trial], at_once: int) -> Check | None:
    """Compares the copies with the baseline; ``None`` until every copy has ended."""
    found = copies(trials, at_once)
    if at_once == 1 or len(found) < at_once or not all(t.state.is_finished for t in found):
        return None
    alone = [t for t in trials if t.kind is TrialKind.BASELINE and t.feasible]
    if not alone or not all(t.feasible and t.speed_cycles() for t in found):
        return Check(at_once, None)
    there = [t for t in found if t.node == alone[-1].node] or found
    slower = statistics.fmean(map(_pace, there)) - statistics.fmean(map(_pace, alone))
    return Check(at_once, math.expm1(slower))


def _pace(trial: Trial) -> float:
    """Returns the mean logarithm of the seconds per token."""
    return statistics.fmean(math.log(c.seconds / max(1, c.completion_tokens)) for c in trial.speed_cycles())


def fine(trials: Sequence[Trial], at_once: int) -> bool:
    """Tells whether the check was made and found an effect of at most ``MOST``."""
    found = checked(trials, at_once)
    return found is not None and found.fine


def must_wait(trials: Sequence[Trial], kind: TrialKind, at_once: int, node: str = "") -> bool:
    """Tells whether a trial of ``kind`` has to wait, on ``node``, for running trials.

    The baseline runs alone. So does a confirmation on its node, unless neighbours do not disturb it. Only one
    confirmation runs at a time, and no search trial beside copies of the baseline.
    """
    running = [t for t in trials if t.state is TrialState.RUNNING]
    if not running:
        return False
    calm = fine(trials, at_once)
    kinds, here = {t.kind for t in running}, {t.kind for t in running if t.node == node}
    alone = TrialKind.CONFIRM in here or (kind is TrialKind.CONFIRM and here)
    if TrialKind.BASELINE in (kind, *kinds) or (alone and not calm):
        return True
    if kind is TrialKind.SEARCH and any(t.source == source(at_once) for t in running):
        return True
    return kind is TrialKind.CONFIRM and TrialKind.CONFIRM in kinds


@dataclass(frozen=True)
class Slot:
    """A free trial slot, among the study's others."""

    here: tuple[Trial, ...] | None = None
    """Finished trials of the slot, in their order; ``None`` if it is the only slot."""
    node: str = ""
    """Name of the slot's machine; empty if there is one machine."""
    nodes: tuple[str, ...] = ()
    """Nodes of all slots that take trials."""


ALONE = Slot()
"""The only slot of a study."""


def node_due(study: Study, trials: Sequence[Trial], slot: Slot) -> TrialDraft | None:
    """Returns the baseline of the slot's node if it still lacks one, among several nodes; ``None`` before any fits."""
    spec = study.spec
    own = [t for t in trials if t.configuration == spec.baseline and t.kind is not TrialKind.SEARCH]
    held = any(t.feasible for t in own)
    if len(set(slot.nodes)) < 2 or not held or any(t.node == slot.node and not t.inconclusive for t in own):
        return None
    return _copy(study, f"{NODE}/{slot.node}")


def whole_rounds(trials: Sequence[Trial], nodes: Collection[str]) -> Sequence[Trial]:
    """Returns ``trials`` without finished halves of rounds whose other half cannot follow, because their node is gone.
    ``nodes`` are those that take trials; none, or an empty name, is this machine without a cluster."""
    nodes = nodes or ("",)
    rounds: dict[tuple[int, str], set[str]] = {}
    for trial in trials:
        if trial.kind is TrialKind.CONFIRM and trial.pair is not None and trial.fits:
            rounds.setdefault((trial.pair, trial.node), set()).add(trial.configuration.key)
    halves = (t for t in trials if t.kind is TrialKind.CONFIRM and t.pair is not None and t.state.is_finished)
    lost = [t for t in halves if t.node not in nodes and len(rounds.get((t.pair or 0, t.node), ())) < 2]
    return [t for t in trials if t not in lost] if lost else trials


def node_of_round(trials: Sequence[Trial], pair: int | None) -> str:
    """Returns the node of a confirmation round; empty before its first half."""
    halves = [t for t in trials if t.kind is TrialKind.CONFIRM and t.pair == pair and t.node and not t.inconclusive]
    return halves[-1].node if halves else ""


def confirming(trials: Sequence[Trial], pair: int | None, slot: Slot) -> bool:
    """Tells whether the round's next trial runs on the slot's node: that of its other half, else the least loaded."""
    if len(set(slot.nodes)) < 2:
        return True
    where = node_of_round(trials, pair)
    running = Counter(t.node for t in trials if t.state is TrialState.RUNNING)
    least = min(set(slot.nodes), key=lambda name: (running[name], name))
    return slot.node == (where if where in slot.nodes else least)


def waits_for(trials: Sequence[Trial], waiting: Trial, slot: Slot) -> bool:
    """Tells whether a waiting trial of an earlier attempt belongs to another node."""
    others = [t for t in trials if t.number != waiting.number]
    if waiting.kind is TrialKind.CONFIRM:
        return not confirming(others, waiting.pair, slot)
    name = waiting.source.removeprefix(f"{NODE}/") if waiting.source.startswith(f"{NODE}/") else slot.node
    return name != slot.node and name in slot.nodes
