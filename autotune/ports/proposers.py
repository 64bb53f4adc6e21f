"""Protocols of the algorithm that proposes the next configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol as Port
from typing import runtime_checkable

from autotune.domain import Configuration, Trial


class Proposer(Port):
    """Proposes the next configuration. Stateless: equal arguments give equal answers."""

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """Proposes a configuration, with its source (``Trial.source``).

        Args:
            history: all trials of the study, ordered by number. CANCELLED and INFRA failures are ignored; RUNNING
                trials count as taken.
            number: number of the proposed trial; seeds the sampler together with the study's seed.

        Returns:
            A legal configuration that is not in ``history`` and that no OOM in it rules out; ``None`` if none is left.
        """

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        """Returns a sentence on the OOM that rules ``configuration`` out; ``None`` if none does."""

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        """Counts the legal configurations, failed ones included, that the OOMs in ``history`` rule out."""


@runtime_checkable
class FrugalProposer(Port):
    """Proposer that can avoid a process start if too little time is left for one."""

    def propose_in_process(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """Proposes as ``Proposer.propose`` does, but only configurations that the newest trial's process can run."""


@runtime_checkable
class PlacedProposer(Port):
    """Proposer for one of several trial slots, each with a process that the next trial can reuse."""

    def propose_at(
        self, history: Sequence[Trial], number: int, here: Sequence[Trial]
    ) -> tuple[Configuration, str] | None:
        """Proposes as ``Proposer.propose`` does, for the slot whose finished trials are ``here``."""
