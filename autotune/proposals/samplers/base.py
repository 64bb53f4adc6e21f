"""What a sampler is: a pure choice of one candidate out of those that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

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
