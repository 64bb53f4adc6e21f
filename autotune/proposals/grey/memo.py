"""Results of pure functions that are kept for a while: whoever asks first computes, others wait for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Value = TypeVar("Value")

KEPT = 8


class Memo(Generic[Value]):
    """The newest ``KEPT`` results by their arguments; safe for several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Future[Value]] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """What ``compute`` gives for ``key``; whatever it raises, and then nothing is kept."""
        with self._lock:
            result = self._results.get(key)
            mine = result is None
            if result is None:
                result = self._results[key] = Future()
                while len(self._results) > self._kept:
                    self._results.popitem(last=False)
        if mine:
            try:
                result.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._results.pop(key, None)
                result.set_exception(error)
        return result.result()
