"""Ctrl-C and its kin as stop tokens: what a user asks a running tuner, or a running command, for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class SignalStop:
    """What the user asked for by Ctrl-C: once = after this trial, twice = now. SIGTERM and SIGHUP = now."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.level = 0
        self.signal: int | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.level = 2 if number != signal.SIGINT else min(2, self.level + 1)
        if self.level == 1:
            self._say("finishing the running trial, then recommending; Ctrl-C again stops at once")
        else:
            self._say("stopping now; everything measured is kept, the same command continues")


@contextmanager
def stopping(say: Callable[[str], None]) -> Iterator[SignalStop]:
    """A stop token driven by signals while the block runs."""
    stop = SignalStop(say)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupt:
    """A stop token: any signal stops at once."""

    def __init__(self) -> None:
        self.level = 0
        self.signal: int | None = None

    def __call__(self, number: int, _: object) -> None:
        self.level, self.signal = 2, number


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Ctrl-C and its kin end the running command, not this process, while the block runs."""
    stop = Interrupt()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
