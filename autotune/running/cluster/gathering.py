"""Reserves a study's places (trial slots) in a cluster, and checks that trials can run there."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import MachineError
from autotune.machine.gpu_choice import ALIKE
from autotune.ports import Clock, TrialRunner
from autotune.running.cluster.agent import SILENCE_S, Facts
from autotune.running.cluster.places import ClusterPlace, Gang, planned
from autotune.running.cluster.ray_cluster import RESERVE_S, RayAgent, RayCluster
from autotune.running.cluster.runner import GangRunner, LostError, PlaceRunner
from autotune.running.local import LocalRunner
from autotune.wording.numbers import format_size

T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """A study's reserved trial slots in a cluster."""

    cluster: RayCluster
    places: tuple[Gang, ...]


def take(
    address: str,
    gpus: int | None,
    at_once: int | None,
    say: Callable[[str], None],
    silence_s: float = SILENCE_S,
    together: int = 1,
) -> Spread:
    """Connects to the cluster and reserves ``at_once`` trial slots, by default all that are free now.

    Args:
        gpus: GPUs of a trial on each of its nodes.
        together: number of nodes per trial.

    Raises:
        UsageError: the slots do not fit on the cluster.
        MachineError: no cluster answers, or other jobs hold the slots.
    """
    cluster = RayCluster(address, silence_s)
    places = planned(cluster.nodes(), gpus, at_once, together)
    for gang in places:
        cluster.reserve(*gang)
    until = time.monotonic() + RESERVE_S
    had = tuple(gang for gang in places if cluster.had(gang[0], until))
    if not had or (at_once is not None and len(had) < at_once):
        cluster.close()
        raise MachineError(
            f"--ray {address}: of {len(places)} places {len(had)} can be had now; others of the cluster hold the rest "
            "(`ray status` tells)"
        )
    for gang in places:
        if gang not in had:
            cluster.release(gang[0].share.place)
    if len(had) < len(places):
        say(f"{len(places) - len(had)} of {len(places)} places are held by others of the cluster and not used")
    gangs = Counter("+".join(_names(gang)) for gang in had)
    where = ", ".join(f"{name} ({times})" for name, times in gangs.items())
    say(f"{len(had)} trial{'s' * (len(had) > 1)} at once on {where}")
    return Spread(cluster, had)


LOOKS_S = 240.0
"""Seconds for a node to examine itself, which imports the training framework."""


def on_every_node(
    address: str, work: Callable[..., T], *given: Any
) -> tuple[dict[str, T | Exception], dict[str, float]]:
    """Returns by node the result or error of ``work``, and the least seconds by which the node's clock is ahead.

    Raises:
        UsageError, MachineError: as ``take``.
    """
    cluster = RayCluster(address)
    try:
        nodes = cluster.nodes()
        asked = [(node, cluster.begin_on(node, work, *given)) for node in nodes]
        answers: dict[str, T | Exception] = {}
        ahead: dict[str, float] = {}
        for node, reference in asked:
            try:
                answers[node.name] = cluster.answer(node, reference, LOOKS_S)
                before = time.time()
                there = cluster.answer(node, cluster.begin_on(node, time.time), LOOKS_S)
                ahead[node.name] = there - min(max(there, before), time.time())
            except Exception as error:  # what stands in the way on one node is told beside the others
                answers.setdefault(node.name, error)
        return answers, ahead
    finally:
        cluster.close()


@dataclass(frozen=True)
class Gathered:
    """A trial slot of the cluster with its runner."""

    name: str
    node: str
    runner: TrialRunner


def gather(
    spread: Spread, runner_of: Callable[[ClusterPlace], LocalRunner], home: Path, memory_limit: int | None, clock: Clock
) -> tuple[Gathered, ...]:
    """Starts an agent on each node of every slot.

    Args:
        runner_of: makes the runner of a slot's agents; each slot has its own.
        home: the tuner's home folder, which every node must see at this path.
        memory_limit: bytes that a trial may use.

    Raises:
        MachineError: an agent cannot start, lacks the folder or the memory, or has another kind of GPU.
    """
    runners = [runner_of(gang[0]) for gang in spread.places]
    every = [(place, runner) for gang, runner in zip(spread.places, runners, strict=True) for place in gang]
    agents = [spread.cluster.hire(place, runner) for place, runner in every]
    facts = _meet([place for place, _ in every], agents, home)
    for (place, _), found in zip(every, facts, strict=True):
        if (why := unfit(found, facts[0], every[0][0].node.name, home, memory_limit)) is not None:
            raise MachineError(f"node {place.node.name} {why}")

    def part(place: ClusterPlace, runner: LocalRunner, agent: RayAgent) -> PlaceRunner:
        return PlaceRunner(
            hire=lambda: spread.cluster.hire(place, runner),
            release=lambda: spread.cluster.release(place.share.place),
            recover=runner.recover,
            clock=clock,
            agent=agent,
        )

    parts = iter([part(place, runner, agent) for (place, runner), agent in zip(every, agents, strict=True)])
    names = iter([found.name for found in facts])

    def gathered(gang: Gang, runner: LocalRunner) -> Gathered:
        own, node = [next(parts) for _ in gang], "+".join(_names(gang))
        held = ", ".join(dict.fromkeys(next(names) for _ in gang))
        alone = own[0] if len(own) == 1 else None
        together = GangRunner(own, gang[0].node.address, runner.framework.diagnose, clock)
        return Gathered(f"{node} {held}", node, alone or together)

    return tuple(map(gathered, spread.places, runners))


def _meet(places: Sequence[ClusterPlace], agents: Sequence[RayAgent], home: Path) -> list[Facts]:
    text = secrets.token_hex(16)
    file = home / f"shared-{text}.txt"
    file.write_text(text, encoding="utf-8")
    try:
        return [agent.meet(file, text) for agent in agents]
    except LostError as error:
        raise MachineError(f"an agent of {len(places)} did not start: {error}") from None
    finally:
        file.unlink(missing_ok=True)


def unfit(facts: Facts, first: Facts, first_name: str, home: Path, memory_limit: int | None) -> str | None:
    """Returns the reason why a slot cannot be used; ``None`` if it can. Pure.

    Args:
        first: facts of another slot, on the node ``first_name``.
    """
    if not facts.shares_folder:
        return f"does not see the tuner's folder {home}: name one that all nodes share with --home"
    if memory_limit is not None and facts.memory is not None and memory_limit > facts.memory:
        limit, there = format_size(memory_limit), format_size(facts.memory)
        return (
            f"has {there} of memory for a trial, less than the {limit} of --memory-limit: ask for fewer with --at-once"
        )
    for (kind, memory), (other, others) in zip(facts.gpus, first.gpus, strict=False):
        if kind != other or abs(memory - others) > ALIKE * others:
            mine, theirs = f"{kind} ({format_size(memory)})", f"{other} ({format_size(others)})"
            return f"has {mine} and node {first_name} {theirs}: trials are compared, so GPUs must be of one kind"
    if len(facts.gpus) != len(first.gpus):
        return f"shows {len(facts.gpus)} GPUs to a trial and node {first_name} {len(first.gpus)}"
    return None


def _names(gang: Gang) -> list[str]:
    return [place.node.name for place in gang]
