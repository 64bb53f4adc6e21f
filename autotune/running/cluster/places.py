"""Which places of a cluster a study has: nodes, shared out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.machine.gpu_choice import counted
from autotune.running.cluster.agent import Share


@dataclass(frozen=True)
class Node:
    """One machine of a cluster."""

    id: str
    name: str
    """As people call it; each has another."""
    cpus: int
    gpus: int


@dataclass(frozen=True)
class ClusterPlace:
    """A place for trials on one node."""

    node: Node
    share: Share

    @property
    def cpus(self) -> int:
        """Cores to ask the cluster for."""
        return max(1, self.node.cpus // self.share.count)


def planned(nodes: Sequence[Node], gpus: int | None, at_once: int | None) -> tuple[ClusterPlace, ...]:
    """As many places as fit, shared out evenly; on nodes without GPUs one each, unless more are asked for.

    Args:
        gpus: of one trial; 0: trials run on CPUs.
        at_once: trials side by side; ``None``: as many as fit.

    Raises:
        UsageError: they do not fit.
    """
    if gpus is None:
        raise UsageError("--ray: say with --gpus how many GPUs one trial has; 0 is a run on CPUs")
    room = [node.gpus // gpus if gpus else node.cpus for node in nodes]
    whole = sum(room) if gpus or at_once else sum(1 for cpus in room if cpus)
    wanted = whole if at_once is None else at_once
    if wanted > sum(room) or not wanted:
        each = f"{counted(gpus)} each" if gpus else "a CPU core each"
        raise UsageError(
            f"--ray: {wanted or 1} trial{'s' * (wanted > 1)} of {each} do not fit on {_told(nodes)}; {sum(room)} would"
        )
    counts = [0] * len(nodes)
    for _ in range(wanted):
        emptiest = min((n for n in range(len(nodes)) if counts[n] < room[n]), key=lambda n: counts[n])
        counts[emptiest] += 1
    return _numbered(nodes, counts, gpus)


def _numbered(nodes: Sequence[Node], counts: Sequence[int], gpus: int) -> tuple[ClusterPlace, ...]:
    spots = [(node, index, count) for node, count in zip(nodes, counts, strict=True) for index in range(count)]
    return tuple(
        ClusterPlace(node, Share(number, index, count, gpus)) for number, (node, index, count) in enumerate(spots)
    )


def _told(nodes: Sequence[Node]) -> str:
    return ", ".join(f"{node.name} ({node.cpus} CPUs, {counted(node.gpus)})" for node in nodes) or "no node"


def distinct(names: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """Names of nodes; where two have the same, each with the beginning of its id."""
    return tuple(
        name if names.count(name) == 1 else f"{name}-{number[:6]}" for name, number in zip(names, ids, strict=True)
    )
