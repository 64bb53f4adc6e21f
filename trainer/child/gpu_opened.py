"""Finds the import that opens a GPU; a process that has opened one cannot be forked for trials."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from types import TracebackType
from typing import Any, Callable, Optional, Type

DEVICE = "/dev/nvidia-uvm"
"""Every CUDA context opens this device; the driver's library for questions about GPUs does not."""


def uses_gpu() -> bool:
    """Whether this process has opened a GPU for computing."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink("/proc/self/fd/" + name).startswith(DEVICE):
                return True
    return False


class GpuOpenWatch:
    """While open, looks after each import statement that loads something whether a GPU has been opened.

    ``culprit`` is the innermost module whose import did, as "NAME, imported by NAME"; empty while none has. Imports by
    ``importlib.import_module`` are seen by the import statements inside them.

    Args:
        opened: tells whether a GPU is open.
        there: whether the machine has GPUs at all; without them nothing is watched.
        after: called after each import statement that loads something.
    """

    def __init__(
        self,
        opened: Callable[[], bool] = uses_gpu,
        there: Optional[bool] = None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.culprit = ""
        self._after = after
        self._opened = opened
        self._there = os.path.exists(DEVICE) if there is None else there
        self._import: Any = None

    def __enter__(self) -> "GpuOpenWatch":
        if self._there and not self._opened():
            self._import = builtins.__import__
            builtins.__import__ = self._watched
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._import is not None:
            builtins.__import__ = self._import
            self._import = None

    def _watched(self, name: str, *rest: Any, **named: Any) -> Any:
        before = len(sys.modules)
        try:
            return self._import(name, *rest, **named)
        finally:
            loaded = len(sys.modules) != before  # what only looks up a loaded module has run nothing
            if loaded:
                self._after()
            if not self.culprit and loaded and self._opened():
                importing = (rest[0] if rest else named.get("globals")) or {}
                by = importing.get("__name__", "?")
                self.culprit = "%s, imported by %s," % (name or "a module of its package", by)
