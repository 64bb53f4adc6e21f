"""What is asked of a started process, however it came to be."""

from __future__ import annotations

from typing import Protocol


class Child(Protocol):
    """``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs."""
        ...
