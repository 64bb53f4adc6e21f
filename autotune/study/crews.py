"""Crews that run a study's trials: one runner for trials in sequence, or several runners in parallel.

With several runners each attempt has its own thread. Calls to its watcher are executed on the loop's thread while the
attempt waits, so database and screen are used by only one thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.domain import FailureReason
from autotune.ports import Assignment, RunReport, StopToken, TrialRunner, Watcher
from trainer.child.contract import CurrentPhase, Record, Result

LOOK_S = 0.2
"""Seconds between two checks of the user's stop while no attempt reports."""


class Alone:
    """Implements ``ports.Crew`` for one runner: an attempt runs on the thread that waits for it."""

    places = nodes = ("",)

    def __init__(self, runner: TrialRunner, stop: StopToken) -> None:
        self._runner, self._stop = runner, stop
        self._next: tuple[Assignment, Watcher] | None = None
        self.close, self.sweep, self.recover = runner.close, runner.sweep, runner.recover

    def start(self, place: int, assignment: Assignment, watcher: Watcher) -> None:  # noqa: ARG002
        self._next = assignment, watcher

    def wait(self, timeout_s: float) -> tuple[tuple[int, RunReport], ...]:  # noqa: ARG002
        if self._next is None:
            return ()
        (assignment, watcher), self._next = self._next, None
        return ((0, self._runner.run(assignment, watcher, self._stop)),)


class ClosedError(Exception):
    """Raised in an attempt that still reports after the loop has ended, to end that attempt."""


@dataclass(frozen=True)
class _Call:
    """A call from an attempt, to be executed on the loop's thread."""

    act: Callable[[], Any]
    answer: Future[Any]


@dataclass(frozen=True)
class _End:
    """The end of an attempt: a report, or an error for the loop to raise."""

    place: int
    report: RunReport | None
    error: BaseException | None


class SideBySide:
    """``ports.Crew`` of several runners with named slots, each with one attempt at a time; ``stop`` is only read on the
    loop's thread. ``nodes`` names the slots' machines, if there are several."""

    def __init__(
        self, runners: Sequence[tuple[str, TrialRunner]], stop: StopToken, nodes: Sequence[str] | None = None
    ) -> None:
        self._names = tuple(name for name, _ in runners)
        self.nodes = tuple(nodes or [""] * len(runners))
        self._runners = tuple(runner for _, runner in runners)
        self._stop = stop
        self._level = _Level()
        self._messages: queue.SimpleQueue[_Call | _End] = queue.SimpleQueue()
        self._threads: dict[int, threading.Thread] = {}
        self._closed = False

    @property
    def places(self) -> tuple[str, ...]:
        return self._names

    def start(self, place: int, assignment: Assignment, watcher: Watcher) -> None:
        relay = _Relay(watcher, self._ask)
        thread = threading.Thread(
            target=self._run, args=(place, assignment, relay), name=f"trial {assignment.trial.number}", daemon=True
        )
        self._threads[place] = thread
        thread.start()

    def wait(self, timeout_s: float) -> tuple[tuple[int, RunReport], ...]:
        """Returns the reports of trials as soon as one has ended. Raises the error of a runner or a watcher."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            self._level.level = self._stop.level
            try:
                message = self._messages.get(timeout=min(LOOK_S, left))
            except queue.Empty:
                continue
            if isinstance(message, _End):
                return (self._ended(message),)
            _do(message)
        return ()

    def _ended(self, end: _End) -> tuple[int, RunReport]:
        self._threads.pop(end.place).join()
        if end.error is not None:
            raise end.error
        assert end.report is not None  # noqa: S101  (narrowing)
        return end.place, end.report

    def _run(self, place: int, assignment: Assignment, relay: _Relay) -> None:
        try:
            self._messages.put(_End(place, self._runners[place].run(assignment, relay, self._level), None))
        except BaseException as error:
            self._messages.put(_End(place, None, error))

    def _ask(self, act: Callable[[], Any]) -> Any:
        """Runs ``act`` on the loop's thread for an attempt's thread, and returns its result or raises its error."""
        if self._closed:
            raise ClosedError
        call = _Call(act, Future())
        self._messages.put(call)
        return call.answer.result()

    def close(self) -> tuple[int, ...]:
        """Ends running attempts, then the processes that the runners keep."""
        self._closed, self._level.level = True, 2
        while self._threads:
            message = self._messages.get()
            if isinstance(message, _End):
                self._threads.pop(message.place).join()
            else:
                message.answer.set_exception(ClosedError())
        return tuple(pid for runner in self._runners for pid in runner.close())

    def sweep(self, study_id: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(pid for runner in self._runners for pid in runner.sweep(study_id)))

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        return self._runners[0].recover(directory)


def _do(call: _Call) -> None:
    try:
        call.answer.set_result(call.act())
    except BaseException as error:
        call.answer.set_exception(error)


class _Level:
    """``ports.StopToken`` that runners may read on any thread."""

    level: int = 0


class _Relay:
    """``ports.Watcher`` that executes the calls to another one on the loop's thread."""

    def __init__(self, inner: Watcher, ask: Callable[[Callable[[], Any]], Any]) -> None:
        self._inner, self._ask = inner, ask

    @property
    def enough(self) -> bool | None:
        found: bool | None = self._ask(lambda: self._inner.enough)
        return found

    def record(self, record: Record) -> None:
        self._ask(lambda: self._inner.record(record))

    def phase(self, phase: CurrentPhase) -> None:
        self._ask(lambda: self._inner.phase(phase))

    def tick(self) -> None:
        self._ask(self._inner.tick)


ENOUGH = 6
"""Limit of consecutive attempts that the machine or the reward broke: three trials with their repeats."""
ENOUGH_ABSENT = 2
"""Limit of consecutive attempts without an input file, each of which waited for it."""


class MachineFaults:
    """Counts consecutive attempts that ended because of the machine or the reward, in one run of the tuner. One fault
    of the machine ends all ``at_once`` trials, so its limit is multiplied by that number."""

    def __init__(self, at_once: int = 1) -> None:
        self._in_a_row = 0
        self._at_once = at_once
        self.halted: str | None = None
        """Reason why no further trial starts; ``None`` while trials start."""

    def see(self, report: RunReport) -> None:
        """Takes the next attempt into account."""
        outcome = report.outcome
        again = outcome.reason in (FailureReason.INFRA, FailureReason.REWARD_ERROR)
        self._in_a_row = self._in_a_row + 1 if again else 0
        if self._in_a_row >= (ENOUGH_ABSENT if report.absent else ENOUGH) * self._at_once:
            failed = f"the last {self._in_a_row} attempts failed for no configuration's fault"
            self.halted = f"{failed}: {outcome.message}; mend that, and the same command goes on"
