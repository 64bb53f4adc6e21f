"""Calls the GPU driver on a separate thread, so that a driver that does not answer blocks no caller for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from autotune.errors import MachineError

T = TypeVar("T")
PATIENCE_S = 60.0
"""Most seconds for an answer; a driver that resets a GPU or starts without persistence needs 20 s and more."""


class PatientCall(Generic[T]):
    """One function that may take long; one call of it runs at a time."""

    def __init__(self, function: Callable[[], T], patience_s: float = PATIENCE_S) -> None:
        self._function = function
        self._patience = patience_s
        self._running: Future[T] | None = None
        self._began = 0.0

    def __call__(self) -> T:
        """Returns the function's result or error. Raises ``MachineError`` without an answer within ``patience_s``."""
        while (answer := self.soon(max(0.0, self._patience - self._age_s))) is None:
            continue
        return answer

    def soon(self, wait_s: float = 0.5) -> T | None:
        """Returns the result if it comes within ``wait_s`` seconds, else ``None``; the next call waits for the same
        call."""
        call = self._running = self._running or self._begun()
        if wait([call], wait_s).done:
            self._running = None
            return call.result()
        if self._age_s >= self._patience:
            raise MachineError(f"the GPU driver has not answered for {self._age_s:.0f} s")
        return None

    @property
    def _age_s(self) -> float:
        """Seconds since the pending call began."""
        return time.monotonic() - self._began if self._running is not None else 0.0

    def _begun(self) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(self._function())
            except BaseException as error:  # it is raised where the answer is asked for
                future.set_exception(error)

        self._began = time.monotonic()
        threading.Thread(target=run, name="gpu-driver", daemon=True).start()
        return future
