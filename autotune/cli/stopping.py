"""Converts Ctrl-C and other signals to stop requests for a running tuner or command."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from autotune.cli import exit_codes
from autotune.errors import UsageError

GRACE_S = 25.0
"""Default of ``--grace`` in seconds: Slurm and Kubernetes send SIGKILL 30 s after SIGTERM."""
LAST_S = 2.0
"""Seconds of the grace period reserved for ending processes that have not ended by themselves."""
PREEMPTING = (signal.SIGTERM, signal.SIGUSR1)
"""Signals that schedulers send before they take the machine away."""
_TAKEN = (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGCHLD)


@dataclass(frozen=True)
class Notice:
    """A scheduler's notice of preemption: its signals, and the seconds until the end."""

    grace_s: float = GRACE_S
    signals: frozenset[int] = frozenset(PREEMPTING)

    @staticmethod
    def of(grace_s: float, names: Sequence[str]) -> Notice:
        """Returns a notice with further signals, such as ``USR2``. Raises ``UsageError``."""
        if grace_s < 2 * LAST_S:
            raise UsageError(f"--grace must be {2 * LAST_S:.0f}s or more, so that a trial can be ended")
        return Notice(grace_s, frozenset(PREEMPTING) | {_number(name) for name in names})


def _number(name: str) -> signal.Signals:
    wanted = name.strip().upper().removeprefix("SIG")
    found = next((each for each in signal.Signals if each.name == f"SIG{wanted}" or str(each.value) == wanted), None)
    if found is None or found in _TAKEN:
        raise UsageError(f"--signal {name!r} is no signal that can announce an end: give a name such as USR2")
    return found


class SignalStop:
    """Converts signals to stop requests: the first Ctrl-C stops after this trial, a second or another signal at once.

    After a scheduler's notice the process ends within the grace period, even if a trial hangs.
    """

    def __init__(self, say: Callable[[str], None], notice: Notice | None = None) -> None:
        self._say = say
        self._notice = notice or Notice()
        self.level = 0
        self.signal: int | None = None
        self.preempted = False
        self.bound = threading.Timer(self._notice.grace_s - LAST_S, self._leave)
        """Timer that a scheduler's notice starts; ends this process shortly before the grace period ends."""
        self.bound.daemon = True
        self.abandon: Callable[[], object] = lambda: None
        """Called to kill the study's processes at once."""

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.level = 2 if number != signal.SIGINT else min(2, self.level + 1)
        if number in self._notice.signals and not self.preempted:
            self.preempted = True
            self.bound.start()
        with suppress(RuntimeError):  # the signal came while the stream was written to, which cannot be begun twice
            if self.level == 1:
                self._say("finishing the running trial, then recommending; Ctrl-C again stops at once")
            else:
                self._say("stopping now; everything measured is kept, the same command continues")

    def _leave(self) -> None:
        with suppress(Exception):
            self.abandon()
        os._exit(exit_codes.RUN_AGAIN)


@contextmanager
def stopping(say: Callable[[str], None], notice: Notice | None = None) -> Iterator[SignalStop]:
    """Yields a stop token that signals control during the block."""
    notice = notice or Notice()
    stop = SignalStop(say, notice)
    with handling(stop, {signal.SIGINT, signal.SIGHUP, *notice.signals}):
        try:
            yield stop
        finally:
            stop.bound.cancel()


@contextmanager
def leaving(notice: Notice) -> Iterator[None]:
    """Exits the block at once at a scheduler's notice, before a study runs."""

    def leave(*_: object) -> None:
        for number in notice.signals:
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(exit_codes.RUN_AGAIN)

    with handling(leave, notice.signals):
        yield


def on_interrupt(action: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """Sets the handler of SIGINT, unless this process was started with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, action)


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object], numbers: Iterable[int]) -> Iterator[None]:
    """Handles the signals ``numbers`` with ``handler`` in the block, except a SIGHUP that ``nohup`` ignores."""
    deaf = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    before = {number: signal.signal(number, handler) for number in set(numbers) - deaf}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Interrupt:
    """A stop token: any signal stops at once."""

    def __init__(self) -> None:
        self.level = 0
        self.signal: int | None = None

    def __call__(self, number: int, _: object) -> None:
        self.level, self.signal = 2, number


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Makes Ctrl-C, SIGTERM and SIGHUP set the yielded stop token in the block, instead of ending this process."""
    stop = Interrupt()
    with handling(stop, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        yield stop
