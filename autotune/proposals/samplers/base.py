"""What a sampler is: a pure choice of one candidate out of those that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import Background, Task
from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.translation import Evidence
from search_spaces.configuration import KnobValue


class Sampler(Protocol):
    """Keeps nothing between calls; the same arguments give the same choice."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules it imports when it chooses, and that may be missing."""
        ...

    @property
    def learns(self) -> bool:
        """It chooses by what is known; moves are made before it is asked (``proposals.moves``)."""
        ...

    def choose(
        self,
        lattice: Lattice,
        left: Mask,
        evidence: Sequence[Evidence],
        seed: int,
        start: Mapping[str, KnobValue] | None,
    ) -> int:
        """The index of a candidate of ``left``.

        Args:
            lattice: the candidates.
            left: those that may be chosen; at least one.
            evidence: what is known, by trial number; the sampler may leave it aside.
            seed: 32 bits, uniform.
            start: coordinates along some dimensions that are good elsewhere, to begin at; may be left aside too.
        """
        ...


@runtime_checkable
class ReadingSampler(Protocol):
    """A sampler that reads more than evidence."""

    def for_task(self, task: Task, background: Background | None = None) -> Sampler:
        """The same for one study, with what is known of it beforehand."""
        ...

    def informed(self, trials: Sequence[Trial], known: Sequence[Evidence]) -> PreparedSampler:
        """The same at a point of a study: its trials, and what they teach. Pure."""
        ...


def for_task(sampler: Sampler, task: Task | None, background: Background | None = None) -> Sampler:
    """``ReadingSampler.for_task``; a sampler that reads nothing, or of no known task, is what it is."""
    if task is None or not isinstance(sampler, ReadingSampler):
        return sampler
    return sampler.for_task(task, background)


def may_fit(sampler: Sampler, configuration: Configuration) -> bool:
    """``PreparedSampler.may_fit``; of a sampler that knows nothing of memory, yes."""
    return not isinstance(sampler, PreparedSampler) or sampler.may_fit(configuration)


@runtime_checkable
class PreparedSampler(Sampler, Protocol):
    """A sampler for one proposal."""

    def may_fit(self, configuration: Configuration) -> bool:
        """Whether memory is likely to suffice, as far as it knows."""
        ...

    def prepare(self, lattice: Lattice) -> None:
        """Compute ahead, and keep, what a choice after the newest trial's end will need."""
        ...
