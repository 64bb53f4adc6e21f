"""Protocol of a started process, whether spawned or forked."""

from __future__ import annotations

from typing import Protocol


class Child(Protocol):
    """A started process; ``subprocess.Popen`` satisfies the protocol."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Exit code, negative for a signal; ``None`` while the process runs."""
