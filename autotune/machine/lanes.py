"""Divides one machine among parallel trials: GPUs, CPUs and memory of each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.wording.numbers import format_size

CPUS_VARIABLE = "AUTOTUNE_TRIAL_CPUS"
"""Environment variable that names the CPUs a trial may use, as ``0,1,2``: load on others is no disturbance."""


@dataclass(frozen=True)
class Lane:
    """Share of the machine for one trial."""

    index: int
    gpus: tuple[int, ...]
    """Indices among the study's GPUs."""
    cpus: tuple[int, ...]
    memory: int | None
    """Host memory that a trial may use, in bytes; ``None``: not known."""
    numbers: tuple[int, ...] = ()
    """The driver's indices of the lane's GPUs."""

    @property
    def name(self) -> str:
        """Name for people: ``GPU 3``, ``GPUs 2 and 3``, ``CPUs 0-3``."""
        if not self.gpus:
            return _with_numbers("CPU", self.cpus)
        return _with_numbers("GPU", self.numbers or self.gpus)


def lanes(
    at_once: int,
    gpus: int,
    cpus: Sequence[int],
    memory: int | None,
    memory_limit: int | None,
    numbers: Sequence[int] = (),
    near: Sequence[Sequence[int]] = (),
    threads: int = 1,
) -> tuple[Lane, ...]:
    """Returns equal shares of the machine: GPUs, adjacent CPUs on the socket of the first GPU if possible, memory.

    Args:
        at_once: number of parallel trials.
        gpus: GPUs of one trial.
        cpus: CPUs that this process may use.
        memory: bytes that this process may use; ``None``: not known.
        memory_limit: bytes that the study allows each trial; there must be enough for all.
        numbers: GPUs that the study holds, in the driver's order.
        near: CPUs on the socket of each of these GPUs.
        threads: CPUs of one core, adjacent in ``cpus``; no two trials share a core, if there are enough cores.

    Raises:
        UsageError: the machine is too small.
    """
    each = len(cpus) // at_once
    if each < 1:
        raise UsageError(f"--at-once {at_once}: a trial needs a CPU core of its own, and there are {len(cpus)}")
    each -= each % threads if each > threads else 0
    if memory is not None and memory_limit is not None and at_once * memory_limit > memory:
        raise UsageError(
            f"--at-once {at_once}: {at_once} trials of {format_size(memory_limit)} (--memory-limit) need more than the "
            f"{format_size(memory)} there are"
        )
    share = memory_limit if memory is None or memory_limit is not None else memory // at_once
    free, found = list(cpus), list[Lane]()
    for place in range(at_once):
        own = range(place * gpus, (place + 1) * gpus)
        beside = frozenset(near[own.start] if near and gpus else ())
        nearest = sorted(free, key=lambda cpu: cpu not in beside)[:each]
        free = [cpu for cpu in free if cpu not in nearest]
        found.append(Lane(place, tuple(own), tuple(sorted(nearest)), share, tuple(numbers[own.start : own.stop])))
    return tuple(found)


def _with_numbers(what: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    if tuple(numbers) == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{what}s {numbers[0]}-{numbers[-1]}"
    return f"{what}s {', '.join(map(str, numbers))}"
