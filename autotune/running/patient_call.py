"""Calls the GPU driver on a thread of its own, so that a driver that does not answer holds up nobody for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from autotune.errors import MachineError

T = TypeVar("T")
PATIENCE_S = 60.0
"""A driver that resets a GPU, or starts without persistence, answers after 20 s and more."""


class PatientCall(Generic[T]):
    """One function that may take long; one call of it runs at a time."""

    def __init__(self, function: Callable[[], T], patience_s: float = PATIENCE_S) -> None:
        self._function = function
        self._patience = patience_s
        self._running: _Answer[T] | None = None

    def __call__(self) -> T:
        """What it returns, or raises. Raises ``MachineError``: it has not answered within the patience."""
        while (answer := self.soon(self._left())) is None:
            continue
        return answer

    def _left(self) -> float:
        return max(0.0, self._patience - (self._running.age_s if self._running else 0.0))

    def soon(self, wait_s: float = 0.5) -> T | None:
        """The result if it comes within ``wait_s`` seconds, else ``None``; the next call then continues to wait."""
        call = self._running = self._running or _Answer(self._function)
        if call.wait(wait_s):
            self._running = None
            return call.result()
        if call.age_s >= self._patience:
            raise MachineError(f"the GPU driver has not answered for {call.age_s:.0f} s")
        return None


class _Answer(Generic[T]):
    """A call under way."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._began = time.monotonic()
        self._done = threading.Event()
        self._value: list[T] = []
        self._error: Exception | None = None
        threading.Thread(target=self._run, args=(function,), name="gpu-driver", daemon=True).start()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    def _run(self, function: Callable[[], T]) -> None:
        try:
            self._value.append(function())
        except Exception as error:  # it is raised where the answer is asked for
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]
