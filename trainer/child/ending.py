"""Ensures that ``result.json`` is written once, by the first rank that fails or ends."""

from __future__ import annotations

import os
import sys
import threading
from typing import Optional

from .contract import FailureReason, Result, RunPaths, dumps, write_atomic

ECHOES = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "remote process exited",
    "NCCL communicator was aborted",
    "failed to recv, got 0 bytes",
    "Broken pipe",
)
"""Texts of a rank's failure after another rank is gone."""


class ResultClaim:
    """A rank's claim to write the trial's result.

    With several ranks, the first rank with a failure of its own reports it: the others only lose their connection to
    it, or are ended by the launcher. If no rank reports (one was killed), the launcher's log has the reason.
    """

    def __init__(self, paths: RunPaths, rank: int = 0, world_size: int = 1, leads: Optional[bool] = None) -> None:
        """Prepares the claim of one rank.

        ``leads`` tells whether this is the first rank of its machine, which reports success and marks the phase; by
        default rank 0.
        """
        self.leads = rank == 0 if leads is None else leads
        self._paths = paths
        self._rank = rank
        self._several = world_size > 1
        self._lock = threading.Lock()
        self._result: Optional[Result] = None

    def settle(self, result: Result) -> Result:
        """Records the first result of this rank, and returns the recorded one."""
        with self._lock:
            if self._result is None:
                self._result = result
                if self._is_reported(result) and self._is_first():
                    write_atomic(self._paths.result, dumps(result))
                elif not result.ok:
                    sys.stderr.write("rank %d: %s\n%s\n" % (self._rank, result.message, result.detail))
                    sys.stderr.flush()
            return self._result

    def _is_reported(self, result: Result) -> bool:
        if result.ok:
            return self.leads
        if not self._several:
            return True
        if result.reason is FailureReason.CANCELLED:
            return False
        return result.reason is not FailureReason.CRASH or not is_echo(result)

    def _is_first(self) -> bool:
        """Tells whether this rank is the first of all, by exclusive creation of a file."""
        if not self._several:
            return True
        try:
            self._paths.scratch.mkdir(parents=True, exist_ok=True)
            os.close(os.open(str(self._paths.scratch / "told"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return False
        return True


def is_echo(result: Result) -> bool:
    """Tells whether a failure only reports that another rank is gone."""
    return any(text in result.message for text in ECHOES)
