"""Protocols of the algorithm that proposes the next configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol as Port
from typing import runtime_checkable

from autotune.domain import Configuration, Trial


class Proposer(Port):
    """Proposes the next configuration. Stateless: the same arguments always give the same answer."""

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """The next configuration and who proposed it (``Trial.source``).

        Args:
            history: every trial of the study so far, any kind and state, by number. CANCELLED and
                INFRA failures teach nothing; RUNNING ones count as taken.
            number: of the trial to be proposed; with the study's seed it seeds the sampler.

        Returns:
            A legal configuration no trial of ``history`` has had and no OOM of it rules out, or
            ``None`` when none is left.
        """

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        """The sentence on which OOM rules ``configuration`` out, or ``None``."""

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        """Number of legal configurations that the OOMs of ``history`` rule out, including those that met one."""


@runtime_checkable
class FrugalProposer(Port):
    """A proposer that can propose a trial without a process start, for when too little time is left for one."""

    def propose_in_process(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """As ``Proposer.propose``, restricted to configurations that the newest trial's process can run unchanged."""


@runtime_checkable
class PlacedProposer(Port):
    """A proposer that can propose for one of several places, each with a process of its own that may go on."""

    def propose_at(
        self, history: Sequence[Trial], number: int, here: Sequence[Trial]
    ) -> tuple[Configuration, str] | None:
        """As ``Proposer.propose``, where the next trial would follow ``here``: the finished trials of its place."""
