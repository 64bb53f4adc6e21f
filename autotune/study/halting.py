"""Stops a study whose trials are ended by the machine again and again; nothing but the machine can mend that."""

from __future__ import annotations

from autotune.domain import FailureReason
from autotune.ports import RunReport

ENOUGH = 6
"""So many attempts in a row that the machine ended, three trials with their repeats."""
ENOUGH_ABSENT = 2
"""So many in a row without an input: each has waited for it."""


class MachineFaults:
    """Counts the attempts in a row, of one run of the tuner, that ended as INFRA.

    Args:
        at_once: trials side by side; one fault of the machine ends them all, so it takes as many times more.
    """

    def __init__(self, at_once: int = 1) -> None:
        self._in_a_row = 0
        self._at_once = at_once
        self.halted: str | None = None
        """Why no further trial is begun; ``None`` while one is."""

    def see(self, report: RunReport) -> None:
        """Takes the next attempt into account."""
        outcome = report.outcome
        self._in_a_row = self._in_a_row + 1 if outcome.reason is FailureReason.INFRA else 0
        if self._in_a_row >= (ENOUGH_ABSENT if report.absent else ENOUGH) * self._at_once:
            failed = f"the last {self._in_a_row} attempts were ended by the machine"
            self.halted = f"{failed}: {outcome.message}; mend that, and the same command goes on"
