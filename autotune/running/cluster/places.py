"""Assigns a study's places (trial slots) to the nodes of a cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.running.cluster.agent import Share
from autotune.wording.numbers import counted


@dataclass(frozen=True)
class Node:
    """A machine of a cluster."""

    id: str
    name: str
    """Name for people, unique in the cluster."""
    cpus: int
    gpus: int
    address: str = ""


@dataclass(frozen=True)
class ClusterPlace:
    """A trial slot on one node, or one node's part of a slot on several."""

    node: Node
    share: Share
    part: int = 0
    """Index of the part, from 0, in a slot on several nodes."""

    @property
    def cpus(self) -> int:
        """CPU cores to reserve in the cluster."""
        return max(1, self.node.cpus // self.share.count)


Gang = tuple[ClusterPlace, ...]
"""A trial slot: one node, or parts on several."""


def planned(nodes: Sequence[Node], gpus: int | None, at_once: int | None, together: int = 1) -> tuple[Gang, ...]:
    """Assigns trial slots to nodes, spread evenly: ``at_once`` slots, else all that fit (CPU trials: one per node).

    Args:
        gpus: GPUs of one trial on each of its nodes; 0: trials run on CPUs.
        at_once: trials that run at the same time; ``None``: as many as fit.
        together: number of nodes per trial.

    Raises:
        UsageError: the slots do not fit.
    """
    if gpus is None:
        raise UsageError("--ray: say with --gpus how many GPUs one trial has; 0 is a run on CPUs")
    # Each place asks for a core, so a node with fewer cores than GPUs has room for fewer.
    room = [min(node.cpus, node.gpus // gpus) if gpus else node.cpus for node in nodes]
    most = room if gpus or at_once else [min(1, cpus) for cpus in room]
    found = _shared_out(most, at_once, together)
    if not found or len(found) < (at_once or 0):
        wanted, would = at_once or 1, len(_shared_out(room, None, together))
        each = f"{counted(gpus, 'GPU')} each" if gpus else "a CPU core each"
        each += f" on {together} nodes" if together > 1 else ""
        raise UsageError(
            f"--ray: {wanted} trial{'s' * (wanted > 1)} of {each} do not fit on {_node_list(nodes)}; {would} would"
            + ("" if room == [n.gpus // max(1, gpus) for n in nodes] or not gpus else ", each with a CPU core")
        )
    return _numbered(nodes, sorted(found), gpus)


def _shared_out(room: Sequence[int], count: int | None, together: int) -> list[list[int]]:
    """Returns each slot's node indices, ascending: ``count`` slots, or as many as fit.

    A slot on one node goes to the least loaded node. A slot on several takes the nodes with most room, which gives the
    most slots.
    """
    left, found = list(room), list[list[int]]()
    while count is None or len(found) < count:
        key = (lambda n: left[n] - room[n]) if together == 1 else (lambda n: left[n])
        free = sorted((n for n in range(len(room)) if left[n]), key=key, reverse=True)[:together]
        if len(free) < together:
            break
        found.append(sorted(free))
        for n in free:
            left[n] -= 1
    return found


def _numbered(nodes: Sequence[Node], gangs: Sequence[Sequence[int]], gpus: int) -> tuple[Gang, ...]:
    counts = Counter(n for numbers in gangs for n in numbers)
    had = Counter[int]()

    def place(number: int, part: int, n: int) -> ClusterPlace:
        had[n] += 1
        return ClusterPlace(nodes[n], Share(number, had[n] - 1, counts[n], gpus), part)

    return tuple(
        tuple(place(number, part, n) for part, n in enumerate(numbers)) for number, numbers in enumerate(gangs)
    )


def _node_list(nodes: Sequence[Node]) -> str:
    return ", ".join(f"{node.name} ({node.cpus} CPUs, {counted(node.gpus, 'GPU')})" for node in nodes) or "no node"


def distinct(names: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """Returns the nodes' names; a name that occurs twice is followed by the beginning of the node's id."""
    return tuple(
        name if names.count(name) == 1 else f"{name}-{number[:6]}" for name, number in zip(names, ids, strict=True)
    )
