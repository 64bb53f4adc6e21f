"""Uses the time a trial takes to have ready what the next proposal needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from autotune.domain import Configuration, Trial
from autotune.ports import FrugalProposer, PlacedProposer, PreparingProposer, Proposer


class ProposesAhead:
    """A proposer whose ``prepare`` returns at once and works in a thread of its own, one at a time.

    What is prepared changes no proposal: it is results of pure functions, which are computed when they are asked for if
    they are not there. An error in the thread is left to that.
    """

    def __init__(self, inner: Proposer) -> None:
        self._inner = inner
        self._worker: threading.Thread | None = None

    def prepare(self, history: Sequence[Trial], number: int) -> None:
        if not isinstance(self._inner, PreparingProposer) or (self._worker is not None and self._worker.is_alive()):
            return
        self._worker = threading.Thread(
            target=_quietly, args=(self._inner, tuple(history), number), name="proposals ahead", daemon=True
        )
        self._worker.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until what was last asked for is prepared; whether it is."""
        if self._worker is not None:
            self._worker.join(timeout_s)
        return self._worker is None or not self._worker.is_alive()

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        return self._inner.propose(history, number)

    def propose_in_process(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        return self._inner.propose_in_process(history, number) if isinstance(self._inner, FrugalProposer) else None

    def propose_at(
        self, history: Sequence[Trial], number: int, here: Sequence[Trial]
    ) -> tuple[Configuration, str] | None:
        if isinstance(self._inner, PlacedProposer):
            return self._inner.propose_at(history, number, here)
        return self._inner.propose(history, number)

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        return self._inner.ruled_out(history, configuration)

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        return self._inner.count_ruled_out(history)


def _quietly(inner: PreparingProposer, history: Sequence[Trial], number: int) -> None:
    try:
        inner.prepare(history, number)
    except Exception:  # It comes again, where it can be told, when the proposal is asked for.
        return
