"""Compares the nodes of a cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.cli.doctor.findings import Finding, Verdict, ok, problem, warning
from autotune.cli.doctor.machine_checks import BUSY, GPU_IDLE, LITTLE_MEMORY
from autotune.errors import MachineError
from autotune.frameworks.environments import Environment
from autotune.machine import hardware, other_load
from autotune.machine.other_load import CpuLoad
from autotune.specification.interpreter import probe
from autotune.wording.numbers import format_size, percent

CLOCK_S = 1.0
"""Largest difference of two nodes' clocks, in seconds."""
NOT_THERE = "not there"


@dataclass(frozen=True)
class NodeLook:
    """Hardware and software of one node."""

    cores: int
    memory: int | None
    available: int | None
    gpus: tuple[str, ...]
    """Model and memory of each GPU."""
    driver: str
    users: tuple[str, ...]
    """A sentence on each GPU that other processes use."""
    load: CpuLoad | None
    packages: Mapping[str, str]
    """Packages of the training interpreter, including Python itself; empty if the interpreter cannot be used."""
    problem: str = ""
    """Reason why the interpreter cannot be used."""


def look(python: str, environment: Environment) -> NodeLook:
    """Returns the facts of this machine that ``doctor --ray`` compares; called on each node."""
    packages, problem = _interpreter(python, environment)
    gpus = hardware.visible_gpus({})
    return NodeLook(
        cores=hardware.usable_cores(),
        memory=hardware.usable_memory(),
        available=other_load.available_memory(),
        gpus=tuple(f"{gpu.name} {format_size(gpu.memory)}" for gpu in gpus),
        driver=gpus[0].driver if gpus else "",
        users=tuple(
            f"GPU {gpu.index} has {format_size(gpu.memory_used)} in use"
            for gpu in gpus
            if gpu.processes or gpu.memory_used > GPU_IDLE
        ),
        load=other_load.sample_load(time.sleep),
        packages=packages,
        problem=problem,
    )


def _interpreter(python: str, environment: Environment) -> tuple[dict[str, str], str]:
    try:
        data = probe(python, environment)
    except MachineError as error:
        return {}, str(error)
    found = {"Python": str(data.get("python", ""))}
    found.update({name: str(version) for name, version in (data.get("packages") or {}).items() if version})
    return found, environment.problem(python, found["Python"], data.get("packages") or {})


def side_by_side(looks: Mapping[str, NodeLook], ahead: Mapping[str, float]) -> list[Finding]:
    """Returns a line for each node, and a sentence for each difference. Pure. ``ahead``: least seconds by which each
    node's clock is ahead of this machine's."""
    found = [ok(f"node {name}", _summary(each)) for name, each in looks.items()]
    for name, each in looks.items():
        found += [problem(f"node {name}", each.problem)] if each.problem else []
        found += [warning(f"node {name}", text) for text in (*_busy(each), *_clock(ahead.get(name, 0.0)))]
    return found + _differences(looks)


def _summary(each: NodeLook) -> str:
    gpus = ", ".join(f"{count} × {kind}" for kind, count in Counter(each.gpus).items())
    device = f"{gpus}, driver {each.driver}" if each.gpus else "no GPU"
    free = "" if each.available is None else f", {format_size(each.available)} of memory free"
    return f"{device}, {each.cores} CPU cores{free}, Python {each.packages.get('Python', NOT_THERE)}"


def _busy(each: NodeLook) -> list[str]:
    said = [f"{user}: trials on it are refused" for user in each.users]
    if each.load is not None and each.load.share > BUSY:
        who = ", ".join(f"{name} (process {pid})" for pid, name, _ in each.load.busiest)
        said.append(f"{percent(each.load.share)} of its CPU is in use{f' by {who}' if who else ''}")
    if each.memory and each.available is not None and each.available < LITTLE_MEMORY * each.memory:
        said.append(f"only {format_size(each.available)} of its {format_size(each.memory)} of memory are free")
    return said


def _clock(ahead: float) -> list[str]:
    if abs(ahead) <= CLOCK_S:
        return []
    return [f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the one here"]


def _differences(looks: Mapping[str, NodeLook]) -> list[Finding]:
    """Returns findings on nodes that differ from most nodes."""
    usable = {name: each for name, each in looks.items() if each.packages}
    names = list(dict.fromkeys(package for each in usable.values() for package in each.packages))
    found = []
    for package in names:
        versions = {name: each.packages.get(package, NOT_THERE) for name, each in usable.items()}
        found += _odd(package, versions, Verdict.WARNING if package == "Python" else Verdict.PROBLEM)
    found += _odd("driver", {name: each.driver or "none" for name, each in looks.items()}, Verdict.WARNING)
    kinds = {name: ", ".join(sorted(set(each.gpus))) or "none" for name, each in looks.items()}
    return found + _odd("GPUs", kinds, Verdict.PROBLEM)


def _odd(what: str, values: Mapping[str, str], verdict: Verdict) -> list[Finding]:
    """Returns a finding for each node whose value differs from most nodes."""
    if len(set(values.values())) < 2:
        return []
    usual = Counter(values.values()).most_common(1)[0][0]
    odd: Sequence[str] = [name for name, value in values.items() if value != usual]
    return [Finding(f"node {name}", verdict, f"{what}: {values[name]}, and most nodes have {usual}") for name in odd]
